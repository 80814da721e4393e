//! The conversation, and the terminal's output about it beside the text.

use super::saved;
use crate::draft_args;
use crate::exit::{CommandFailure, CommandResult};
use crate::image_args::ImageBar;
use crate::output::{Ui, bytes};
use crate::stats;
use millrace::{Chat, Event, Generation, Message, Session, SpeculationStats};
use std::path::Path;

/// A conversation in progress.
pub(super) struct Conversation {
    chat: Chat,
    /// Statistics line of the last answer.
    last: Option<String>,
    /// The speculator's counters before the last answer.
    drafted_before: SpeculationStats,
}

impl Conversation {
    pub(super) fn new(chat: Chat) -> Conversation {
        Conversation {
            chat,
            last: None,
            drafted_before: SpeculationStats::default(),
        }
    }

    /// Session that answers.
    pub(super) fn session(&self) -> &Session {
        self.chat.session()
    }

    /// Speculation counters of the last answer.
    pub(super) fn speculation(&self) -> Option<SpeculationStats> {
        let now = self.session().speculation()?;
        Some(draft_args::since(now, self.drafted_before))
    }

    /// Adds an image to the next message; returns its size in words.
    pub(super) fn show(&mut self, path: &Path) -> CommandResult<String> {
        let (width, height) = self.chat.show(path)?;
        Ok(format!("{width} × {height} pixels"))
    }

    /// Adds a message and generates the answer to all of them.
    pub(super) fn answer(
        &mut self,
        text: String,
        ui: Ui,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> CommandResult<Generation> {
        self.drafted_before = self.session().speculation().unwrap_or_default();
        let mut images = ImageBar::new(ui);
        let answer = self.chat.say_events(text, &mut |event| {
            images.tell(&event);
            on_event(event);
        });
        let answer = answer.map_err(overflow)?;
        self.last = Some(stats::line(&answer));
        Ok(answer)
    }

    /// Clears the conversation.
    pub(super) fn clear(&mut self) -> CommandResult {
        self.last = None;
        Ok(self.chat.clear()?)
    }

    /// Changes the system prompt and starts over.
    pub(super) fn set_system(&mut self, system: Option<String>) -> CommandResult {
        self.last = None;
        Ok(self.chat.set_system(system)?)
    }

    /// Writes the conversation to its session file, if it has one.
    pub(super) fn keep(&self) -> CommandResult {
        Ok(self.chat.save()?)
    }

    /// Writes the conversation as JSON.
    pub(super) fn save(&self, path: &Path) -> CommandResult {
        let model = self.session().model().name();
        saved::write(path, model, self.chat.messages())
    }

    /// Replaces the conversation with a saved one; returns its number of messages.
    pub(super) fn load(&mut self, path: &Path) -> CommandResult<usize> {
        let (system, messages) = saved::read(path)?;
        let n = messages.len();
        let system = system.map(Message::system);
        self.chat.restore(system.into_iter().chain(messages))?;
        self.last = None;
        Ok(n)
    }

    /// Statistics of the last answer, and the state of the context.
    pub(super) fn stats(&self) -> String {
        let last = self.last.as_deref().unwrap_or("no answer yet");
        let messages = self.chat.messages();
        let is_said = |message: &&Message| message.role != "system";
        let n_messages = messages.iter().filter(is_said).count();
        let n_tokens = self.chat.n_tokens();
        self.session().with_engine(|engine| {
            format!(
                "{last}\n{n_messages} messages, {n_tokens} of {} tokens of context, {} of cache, {} threads, level {}; {}",
                engine.limits().n_ctx,
                bytes(engine.kv_usage().used_bytes as u64),
                engine.cpu().pool().n_threads(),
                engine.cpu().level(),
                engine.name(),
            )
        })
    }
}

/// Adds a hint to the error of a full context, which the user can clear here.
fn overflow(error: millrace::Error) -> CommandFailure {
    use millrace::engine::Error as Inner;
    match error {
        error @ millrace::Error::Engine(Inner::ContextOverflow { .. }) => {
            CommandFailure::from(error).hint("/clear starts over; `--ctx` sets a longer context")
        }
        error => CommandFailure::from(error),
    }
}
