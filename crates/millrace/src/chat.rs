//! A conversation.

use crate::images::ChatImages;
use crate::kept::SequenceFile;
use crate::prompt::{answered, opening};
use crate::session::Lease;
use crate::stream::Stream;
use crate::{Event, Options, Result, Session, read_image};
use millrace_runtime::disk::DiskError;
use millrace_runtime::vision::image::RgbImage;
use millrace_runtime::{Finish, GenerateParams, Generation, Turn};
use millrace_text::{ChatTemplate, Message};
use std::path::Path;
use std::sync::Arc;

/// A conversation with a model, in its chat template. It keeps a sequence of its [`Session`], so an answer costs only
/// the new message; dropping the chat releases the sequence. It is `Send`.
///
/// ```
/// use millrace::{Model, Options};
///
/// # fn main() -> Result<(), millrace::Error> {
/// let session = Model::open("demo")?.on("cpu")?;
/// let mut chat = session.chat()?.options(&Options::greedy().max_tokens(40));
/// let answer = chat.say("Tom has a red ball. What does Tom have?")?;
/// println!("{answer}");
/// chat.say("What colour is it?")?;
/// assert_eq!(chat.messages().len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Chat {
    lease: Arc<Lease>,
    template: ChatTemplate,
    options: Options,
    system: Option<String>,
    /// The user's and the assistant's, alternating.
    messages: Vec<Message>,
    images: ChatImages,
    /// Names of the images that go with the next message.
    shown: Vec<String>,
    /// The file that keeps it between runs.
    file: Option<SequenceFile>,
}

impl Chat {
    pub(crate) fn new(session: &Session) -> Result<Chat> {
        let template = session.model().loaded().chat_template()?;
        Ok(Chat {
            lease: Arc::new(Lease::new(session)?),
            template,
            options: Options::new(),
            system: None,
            messages: Vec::new(),
            images: ChatImages::default(),
            shown: Vec::new(),
            file: None,
        })
    }

    /// Sets how answers are sampled and when they end.
    #[must_use]
    pub fn options(mut self, options: &Options) -> Chat {
        self.options = options.clone();
        self
    }

