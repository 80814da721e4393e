//! Waiting: spin, then yield. Parking is the pool's.

use std::time::{Duration, Instant};

/// How long a worker stays awake inside [`super::Pool::enter`] without a region to work on.
pub(super) const HOT_LIMIT: Duration = Duration::from_millis(5);

/// Times the core is offered to others after spinning and before parking.
const YIELDS: usize = 4;

/// Looks between two readings of the clock: a reading costs about as much as one pause.
const LOOKS: usize = 16;

/// The waiting policy of a pool.
pub(super) struct Waiter {
    /// Time to spin before the first yield.
    pub(super) spin: Duration,
}

impl Waiter {
    /// Spins, then yields a few times; true as soon as `ready`, false when patience ends.
    pub(super) fn spin_until(&self, ready: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= self.spin {
                break;
            }
        }
        for _ in 0..YIELDS {
            if ready() {
                return true;
            }
            std::thread::yield_now();
        }
        ready()
    }

    /// Offers the core to others until `ready` (true) or for `limit` (false).
    pub(super) fn yield_until(&self, limit: Duration, ready: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        while !ready() {
            if start.elapsed() >= limit {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}
