//! Waiting: spinning for a declared time. Parking is the pool's.
//!
//! Nobody yields. To the scheduler of Linux, a thread that yields has used up its time slice: beside a busy process it is charged for
//! milliseconds that it did not run, and a thread that waits for a region yields often. One that sleeps keeps its claim.

use std::time::{Duration, Instant};

/// How many times as long a worker spins inside [`super::Pool::enter`]: a step's serial parts are seldom longer, and beside a busy
/// process it is little of a time slice.
const HOT_FACTOR: u32 = 4;

/// Looks between two readings of the clock: a reading costs about as much as one pause.
const LOOKS: usize = 16;

/// The waiting policy of a pool.
pub(super) struct Waiter {
    /// Time to spin before sleeping.
    pub(super) spin: Duration,
}

impl Waiter {
    /// Spins; true as soon as `ready`, false when patience ends. While `is_hot` there is more of it.
    pub(super) fn spin_until(&self, ready: impl Fn() -> bool, is_hot: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let spun = start.elapsed();
            if spun >= self.spin && (spun >= HOT_FACTOR * self.spin || !is_hot()) {
                return ready();
            }
        }
    }
}