    /// Instructions for the model to follow.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Chat {
        self.system = Some(text.into());
        self
    }

    /// The session that answers.
    pub fn session(&self) -> &Session {
        self.lease.session()
    }

    /// All messages, the instructions first if there are any. To keep a conversation, keep these: they serialise.
    pub fn messages(&self) -> Vec<Message> {
        let system = self
            .system
            .iter()
            .map(|text| Message::system(text.as_str()));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// Tokens of context that the conversation takes so far.
    pub fn n_tokens(&self) -> usize {
        self.session()
            .with_engine(|engine| engine.len(self.lease.seq).unwrap_or(0))
    }

    /// Adds a user's message and returns the answer. If that fails, the message is not added. An answer that was
    /// stopped is kept as far as it got.
    ///
    /// # Errors
    /// A conversation that does not fit the context; a template that refuses it; a device that fails.
    pub fn say(&mut self, text: impl Into<String>) -> Result<Generation> {
        self.say_events(text, &mut |_| {})
    }

    /// As [`say`](Chat::say); `on_text` gets the answer piece by piece.
    ///
    /// # Errors
    /// As [`say`](Chat::say).
    pub fn say_with(
        &mut self,
        text: impl Into<String>,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation> {
        self.say_events(text, &mut |event| {
            if let Event::Text(text) = event {
                on_text(text);
            }
        })
    }

    /// As [`say`](Chat::say); `on_event` gets the events. During events about images it must not use the session.
    ///
    /// # Errors
    /// As [`say`](Chat::say).
    pub fn say_events(
        &mut self,
        text: impl Into<String>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generation> {
        let shown = self.shown.iter().cloned();
        self.messages.push(Message::user(text).with_images(shown));
        let answer = self.answer(on_event);
        match &answer {
            Ok((_, text)) => {
                self.shown.clear();
                self.messages.push(Message::assistant(text.as_str()));
            }
            Err(_) => {
                self.messages.pop();
            }
        }
        Ok(answer?.0)
    }

    /// The answer to all messages, and the part of it that is kept as a message.
    fn answer(&mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<(Generation, String)> {
        let session = self.session().clone();
        let model = session.model();
        let params = self.options.params(model)?;
        let tokenizer = model.loaded().tokenizer()?;
        let prompt = self
            .template
            .render_prompt(&tokenizer, &self.messages(), &answered())?;
        let named = self.messages.iter().flat_map(|message| &message.images);
        let names: Vec<String> = named.cloned().collect();
        let mut tokens = self.images.tokens(model, &tokenizer, &prompt, &names)?;
        tokens.extend(opening(&self.template, &tokenizer, &prompt));
        // Checked before the vision encoder runs.
        let (n_prompt, n_new) = (tokens.len(), params.least_tokens());
        session.with_engine(|engine| engine.check_context(n_prompt, n_new))?;
        let images = self
            .images
            .place(&session, &mut tokens, &names, &self.options, on_event)?;
        let turn = Turn::new(model.loaded(), &tokens, &params, session.n_ctx())?;
        let turn = turn.with_images(images);
        let stream = Stream::of(Arc::clone(&self.lease), turn, self.options.cancel_handle())?;
        let generation = stream.finish_events(on_event)?;
        let text = said(&session, &params, &generation)?;
        Ok((generation, text))
    }

    /// Adds an image file to the next message; returns its width and height in pixels. It is read once, however often
    /// it is shown.
    ///
    /// # Errors
    /// A model without vision; a file that cannot be read; an image other than the one with the same path.
    pub fn show(&mut self, path: impl AsRef<Path>) -> Result<(usize, usize)> {
        let path = path.as_ref();
        let image = read_image(path)?;
        self.show_image(&path.display().to_string(), &image)?;
        Ok((image.width(), image.height()))
    }

    /// Adds an image to the next message, under the given name.
    ///
    /// # Errors
    /// A model without vision; an image other than the one with the same name.
    pub fn show_image(&mut self, name: &str, image: &RgbImage) -> Result<()> {
        self.refuse_images()?;
        let model = self.lease.session().model();
        self.images.add(model, name, image)?;
        self.shown.push(name.to_owned());
        Ok(())
    }

    /// Continues the conversation of a file, and lets [`save`](Chat::save) write this one to it: the messages, and
    /// the computed state. Returns the number of messages without the instructions; 0 if there is no file. The file
    /// is locked as long as the chat lives.
    ///
    /// # Errors
    /// As [`Session::kept_in`]; a conversation with images.
    pub fn keep_in(&mut self, path: impl AsRef<Path>) -> Result<usize> {
        if self
            .messages
            .iter()
            .any(|message| !message.images.is_empty())
        {
            return Err(millrace_runtime::Error::from(DiskError::Images).into());
        }
        let file = SequenceFile::lock(path.as_ref())?;
        let seq = self.lease.seq;
        let note = file.load(&mut *self.session().lock().engine, seq)?;
        if !note.is_empty() {
            let messages = serde_json::from_slice(&note).map_err(|error| {
                millrace_runtime::Error::from(DiskError::Damaged {
                    path: file.path().to_owned(),
                    part: "conversation",
                    problem: error.to_string(),
                })
            })?;
            let messages: Vec<Message> = messages;
            // A conversation that was cleared before it was saved has no messages to restore.
            if !messages.is_empty() {
                (self.system, self.messages) = instructed(messages);
            }
        }
        self.file = Some(file);
        Ok(self.messages.len())
    }

    /// Writes the conversation to the file that [`keep_in`](Chat::keep_in) named, whole or not at all. Does nothing
    /// without one.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let note = serde_json::to_vec(&self.messages()).expect("texts serialise");
        let session = self.session();
        session.with_engine(|engine| file.save(engine, self.lease.seq, &note))
    }

    /// Refuses images, which no file can hold.
    fn refuse_images(&self) -> Result<()> {
        match self.file {
            None => Ok(()),
            Some(_) => Err(millrace_runtime::Error::from(DiskError::Images).into()),
        }
    }

    /// Starts over, keeping the instructions.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn clear(&mut self) -> Result<()> {
        self.messages.clear();
        self.shown.clear();
        let seq = self.lease.seq;
        Ok(self
            .session()
            .with_engine(|engine| engine.truncate(seq, 0))?)
    }

    /// Changes the instructions and starts over.
    ///
    /// # Errors
    /// As [`clear`](Chat::clear).
    pub fn set_system(&mut self, text: Option<String>) -> Result<()> {
        self.system = text;
        self.clear()
    }

    /// Replaces the conversation by messages. The first of them may be the instructions. Names of images are paths,
    /// and the images are read.
    ///
    /// # Errors
    /// As [`show`](Chat::show); the conversation is unchanged then.
    pub fn restore(&mut self, messages: impl IntoIterator<Item = Message>) -> Result<()> {
        let messages: Vec<Message> = messages.into_iter().collect();
        if messages.iter().any(|message| !message.images.is_empty()) {
            self.refuse_images()?;
        }
        let model = self.lease.session().model();
        for name in messages.iter().flat_map(|message| &message.images) {
            let image = read_image(Path::new(name))?;
            self.images.add(model, name, &image)?;
        }
        let (system, messages) = instructed(messages);
        self.set_system(system)?;
        self.messages = messages;
        Ok(())
    }
}

/// Splits messages into the instructions, if they begin with some, and the messages after them.
fn instructed(mut messages: Vec<Message>) -> (Option<String>, Vec<Message>) {
    let is_system = messages.first().is_some_and(|first| first.role == "system");
    let system = is_system.then(|| messages.remove(0).content);
    (system, messages)
}

/// The text of the answer, without control tokens that were only shown.
fn said(session: &Session, params: &GenerateParams, generation: &Generation) -> Result<String> {
    if !params.show_special {
        return Ok(generation.text.clone());
    }
    let tokenizer = session.model().loaded().tokenizer()?;
    let mut text = tokenizer.decode(&generation.tokens, true);
    if generation.finish == Finish::StopText {
        let stops = params.stop.iter();
        let end = stops.filter_map(|stop| text.find(stop)).min();
        text.truncate(end.unwrap_or(text.len()));
    }
    Ok(text)
}
