//! Work without the interpreter's lock that a signal or a token stops.

use crate::cancel::CancelToken;
use millrace::Cancel;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long Ctrl-C may go unnoticed.
const PERIOD: Duration = Duration::from_millis(20);

/// What stops one piece of work: a handle of its own, which the caller's token and signals set.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkWatch {
    /// What the work looks at.
    pub(crate) cancel: Cancel,
    token: Option<CancelToken>,
}

impl WorkWatch {
    pub(crate) fn new(token: Option<CancelToken>) -> WorkWatch {
        WorkWatch {
            cancel: Cancel::new(),
            token,
        }
    }

    /// Hands on that the caller's token was set.
    pub(crate) fn look(&self) {
        if self.token.as_ref().is_some_and(|t| t.0.is_cancelled()) {
            self.cancel.cancel();
        }
    }

    /// Does work on a thread of its own, while this one waits for signals. Where a handler raises, as Ctrl-C does, the work is
    /// stopped, and its exception is the result.
    ///
    /// A thread, because no step of the work may wait for the interpreter: other Python threads may be busy.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> T + Send,
    ) -> PyResult<T> {
        self.look();
        let (waiting, ended) = (thread::current(), AtomicBool::new(false));
        let ended = &ended;
        let mut raised = None;
        let outcome = thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let _end = EndOfWork { ended, waiting };
                work()
            });
            while !ended.load(Ordering::Acquire) {
                py.detach(|| thread::park_timeout(PERIOD));
                self.look();
                if raised.is_none()
                    && let Err(error) = py.check_signals()
                {
                    self.cancel.cancel();
                    raised = Some(error);
                }
            }
            py.detach(|| worker.join())
        });
        match (raised, outcome) {
            (Some(error), _) => Err(error),
            (None, Ok(value)) => Ok(value),
            (None, Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

/// Tells who waits that the work ended, by a panic too.
struct EndOfWork<'a> {
    ended: &'a AtomicBool,
    waiting: thread::Thread,
}

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.waiting.unpark();
    }
}
