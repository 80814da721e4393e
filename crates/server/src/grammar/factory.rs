//! Grammars of requests: tried, compiled, cached, with clients taking turns.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use millrace_text::Tokenizer;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::cache::{GrammarKey, key};
use super::compiler::{Compiler, Message};
use super::constraint::Constraint;
use super::semaphore::{FairSemaphore, Permit};
use super::{Grammar, GrammarError};
use crate::scheduler::{Job, SubmitError};

/// Number of grammars compiled at a time, for each model. More than there are processors: hard ones slow down others,
/// but do not block them.
const N_PERMITS: usize = 8;

/// Time limit for compiling a grammar that passed its trial. Nothing can end it after that, but no client waits for
/// it.
const COMPILE_TIME: Duration = Duration::from_secs(10);

/// The client that wants a grammar, and its deadline.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    /// Clients take turns in compiling.
    pub(crate) client: Arc<str>,
    /// Grammars compiled for the same scope are shared.
    pub(crate) scope: u64,
    pub(crate) deadline: Option<Instant>,
}

impl Requester {
    /// The client of a job.
    pub(crate) fn of(job: &Job) -> Requester {
        Requester {
            client: Arc::clone(&job.client),
            scope: job.scope,
            deadline: job.deadline,
        }
    }
}

/// Compiles grammars for one vocabulary.
pub struct GrammarFactory {
    compiler: Arc<Compiler>,
    semaphore: Arc<FairSemaphore>,
}

impl GrammarFactory {
    /// A factory for a tokenizer, and a model of `vocab_size` logits.
    pub fn new(tokenizer: Arc<Tokenizer>, vocab_size: usize) -> GrammarFactory {
        GrammarFactory {
            compiler: Arc::new(Compiler::new(tokenizer, vocab_size)),
            semaphore: Arc::new(FairSemaphore::new(N_PERMITS)),
        }
    }

    /// Compiles a grammar, and waits for it.
    ///
    /// # Errors
    /// A grammar that is too long, too deep, too hard, or invalid, with the reason.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint, GrammarError> {
        grammar.check_length()?;
        let key = key(0, grammar);
        if let Some(kept) = self.compiler.cache.get(&key) {
            return kept.map(|constraint| constraint.fresh());
        }
        let what = grammar.what();
        let (sender, messages) = mpsc::channel();
        let tell = move |message| {
            let _ = sender.send(message);
        };
        let started = self.compiler.start(key, grammar.clone(), || false, tell);
        started.map_err(|error| no_thread(what, &error))?;
        let mut limit = Duration::MAX;
        loop {
            match messages.recv_timeout(limit) {
                Ok(Message::Compiling) => limit = COMPILE_TIME,
                Ok(Message::Done(Some(kept))) => return kept.map(|constraint| constraint.fresh()),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(endless(what)),
                // The thread ended without a message.
                Ok(Message::Done(None)) | Err(_) => return Err(gave_up(what)),
            }
        }
    }

    /// Compiles a grammar in the client's turn. Dropping the future ends the trial.
    ///
    /// # Errors
    /// As [`GrammarFactory::compile`]; the deadline passed; the client has too many waiting; the model is unloaded.
    pub(crate) async fn prepare(
        &self,
        grammar: &Grammar,
        requester: &Requester,
    ) -> Result<Constraint, SubmitError> {
        let work = async {
            tokio::select! {
                constraint = self.in_turn(grammar, requester) => constraint,
                () = self.semaphore.closed() => Err(SubmitError::Unloading),
            }
        };
        match requester.deadline {
            None => work.await,
            Some(deadline) => {
                let work = tokio::time::timeout_at(deadline.into(), work);
                work.await.unwrap_or(Err(SubmitError::Deadline))
            }
        }
    }

    async fn in_turn(
        &self,
        grammar: &Grammar,
        requester: &Requester,
    ) -> Result<Constraint, SubmitError> {
        grammar.check_length()?;
        let key = key(requester.scope, grammar);
        if let Some(kept) = self.compiler.cache.get(&key) {
            return Ok(kept?.fresh());
        }
        let place = self.semaphore.place(&requester.client).await?;
        // The same client may have sent it just before.
        if let Some(kept) = self.compiler.cache.get(&key) {
            return Ok(kept?.fresh());
        }
        let what = grammar.what();
        let given_up = GiveUp::default();
        let (sender, messages) = unbounded_channel();
        let flag = Arc::clone(&given_up.0);
        let is_given_up = move || flag.load(Relaxed);
        let tell = move |message| {
            let _ = sender.send(message);
        };
        let started = self.compiler.start(key, grammar.clone(), is_given_up, tell);
        started.map_err(|error| no_thread(what, &error))?;
        let (answer, answered) = oneshot::channel();
        let watch = Watch {
            compiler: Arc::clone(&self.compiler),
            key,
            what,
            compile_time: COMPILE_TIME,
            _place: place,
        };
        tokio::spawn(watch.over(messages, answer));
        let kept = answered.await.unwrap_or_else(|_| Err(gave_up(what)));
        Ok(kept?.fresh())
    }

    /// Closes the factory: waiting clients are refused.
    pub(crate) fn close(&self) {
        self.semaphore.close();
    }
}

/// Ends a trial when no client waits for it.
#[derive(Default)]
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Watches a compiling thread, even after its client has gone.
struct Watch {
    compiler: Arc<Compiler>,
    key: GrammarKey,
    what: &'static str,
    compile_time: Duration,
    /// Held until the thread ends, or is known not to end.
    _place: Permit,
}

impl Watch {
    async fn over(
        self,
        mut messages: UnboundedReceiver<Message>,
        answer: oneshot::Sender<Result<Arc<Constraint>, GrammarError>>,
    ) {
        let mut limit = None;
        let kept = loop {
            let message = match limit {
                None => Ok(messages.recv().await),
                Some(limit) => tokio::time::timeout(limit, messages.recv()).await,
            };
            match message {
                Ok(Some(Message::Compiling)) => limit = Some(self.compile_time),
                Ok(Some(Message::Done(Some(kept)))) => break kept,
                Ok(Some(Message::Done(None)) | None) => break Err(gave_up(self.what)),
                Err(_) => {
                    let error = endless(self.what);
                    // It is not tried again.
                    self.compiler.cache.put(self.key, Err(error.clone()), 1024);
                    crate::app::log(&json!({"warning": format!(
                        "{error}; its thread goes on and may take ever more memory: start the server anew soon"
                    )}));
                    break Err(error);
                }
            }
        };
        // The client may be gone.
        let _ = answer.send(kept);
    }
}

fn no_thread(what: &'static str, error: &std::io::Error) -> GrammarError {
    let reason = format!("no thread to compile it: {error}");
    GrammarError::Untried { what, reason }
}

fn endless(what: &'static str) -> GrammarError {
    let reason = format!("compiling it took more than {} s", COMPILE_TIME.as_secs());
    GrammarError::TooHard { what, reason }
}

fn gave_up(what: &'static str) -> GrammarError {
    let reason = "the compiler of grammars gave up on it".to_owned();
    GrammarError::Bad { what, reason }
}

#[cfg(test)]
mod tests;
