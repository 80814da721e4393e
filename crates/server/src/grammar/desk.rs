//! Whose grammar is compiled next.
//!
//! A few are compiled at a time, of each client one: whoever sends many waits for himself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::scheduler::Refusal;

/// Grammars of one client that may wait; more are refused.
const MAX_WAITING: usize = 64;

struct Waiting {
    client: Arc<str>,
    go: oneshot::Sender<()>,
}

#[derive(Default)]
struct State {
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// Clients at work.
    working: Vec<Arc<str>>,
    /// By client, when it was last served. Only those at work or with something waiting are kept.
    last_served: HashMap<Arc<str>, u64>,
    n_served: u64,
}

/// Where grammars wait for their turn.
pub(super) struct Desk {
    state: Mutex<State>,
    n_places: usize,
    is_closed: watch::Sender<bool>,
}

/// The right to have a grammar compiled, until it is dropped.
pub(super) struct Place {
    desk: Arc<Desk>,
    client: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        if let Some(at) = state.working.iter().position(|one| *one == self.client) {
            state.working.swap_remove(at);
        }
        state.call(self.desk.n_places);
    }
}

impl Desk {
    pub(super) fn new(n_places: usize) -> Desk {
        Desk {
            state: Mutex::default(),
            n_places,
            is_closed: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place. Whoever stops waiting has left.
    ///
    /// # Errors
    /// The client has too many waiting; or the desk was closed.
    pub(super) async fn place(self: &Arc<Self>, client: &Arc<str>) -> Result<Place, Refusal> {
        let (go, called) = oneshot::channel();
        {
            let mut state = self.state();
            if *self.is_closed.borrow() {
                return Err(Refusal::Unloading);
            }
            state.waiting.retain(|one| !one.go.is_closed());
            let n_waiting = state
                .waiting
                .iter()
                .filter(|one| one.client == *client)
                .count();
            if n_waiting >= MAX_WAITING {
                return Err(Refusal::QueueFull {
                    n_waiting,
                    retry_after: Duration::from_secs(1),
                });
            }
            let client = Arc::clone(client);
            state.waiting.push(Waiting { client, go });
            state.call(self.n_places);
        }
        let mut wait = Wait {
            desk: self,
            client,
            called: Some(called),
        };
        let called = match &mut wait.called {
            Some(called) => called.await,
            None => return Err(Refusal::Unloading),
        };
        wait.called = None;
        called.map_err(|_| Refusal::Unloading)?;
        Ok(Place {
            desk: Arc::clone(self),
            client: Arc::clone(client),
        })
    }

    /// Nobody is served any more; those who wait, for a place or in one, hear of it.
    pub(super) fn close(&self) {
        let mut state = self.state();
        self.is_closed.send_replace(true);
        state.waiting.clear();
    }

    /// Waits until the desk is closed.
    pub(super) async fn closed(&self) {
        let mut is_closed = self.is_closed.subscribe();
        // Its sender is this desk's.
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }

    #[cfg(test)]
    pub(super) fn n_working(&self) -> usize {
        self.state().working.len()
    }
}

/// A wait that may be given up at the moment in which it is called: then the place goes to the next.
struct Wait<'a> {
    desk: &'a Arc<Desk>,
    client: &'a Arc<str>,
    called: Option<oneshot::Receiver<()>>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(called) = &mut self.called {
            called.close();
            if called.try_recv().is_ok() {
                drop(Place {
                    desk: Arc::clone(self.desk),
                    client: Arc::clone(self.client),
                });
            }
        }
    }
}

impl State {
    /// Calls those whose turn it is: of the clients not at work the one served longest ago, of its grammars the oldest.
    fn call(&mut self, n_places: usize) {
        while self.working.len() < n_places {
            let last_served =
                |one: &Waiting| self.last_served.get(&one.client).copied().unwrap_or(0);
            let may_go = |one: &Waiting| !self.working.contains(&one.client);
            let next = (0..self.waiting.len())
                .filter(|i| may_go(&self.waiting[*i]))
                .min_by_key(|i| (last_served(&self.waiting[*i]), *i));
            let Some(next) = next else {
                break;
            };
            let Waiting { client, go } = self.waiting.remove(next);
            if go.send(()).is_err() {
                continue;
            }
            self.n_served += 1;
            self.last_served.insert(Arc::clone(&client), self.n_served);
            self.working.push(client);
        }
        if self.last_served.len() > 2 * self.waiting.len() + 64 {
            let (waiting, working) = (&self.waiting, &self.working);
            self.last_served.retain(|client, _| {
                waiting.iter().any(|one| one.client == *client) || working.contains(client)
            });
        }
    }
}

#[cfg(test)]
mod tests;
