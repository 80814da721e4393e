//! Decides whose grammar is compiled next.
//!
//! A few are compiled at a time, one for each client: a client that sends many waits for its own. If all places are
//! taken, the next is the client whose grammars took the least time lately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::scheduler::SubmitError;

/// Maximum number of waiting grammars of one client; more are refused.
const MAX_WAITING: usize = 64;

/// Maximum number of clients whose spent time is tracked.
const MAX_KNOWN: usize = 4096;

/// Half-life of a client's spent time.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Time spent on a client's grammars, as of some moment.
#[derive(Clone, Copy)]
struct Account {
    seconds: f64,
    at: Instant,
}

impl Account {
    fn now(self) -> f64 {
        let half_lives = self.at.elapsed().div_duration_f64(HALF_LIFE);
        self.seconds * (-half_lives).exp2()
    }
}

struct Waiting {
    client: Arc<str>,
    go: oneshot::Sender<()>,
}

#[derive(Default)]
struct SemaphoreState {
    /// In the order of arrival.
    waiting: Vec<Waiting>,
    /// Clients with a grammar being compiled.
    working: Vec<Arc<str>>,
    /// Time spent on each client's grammars.
    spent: HashMap<Arc<str>, Account>,
}

/// Queue of grammars that wait for their turn.
pub(super) struct FairSemaphore {
    state: Mutex<SemaphoreState>,
    n_places: usize,
    is_closed: watch::Sender<bool>,
}

/// Permit to compile a grammar, until it is dropped.
pub(super) struct Permit {
    semaphore: Arc<FairSemaphore>,
    client: Arc<str>,
    start: Instant,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.semaphore.state();
        if let Some(at) = state.working.iter().position(|one| *one == self.client) {
            state.working.swap_remove(at);
        }
        state.charge(&self.client, self.start.elapsed());
        state.call(self.semaphore.n_places);
    }
}

impl FairSemaphore {
    pub(super) fn new(n_places: usize) -> FairSemaphore {
        FairSemaphore {
            state: Mutex::default(),
            n_places,
            is_closed: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, SemaphoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// The client has too many waiting, or the semaphore was closed.
    pub(super) async fn place(self: &Arc<Self>, client: &Arc<str>) -> Result<Permit, SubmitError> {
        let (go, called) = oneshot::channel();
        {
            let mut state = self.state();
            if *self.is_closed.borrow() {
                return Err(SubmitError::Unloading);
            }
            state.waiting.retain(|one| !one.go.is_closed());
            let n_waiting = state
                .waiting
                .iter()
                .filter(|one| one.client == *client)
                .count();
            if n_waiting >= MAX_WAITING {
                return Err(SubmitError::QueueFull {
                    n_waiting,
                    retry_after: Duration::from_secs(1),
                });
            }
            let client = Arc::clone(client);
            state.waiting.push(Waiting { client, go });
            state.call(self.n_places);
        }
        let mut wait = Wait {
            semaphore: self,
            client,
            called: Some(called),
        };
        let called = match &mut wait.called {
            Some(called) => called.await,
            None => return Err(SubmitError::Unloading),
        };
        wait.called = None;
        called.map_err(|_| SubmitError::Unloading)?;
        Ok(Permit {
            semaphore: Arc::clone(self),
            client: Arc::clone(client),
            start: Instant::now(),
        })
    }

    /// Closes the semaphore: waiting and working clients are notified.
    pub(super) fn close(&self) {
        let mut state = self.state();
        self.is_closed.send_replace(true);
        state.waiting.clear();
    }

    /// Waits until the semaphore is closed.
    pub(super) async fn closed(&self) {
        let mut is_closed = self.is_closed.subscribe();
        // The semaphore itself owns the sender.
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }

    #[cfg(test)]
    pub(super) fn n_working(&self) -> usize {
        self.state().working.len()
    }
}

/// A wait that may be dropped just as its turn comes: then the place goes to the next.
struct Wait<'a> {
    semaphore: &'a Arc<FairSemaphore>,
    client: &'a Arc<str>,
    called: Option<oneshot::Receiver<()>>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(called) = &mut self.called {
            called.close();
            if called.try_recv().is_ok() {
                drop(Permit {
                    semaphore: Arc::clone(self.semaphore),
                    client: Arc::clone(self.client),
                    start: Instant::now(),
                });
            }
        }
    }
}

impl SemaphoreState {
    fn charge(&mut self, client: &Arc<str>, took: Duration) {
        if self.spent.len() >= MAX_KNOWN {
            // Clients that spent little lose least by it.
            self.spent.retain(|_, spent| spent.now() > 1.0);
        }
        if self.spent.len() >= MAX_KNOWN {
            self.spent.clear();
        }
        let before = self.spent.get(client).map_or(0.0, |spent| spent.now());
        let spent = Account {
            seconds: before + took.as_secs_f64(),
            at: Instant::now(),
        };
        self.spent.insert(Arc::clone(client), spent);
    }

    /// Calls the next ones: among the clients without a running grammar, the one that spent the least, and its oldest
    /// grammar.
    fn call(&mut self, n_places: usize) {
        while self.working.len() < n_places {
            let spent =
                |one: &Waiting| self.spent.get(&one.client).map_or(0.0, |spent| spent.now());
            let may_go = |one: &Waiting| !self.working.contains(&one.client);
            let next = (0..self.waiting.len())
                .filter(|i| may_go(&self.waiting[*i]))
                .min_by(|a, b| spent(&self.waiting[*a]).total_cmp(&spent(&self.waiting[*b])));
            let Some(next) = next else {
                return;
            };
            let Waiting { client, go } = self.waiting.remove(next);
            if go.send(()).is_ok() {
                self.working.push(client);
            }
        }
    }
}

#[cfg(test)]
mod tests;
