//! The chunks of the open region: handed out one by one.

use super::CachePadded;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Remaining chunks of a region, and its first panic.
#[derive(Default)]
pub(super) struct Chunks {
    /// Next chunk to hand out; on its own cache line, since every thread writes it.
    next: CachePadded<AtomicUsize>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Chunks {
    /// Starts over, while no thread works.
    pub(super) fn begin(&self) {
        self.next.0.store(0, Ordering::Relaxed);
    }

    /// Processes chunks until none are left. A panic ends the region early and is kept for the caller.
    pub(super) fn work(&self, n_chunks: usize, f: &(dyn Fn(usize) + Sync)) {
        let chunks = AssertUnwindSafe(|| {
            loop {
                let chunk = self.next.0.fetch_add(1, Ordering::Relaxed);
                if chunk >= n_chunks {
                    return;
                }
                f(chunk);
            }
        });
        if let Err(payload) = catch_unwind(chunks) {
            self.next.0.store(n_chunks, Ordering::Relaxed);
            self.panic
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(payload);
        }
    }

    /// The first panic of the region that has ended.
    pub(super) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
