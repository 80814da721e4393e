//! Waiting: spinning for a declared time. The pool itself does the sleeping.
//!
//! No thread yields. To Linux's scheduler, a thread that yields has used up its time slice. Beside a busy process it is charged for
//! milliseconds that it did not run, and a thread that waits for a region yields often. A thread that sleeps keeps its claim.
//!
//! No thread spins in vain for long either: the thread it waits for may need its core.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many times as long a worker spins inside [`super::Pool::enter`]: a step's serial parts are seldom longer. Beside a busy
/// process it is a small part of a time slice.
const HOT_FACTOR: u32 = 4;

/// Checks between two readings of the clock: a reading costs about as much as one pause.
const LOOKS: usize = 16;

/// Times in a row that a thread spins in vain before it seldom spins.
const FAILURES: u32 = 2;

/// After that a thread spins once in this many waits, to see whether the machine is its own again.
const TRIAL: u32 = 16;

/// The waiting policy of a pool.
pub(super) struct Waiter {
    /// Time to spin before sleeping.
    pub(super) spin: Duration,
}

/// A thread's record of consecutive waits in vain, with or without spinning.
#[derive(Default)]
pub(super) struct SpinWait(AtomicU32);

impl Waiter {
    /// Spins; true as soon as `ready`, false when it is time to sleep: later while `is_hot`.
    pub(super) fn spin_until(
        &self,
        patience: &SpinWait,
        ready: impl Fn() -> bool,
        is_hot: impl Fn() -> bool,
    ) -> bool {
        let failures = patience.0.load(Ordering::Relaxed);
        let is_trial = failures < FAILURES || failures.is_multiple_of(TRIAL);
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    patience.0.store(0, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            let spun = start.elapsed();
            let is_over = spun >= self.spin && (spun >= HOT_FACTOR * self.spin || !is_hot());
            if !is_trial || is_over {
                patience
                    .0
                    .store(failures.wrapping_add(1), Ordering::Relaxed);
                return ready();
            }
        }
    }
}
