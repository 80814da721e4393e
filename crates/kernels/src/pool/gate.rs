//! The gate of a parallel region: who may enter, who is inside.

use std::sync::atomic::{AtomicU64, Ordering};

/// The epoch (high 32 bits), whether it is open (bit 31) and how many are inside (low 31 bits), in
/// one word. So entering and closing cannot interleave.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Gate(AtomicU64);

const OPEN: u64 = 1 << 31;
const ENTERED: u64 = OPEN - 1;

fn epoch(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Gate {
    /// Opens the next epoch. Only for the owner of the region, with the gate closed and empty;
    /// everything it wrote before is visible to those who enter.
    pub(super) fn open(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (OPEN | ENTERED), 0, "a region opened inside another");
        let next = u64::from(epoch(word).wrapping_add(1)) << 32;
        self.0.store(next | OPEN, Ordering::SeqCst);
    }

    /// Closes the gate to new threads.
    pub(super) fn close(&self) {
        self.0.fetch_and(!OPEN, Ordering::AcqRel);
    }

    /// Whether a closed gate has nobody inside; the writes of threads that left are then visible.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst) & (OPEN | ENTERED) == 0
    }

    /// Whether the gate is open for an epoch other than `served`.
    pub(super) fn is_new(&self, served: u32) -> bool {
        let word = self.0.load(Ordering::SeqCst);
        word & OPEN != 0 && epoch(word) != served
    }

    /// Enters an open gate whose epoch is not `served`, and sets `served` to it. The epoch wraps
    /// after 2³² regions: a worker that slept through exactly that many misses one region, which
    /// costs time, not correctness.
    pub(super) fn enter(&self, served: &mut u32) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        while word & OPEN != 0 && epoch(word) != *served {
            match self
                .0
                .compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    *served = epoch(word);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        false
    }

    /// Leaves; true for the last one out of a closed gate.
    pub(super) fn leave(&self) -> bool {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        before & (OPEN | ENTERED) == 1
    }
}
