//! The messages so far, and the model that answers them.

use crate::exit::{Failure, Outcome};
use crate::interrupt;
use crate::output::bytes;
use crate::prompt::read_file;
use crate::stats;
use millrace_format::output;
use millrace_runtime::{Engine, Event, GenerateParams, Generation, SeqId, generate};
use millrace_text::{ChatTemplate, Message, RenderOptions};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A conversation in progress. The sequence keeps the keys and values of what was said, so an
/// answer costs only the new message.
pub(super) struct Conversation {
    engine: Box<dyn Engine>,
    seq: SeqId,
    template: ChatTemplate,
    params: GenerateParams,
    system: Option<String>,
    /// User's and assistant's in turn.
    messages: Vec<Message>,
    last: Option<String>,
}

/// A conversation on disk.
#[derive(Serialize, Deserialize)]
struct Saved {
    model: String,
    messages: Vec<Message>,
}

impl Conversation {
    pub(super) fn new(
        mut engine: Box<dyn Engine>,
        params: GenerateParams,
        system: Option<String>,
    ) -> Outcome<Conversation> {
        let template = engine.model().chat_template()?;
        let seq = engine.create()?;
        let messages = Vec::new();
        Ok(Conversation {
            engine,
            seq,
            template,
            params,
            system,
            messages,
            last: None,
        })
    }

    /// What answers.
    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Adds a message and generates the answer to all of them. If that fails, nothing was said; an
    /// answer that was stopped stays as far as it came.
    pub(super) fn answer(
        &mut self,
        text: String,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Outcome<Generation> {
        self.messages.push(Message::user(text));
        let result = self.generate(on_event);
        match &result {
            Ok(generation) => {
                self.messages
                    .push(Message::assistant(generation.text.clone()));
                self.last = Some(stats::line(generation));
            }
            Err(_) => {
                self.messages.pop();
            }
        }
        result
    }

    fn generate(&mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Outcome<Generation> {
        let options = RenderOptions {
            add_generation_prompt: true,
            ..RenderOptions::default()
        };
        let tokenizer = self.engine.model().tokenizer()?;
        let prompt = self
            .template
            .render_prompt(&tokenizer, &self.all_messages(), &options)?;
        let prompt = tokenizer.encode_prompt(&prompt);
        let flag = interrupt::flag();
        let generation = generate(
            &mut *self.engine,
            self.seq,
            &prompt,
            &self.params,
            flag,
            on_event,
        );
        generation.map_err(|error| match error {
            error @ millrace_runtime::Error::ContextOverflow { .. } => {
                Failure::from(error).hint("/clear starts over; `--ctx` sets a longer context")
            }
            error => Failure::from(error),
        })
    }

    /// The instructions, if any, and everything said.
    fn all_messages(&self) -> Vec<Message> {
        let system = self
            .system
            .iter()
            .map(|text| Message::system(text.as_str()));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// Forgets what was said.
    pub(super) fn clear(&mut self) -> Outcome {
        self.messages.clear();
        self.last = None;
        Ok(self.engine.truncate(self.seq, 0)?)
    }

    /// Changes the instructions and starts over.
    pub(super) fn set_system(&mut self, system: Option<String>) -> Outcome {
        self.system = system;
        self.clear()
    }

    /// Writes the conversation as JSON.
    pub(super) fn save(&self, path: &Path) -> Outcome {
        let model = self.engine.model().name().to_owned();
        let saved = Saved {
            model,
            messages: self.all_messages(),
        };
        let text = serde_json::to_vec_pretty(&saved).expect("text serialises");
        output::write(path, &text).map_err(|error| Failure::writing(&error))
    }

    /// Replaces the conversation by a saved one; returns its number of messages.
    pub(super) fn load(&mut self, path: &Path) -> Outcome<usize> {
        let text = read_file(path)?;
        let saved: Saved = serde_json::from_str(&text).map_err(|error| {
            let what = format!("{} is not a saved conversation: {error}", path.display());
            Failure::bad_input(what)
        })?;
        let mut messages = saved.messages;
        let is_system = messages
            .first()
            .is_some_and(|message| message.role == "system");
        let system = is_system.then(|| messages.remove(0).content);
        self.set_system(system)?;
        let n = messages.len();
        self.messages = messages;
        Ok(n)
    }

    /// The last answer and the state of the context.
    pub(super) fn stats(&self) -> String {
        let last = self.last.as_deref().unwrap_or("no answer yet");
        let n_tokens = self.engine.len(self.seq).unwrap_or(0);
        format!(
            "{last}\n{} messages, {} of {} tokens of context, {} of cache, {} threads, level {}; {}",
            self.messages.len(),
            n_tokens,
            self.engine.limits().n_ctx,
            bytes(self.engine.kv_usage().used_bytes as u64),
            self.engine.cpu().pool().n_threads(),
            self.engine.cpu().level(),
            self.engine.name(),
        )
    }
}
