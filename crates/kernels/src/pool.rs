//! The thread pool: persistent workers that share the chunks of one parallel region at a time.
//!
//! [`Pool::run`] opens a region. An atomic counter hands its chunks out to the calling thread and to every worker that
//! arrives while the region is open. Idle workers spin for a short declared time, seldom where that is in vain, then park.
//! A hand-over therefore costs about a microsecond inside a step and nothing between steps.
//!
//! # Why no worker touches a region that has ended
//!
//! One word, `gate`, holds *epoch · open · entered*. A worker enters by compare-and-swap on the
//! whole word and only while the open bit of an epoch it has not served is set. Entering and
//! closing are thus ordered by the modification order of that word. The caller closes the gate when
//! the counter is exhausted, waits for `entered` to fall to zero and only then returns. The job is
//! written while the gate is closed and nobody is inside. The releasing store that opens the gate
//! publishes it, and a worker reads it after the acquiring swap that enters. The releasing
//! decrement that leaves publishes results, and the caller's acquiring load of zero sees them. The
//! caller waits for workers that entered, never for workers that have yet to wake up. On a busy
//! machine a region degrades to the caller doing the chunks alone.
//!
//! # Why no wake-up is lost
//!
//! A sleeper raises its `parked` flag and then looks at the gate; an opener writes the gate and
//! then looks at the flags. Both are sequentially consistent, so at least one sees the other.
//! `park` remembers an `unpark` that came first.

mod chunks;
mod cores;
mod disjoint;
mod gate;
mod team;
#[cfg(test)]
mod tests;
mod wait;

pub use cores::{available_cores, default_threads};
pub(crate) use disjoint::DisjointMut;
pub use team::Team;

use crate::error::Error;
use chunks::Chunks;
use gate::Gate;
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use wait::{SpinWait, Waiter};

/// Most threads a pool may have.
pub const MAX_THREADS: usize = 1024;

/// How a [`Pool`] is built. `Default` takes one thread a physical core and no pinning.
#[derive(Debug, Clone, Default)]
pub struct PoolOptions {
    /// Threads that work on a region, the caller included. `None`: [`default_threads`].
    pub n_threads: Option<usize>,
    /// How long an idle thread spins before it sleeps. `None`: [`DEFAULT_SPIN`], or
    /// [`CROWDED_SPIN`] when there are more threads than cores.
    pub spin: Option<Duration>,
    /// Bind worker `i` to the `i`-th core this process may use (the calling thread is left alone).
    /// Linux only; elsewhere it has no effect.
    pub pin: bool,
}

/// Spin of an idle thread before it sleeps, four times as long inside [`Pool::enter`]. It is longer than the serial gaps between the
/// regions of a step, and too short for another process to notice.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(40);

/// Spin when the pool has more threads than the process has cores: the thread that is waited for
/// needs this core.
pub const CROWDED_SPIN: Duration = Duration::from_micros(1);

/// Work of the threads of a region: the closure behind a lifetime-erased reference, and the number
/// of chunks.
#[derive(Clone, Copy)]
struct PoolJob {
    f: &'static (dyn Fn(usize) + Sync),
    n_chunks: usize,
}

/// A worker's place to sleep.
#[derive(Default)]
#[repr(align(128))]
struct Berth {
    /// Set by the worker before it parks, cleared by the thread that wakes it.
    parked: AtomicBool,
    /// The thread to wake; set by the worker before its first sleep.
    thread: OnceLock<Thread>,
    patience: SpinWait,
}

/// State that the caller and the workers share.
struct PoolState {
    gate: Gate,
    chunks: Chunks,
    job: UnsafeCell<Option<PoolJob>>,
    berths: Vec<Berth>,
    /// Guards alive, see [`Pool::enter`].
    hot: AtomicUsize,
    stopping: AtomicBool,
    /// Set by a caller that sleeps until the last worker leaves; that worker takes the handle and
    /// wakes it.
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    caller_patience: SpinWait,
    waiter: Waiter,
}

// SAFETY: `job` is the only field that is not `Sync` by itself. The thread that owns the region
// (see `Pool::busy`) writes it while the gate is closed and empty. Threads read it between entering
// and leaving, which the gate orders after the write and before the next one. The data
// it points to is `Sync`.
unsafe impl Sync for PoolState {}

