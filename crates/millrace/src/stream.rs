//! Text piece by piece.

use crate::session::Lease;
use crate::{Cancel, Error, Event, Options, PromptTokens, Result, Session};
use millrace_runtime::{Generation, GenerationRun, Turn};
use std::sync::Arc;

/// A generation under way: an iterator over pieces of text. Each call of `next` computes until there is more text. No
/// part of a piece can be the start of a stop text. A `Stream` is `Send` and may be dropped at any time.
///
/// ```
/// use millrace::{Model, Options};
///
/// # fn main() -> Result<(), millrace::Error> {
/// let session = Model::open("demo")?.on("cpu")?;
/// let mut stream = session.stream("Once upon a time", &Options::greedy().max_tokens(16))?;
/// let mut text = String::new();
/// for piece in stream.by_ref() {
///     text += &piece?;
/// }
/// let generation = stream.finish()?;
/// assert_eq!(generation.text, text);
/// assert_eq!(generation.tokens.len(), 16);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    lease: Arc<Lease>,
    run: GenerationRun,
    cancel: Cancel,
    /// A step failed: the stream has ended.
    failed: bool,
}

impl Stream {
    pub(crate) fn start(
        session: &Session,
        prepared: PromptTokens,
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Stream> {
        let turn = session.turn(prepared, options, on_event)?;
        Stream::of(
            Arc::new(Lease::new(session)?),
            turn,
            options.cancel_handle(),
        )
    }

    /// A turn on a sequence, which keeps its state for the common part of the prompt.
    pub(crate) fn of(lease: Arc<Lease>, turn: Turn, cancel: &Cancel) -> Result<Stream> {
        let run = GenerationRun::start(&mut *lease.session().lock().engine, lease.seq, turn)?;
        Ok(Stream {
            lease,
            run,
            cancel: cancel.clone(),
            failed: false,
        })
    }

    /// Computes one step and reports its events. False when there are no more steps.
    fn step(&mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        if self.failed || !self.run.goes_on() {
            return Ok(false);
        }
        let reads_prompt = self.run.turn().reads_prompt();
        if self.cancel.is_cancelled() {
            self.run.turn_mut().cancel();
        } else {
            let mut core = self.lease.session().lock();
            let core = &mut *core;
            let speculator = core.speculator.as_mut();
            let stepped = self.run.step(&mut *core.engine, speculator);
            self.failed = stepped.is_err();
            stepped?;
        }
        if reads_prompt {
            let (done, total) = self.run.turn().prefill();
            on_event(Event::Prompt { done, total });
        }
        let text = self.run.turn_mut().next_text();
        if !text.is_empty() {
            on_event(Event::Text(text));
        }
        Ok(true)
    }

    /// Computes the rest at once, and returns the whole text with tokens, times and the reason of its end.
    ///
    /// # Errors
    /// A device that fails, logits that are not numbers, a full cache.
    pub fn finish(self) -> Result<Generation> {
        self.finish_events(&mut |_| {})
    }

    /// Ends the text here. Returns it with tokens and times, and [`Finish::Cancelled`](crate::Finish::Cancelled)
    /// unless it had ended. The handle set by [`Options::cancel`], which others may share, is unchanged.
    ///
    /// # Errors
    /// [`Error::Failed`] for a stream that failed before.
    pub fn stop(mut self) -> Result<Generation> {
        self.cancel = Cancel::new();
        self.cancel.cancel();
        self.finish()
    }

    /// As [`finish`](Stream::finish); `on_event` gets the events.
    ///
    /// # Errors
    /// As [`finish`](Stream::finish).
    pub fn finish_events(mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Generation> {
        while self.step(on_event)? {}
        if self.failed {
            return Err(Error::Failed);
        }
        Ok(self.run.into_turn().into_generation())
    }
}

impl Iterator for Stream {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        loop {
            let mut piece = String::new();
            let stepped = self.step(&mut |event| {
                if let Event::Text(text) = event {
                    piece += text;
                }
            });
            match stepped {
                Err(error) => return Some(Err(error)),
                Ok(_) if !piece.is_empty() => return Some(Ok(piece)),
                Ok(true) => {}
                Ok(false) => return None,
            }
        }
    }
}
