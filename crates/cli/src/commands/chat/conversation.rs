//! The messages so far, and the model that answers them.

use super::images::Images;
use super::saved;
use crate::draft_args;
use crate::exit::{Failure, Outcome};
use crate::image_args::VisionArgs;
use crate::interrupt;
use crate::output::{Ui, bytes};
use crate::stats;
use millrace_runtime::{
    Engine, Event, Finish, GenerateParams, Generation, SeqId, SpeculationStats, Speculator, Turn,
    speculate_turn,
};
use millrace_text::{ChatTemplate, Message, RenderOptions};
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
    images: Images,
    /// Names of those that go with the next message.
    shown: Vec<String>,
    speculator: Option<Speculator>,
    /// What the speculator had done before the last answer.
    drafted_before: SpeculationStats,
}

impl Conversation {
    pub(super) fn new(
        mut engine: Box<dyn Engine>,
        params: GenerateParams,
        system: Option<String>,
        vision_args: &VisionArgs,
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
            images: Images::new(vision_args),
            shown: Vec::new(),
            speculator: None,
            drafted_before: SpeculationStats::default(),
        })
    }

    /// The conversation with answers that are drafted.
    pub(super) fn with_drafts(self, speculator: Option<Speculator>) -> Conversation {
        Conversation { speculator, ..self }
    }

    /// What was drafted for the last answer.
    pub(super) fn speculation(&self) -> Option<SpeculationStats> {
        let now = self.speculator.as_ref()?.stats();
        Some(draft_args::since(now, self.drafted_before))
    }

    /// What answers.
    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Takes an image that goes with the next message; returns its size in words.
    pub(super) fn show(&mut self, path: &Path) -> Outcome<String> {
        let (name, size) = self.images.read(&*self.engine, path)?;
        self.shown.push(name);
        Ok(size)
    }

    /// Adds a message and generates the answer to all of them. If that fails, nothing was said; an
    /// answer that was stopped stays as far as it came.
    pub(super) fn answer(
        &mut self,
        text: String,
        ui: Ui,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Outcome<Generation> {
        let shown = self.shown.iter().cloned();
        self.messages.push(Message::user(text).with_images(shown));
        let result = self.generate(ui, on_event);
        match &result {
            Ok(generation) => {
                self.shown.clear();
                let text = self.message_of(generation)?;
                self.messages.push(Message::assistant(text));
                self.last = Some(stats::line(generation));
            }
            Err(_) => {
                self.messages.pop();
            }
        }
        result
    }

    /// What the model said, without the control tokens that were only shown.
    fn message_of(&self, generation: &Generation) -> Outcome<String> {
        if !self.params.show_special {
            return Ok(generation.text.clone());
        }
        let tokenizer = self.engine.model().tokenizer()?;
        let mut text = tokenizer.decode(&generation.tokens, true);
        if generation.finish == Finish::StopText {
            let stops = self.params.stop.iter();
            let end = stops.filter_map(|stop| text.find(stop)).min();
            text.truncate(end.unwrap_or(text.len()));
        }
        Ok(text)
    }

    fn generate(&mut self, ui: Ui, on_event: &mut dyn FnMut(Event<'_>)) -> Outcome<Generation> {
        let options = RenderOptions {
            add_generation_prompt: true,
            ..RenderOptions::default()
        };
        let tokenizer = self.engine.model().tokenizer()?;
        let prompt = self
            .template
            .render_prompt(&tokenizer, &self.all_messages(), &options)?;
        let names = self
            .messages
            .iter()
            .flat_map(|message| message.images.iter());
        let names: Vec<String> = names.cloned().collect();
        let mut prompt = self.images.tokens(&tokenizer, &prompt, &names)?;
        // Before the tower runs.
        let n_new = self.params.least_tokens();
        let fits = self.engine.check_context(prompt.len(), n_new);
        fits.map_err(overflow)?;
        let engine = &*self.engine;
        let images = self.images.place(engine, &mut prompt, &names, ui)?;
        let n_ctx = self.engine.limits().n_ctx;
        let turn = Turn::new(self.engine.model(), &prompt, &self.params, n_ctx);
        let generation = turn.and_then(|turn| {
            let (flag, turn) = (interrupt::flag(), turn.with_images(images));
            let speculator = self.speculator.as_mut();
            self.drafted_before = speculator.as_ref().map(|s| s.stats()).unwrap_or_default();
            let engine = &mut *self.engine;
            speculate_turn(engine, self.seq, turn, speculator, flag, on_event)
        });
        generation.map_err(overflow)
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
        self.shown.clear();
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
        saved::write(path, self.engine.model().name(), self.all_messages())
    }

    /// Replaces the conversation by a saved one; returns its number of messages.
    pub(super) fn load(&mut self, path: &Path) -> Outcome<usize> {
        let (system, messages) = saved::read(path)?;
        for name in messages.iter().flat_map(|message| &message.images) {
            self.images.read(&*self.engine, Path::new(name))?;
        }
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

/// A context that is full can be helped here.
fn overflow(error: millrace_runtime::Error) -> Failure {
    match error {
        error @ millrace_runtime::Error::ContextOverflow { .. } => {
            Failure::from(error).hint("/clear starts over; `--ctx` sets a longer context")
        }
        error => Failure::from(error),
    }
}