/// A value alone on its cache lines (two, for the adjacent-line prefetcher).
#[derive(Default)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// Persistent worker threads, or a [`Team`]'s, entered through [`Pool::run`].
pub struct Pool {
    shared: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
    /// Threads that work on a region, the caller included.
    n_threads: usize,
    /// The team that provides the threads, if they are not workers.
    team: Option<Arc<dyn Team>>,
    /// True while a region is open; a second one (nested, or from another thread) runs on its own
    /// thread instead.
    busy: AtomicBool,
}

impl Pool {
    /// Starts `n_threads - 1` workers; the caller of [`Pool::run`] is the remaining thread.
    ///
    /// # Errors
    /// [`Error::ThreadCount`] for 0 or more than [`MAX_THREADS`], [`Error::Spawn`] when the system
    /// refuses a thread.
    pub fn new(n_threads: usize) -> Result<Pool, Error> {
        Pool::with_options(&PoolOptions {
            n_threads: Some(n_threads),
            ..PoolOptions::default()
        })
    }

    /// Starts a pool with all options given.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_options(options: &PoolOptions) -> Result<Pool, Error> {
        let n_threads = options.n_threads.unwrap_or_else(default_threads);
        if n_threads == 0 || n_threads > MAX_THREADS {
            return Err(Error::ThreadCount { asked: n_threads });
        }
        let crowded = n_threads > available_cores();
        let spin = options
            .spin
            .unwrap_or(if crowded { CROWDED_SPIN } else { DEFAULT_SPIN });
        let mut pool = Pool::with_workers(n_threads - 1, spin);
        for index in 0..n_threads - 1 {
            let shared = Arc::clone(&pool.shared);
            let core = options.pin.then_some(index + 1);
            let worker = std::thread::Builder::new()
                .name(format!("millrace-{}", index + 1))
                .spawn(move || {
                    if let Some(core) = core {
                        cores::pin_to(core);
                    }
                    serve(&shared, index);
                })
                .map_err(|source| Error::Spawn {
                    index,
                    n_threads,
                    source,
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// A pool with places for workers, none of them started.
    fn with_workers(n_workers: usize, spin: Duration) -> Pool {
        let shared = PoolState {
            gate: Gate::default(),
            chunks: Chunks::default(),
            job: UnsafeCell::new(None),
            berths: (0..n_workers).map(|_| Berth::default()).collect(),
            hot: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            caller_patience: SpinWait::default(),
            waiter: Waiter { spin },
        };
        Pool {
            shared: Arc::new(shared),
            workers: Vec::with_capacity(n_workers),
            n_threads: n_workers + 1,
            team: None,
            busy: AtomicBool::new(false),
        }
    }

    /// Threads that work on a region, the caller included.
    #[must_use]
    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Calls `f(0)`, …, `f(n_chunks - 1)`, each once, on any thread and in any order, and returns
    /// when all have returned.
    ///
    /// With one chunk or one thread, inside another region of the same pool, or while another
    /// thread runs a region, the chunks run in order on the calling thread.
    ///
    /// # Panics
    /// With the payload of a chunk that panicked, after every chunk in progress has ended; chunks
    /// not yet started are then skipped. The pool stays usable.
    pub fn run(&self, n_chunks: usize, f: &(dyn Fn(usize) + Sync)) {
        let alone = n_chunks <= 1 || self.n_threads == 1;
        if alone
            || self
                .busy
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            for chunk in 0..n_chunks {
                f(chunk);
            }
            return;
        }
        let panic = match &self.team {
            Some(team) => team::run_region(&self.shared, &**team, self.n_threads, n_chunks, f),
            None => self.run_region(n_chunks, f),
        };
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Opens a region, works in it, closes it, waits for the workers inside. Needs `busy`.
    fn run_region(
        &self,
        n_chunks: usize,
        f: &(dyn Fn(usize) + Sync),
    ) -> Option<Box<dyn Any + Send>> {
        let shared = &*self.shared;
        // SAFETY: the reference is used only by threads inside the gate, and this function returns
        // after the gate is closed and empty, while `f` is still borrowed. Chunks cannot unwind out
        // of `Chunks::work`.
        let f: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(f) };
        let job = PoolJob { f, n_chunks };
        // SAFETY: the gate is closed and empty (the previous region left it so) and `busy` keeps
        // other callers out.
        unsafe { *shared.job.get() = Some(job) };
        shared.chunks.begin();
        shared.gate.open();
        shared.wake(n_chunks - 1);
        shared.chunks.work(job.n_chunks, job.f);
        shared.gate.close();
        shared.wait_until_empty();
        // SAFETY: the gate is closed and empty again; dropping the reference keeps no dangling one
        // around.
        unsafe { *shared.job.get() = None };
        shared.chunks.take_panic()
    }

    /// Makes the workers wait longer before they sleep until the guard is dropped, and wakes them now. Entered once a step, it makes the
    /// step's first region as cheap as the others.
    #[must_use = "the workers stay hot only while the guard lives"]
    pub fn enter(&self) -> Hot<'_> {
        self.shared.hot.fetch_add(1, Ordering::SeqCst);
        self.shared.wake(self.workers.len());
        Hot { pool: self }
    }

    /// Splits `out` into pieces of `piece_len` elements (the last may be shorter) and calls
    /// `f(index, piece)` for each in parallel.
    ///
    /// # Panics
    /// If `piece_len` is 0, or as [`Pool::run`].
    pub fn run_pieces<T: Send>(
        &self,
        out: &mut [T],
        piece_len: usize,
        f: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        assert!(piece_len > 0, "pieces of no elements");
        let n_elems = out.len();
        let out = DisjointMut::new(out);
        self.run(n_elems.div_ceil(piece_len), &|index| {
            let start = index * piece_len;
            // SAFETY: pieces of different indices do not overlap, and each index runs once.
            f(index, unsafe {
                out.slice(start..n_elems.min(start + piece_len))
            });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        for worker in self.workers.drain(..) {
            // A worker catches the panics of chunks, so it ends normally.
            let _ = worker.join();
        }
    }
}

/// Keeps a pool's workers awake; see [`Pool::enter`].
pub struct Hot<'a> {
    pool: &'a Pool,
}

impl Drop for Hot<'_> {
    fn drop(&mut self) {
        self.pool.shared.hot.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PoolState {
    /// Wakes sleepers until `n` workers are awake.
    fn wake(&self, n: usize) {
        for berth in self.berths.iter().take(n) {
            if berth.parked.load(Ordering::SeqCst)
                && berth.parked.swap(false, Ordering::SeqCst)
                && let Some(thread) = berth.thread.get()
            {
                thread.unpark();
            }
        }
    }

    /// The caller's end of a region: returns once the closed gate is empty.
    fn wait_until_empty(&self) {
        let is_empty = || self.gate.is_empty();
        if self
            .waiter
            .spin_until(&self.caller_patience, is_empty, || false)
        {
            return;
        }
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        self.caller_parked.store(true, Ordering::SeqCst);
        while !self.gate.is_empty() {
            std::thread::park();
        }
        self.caller_parked.store(false, Ordering::SeqCst);
    }

    /// The last worker out of a closed gate: wakes the caller if it sleeps.
    fn wake_caller(&self) {
        if self.caller_parked.load(Ordering::SeqCst)
            && let Some(caller) = self
                .caller
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
        {
            caller.unpark();
        }
    }

    /// Waits until a region that `served` has not seen is open, or for a reason to look again.
    fn idle(&self, berth: &Berth, served: u32) {
        let due = || self.gate.is_new(served) || self.stopping.load(Ordering::SeqCst);
        let is_hot = || self.hot.load(Ordering::Relaxed) > 0;
        if self.waiter.spin_until(&berth.patience, due, is_hot) {
            return;
        }
        berth.parked.store(true, Ordering::SeqCst);
        if !due() {
            std::thread::park();
        }
        berth.parked.store(false, Ordering::SeqCst);
    }
}

/// The life of worker `index`.
fn serve(shared: &PoolState, index: usize) {
    let berth = &shared.berths[index];
    berth.thread.get_or_init(std::thread::current);
    let mut served = 0;
    while !shared.stopping.load(Ordering::SeqCst) {
        if shared.gate.enter(&mut served) {
            // SAFETY: this thread is inside the gate: the job was written before the gate opened
            // and stays until it is closed and empty.
            if let Some(job) = unsafe { *shared.job.get() } {
                shared.chunks.work(job.n_chunks, job.f);
            }
            if shared.gate.leave() {
                shared.wake_caller();
            }
        } else {
            shared.idle(berth, served);
        }
    }
}
