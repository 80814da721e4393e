//! Work without the interpreter's lock that a signal or a token can stop.

use crate::cancel::CancelToken;
use millrace::Cancel;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Longest time until Ctrl-C is noticed.
const PERIOD: Duration = Duration::from_millis(20);

/// Handle that stops one piece of work. The caller's token and signals set it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkWatch {
    /// The flag that the work polls.
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

    /// Passes a cancellation of the caller's token on.
    pub(crate) fn look(&self) {
        if self.token.as_ref().is_some_and(|t| t.0.is_cancelled()) {
            self.cancel.cancel();
        }
    }

    /// Does work on a separate thread, while this one waits for signals. If a signal handler raises, as for Ctrl-C,
    /// the work is stopped, and that exception is the result.
    ///
    /// It needs a thread, because no step of the work may wait for the interpreter: other Python threads may be busy.
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

/// Signals the waiting thread that the work ended, also after a panic.
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
