//! Threads of another program, on which a pool runs its regions.

use super::{MAX_THREADS, Pool, PoolState};
use crate::error::Error;
use std::any::Any;
use std::sync::Arc;

/// Threads that a [`Pool`] runs its regions on instead of its own workers. They belong to a program that hosts Millrace, and may be
/// waiting on the cores that workers would need.
pub trait Team: Send + Sync {
    /// Calls `f` on at most `n_threads` threads at once, the calling one among them, and returns when all calls have returned. The
    /// caller then sees everything they wrote. `f` does not unwind, and one call of it is enough to compute everything.
    fn run(&self, n_threads: usize, f: &(dyn Fn() + Sync));
}

impl Pool {
    /// A pool of `n_threads` threads of `team`; it starts no threads itself.
    ///
    /// # Errors
    /// [`Error::ThreadCount`] for 0 or more than [`MAX_THREADS`].
    pub fn of_team(team: Arc<dyn Team>, n_threads: usize) -> Result<Pool, Error> {
        if n_threads == 0 || n_threads > MAX_THREADS {
            return Err(Error::ThreadCount { asked: n_threads });
        }
        let mut pool = Pool::with_workers(0, super::DEFAULT_SPIN);
        pool.n_threads = n_threads;
        pool.team = Some(team);
        Ok(pool)
    }
}

/// Runs a region on `team`.
///
/// Requests all threads, however few the chunks: OpenMP ends threads that a region does without, and starts them again.
pub(super) fn run_region(
    shared: &PoolState,
    team: &dyn Team,
    n_threads: usize,
    n_chunks: usize,
    f: &(dyn Fn(usize) + Sync),
) -> Option<Box<dyn Any + Send>> {
    shared.chunks.begin();
    team.run(n_threads, &|| shared.chunks.work(n_chunks, f));
    shared.chunks.take_panic()
}
