//! One submission, with the failures to inject into it.

use super::lock;
use crate::inject::{self, Corruption, CorruptionCounts, Injection};
use crate::{Role, Slot};
use std::sync::Mutex;

/// One submission to a [`Simulator`](super::Simulator).
pub struct SimulatorJob<'a> {
    slots: &'a [Slot],
    /// Slots whose content is to be wrong.
    wrong: Vec<(usize, Corruption)>,
    corrupted: &'a Mutex<CorruptionCounts>,
    stop_after: Option<u64>,
}

impl<'a> SimulatorJob<'a> {
    pub(super) fn new(
        slots: &'a [Slot],
        wrong: Vec<(usize, Corruption)>,
        corrupted: &'a Mutex<CorruptionCounts>,
        injected: Option<&Injection>,
    ) -> SimulatorJob<'a> {
        SimulatorJob {
            slots,
            wrong,
            corrupted,
            stop_after: injected.map(|injection| match injection {
                Injection::StopAfter(n_units) => *n_units,
                _ => 0,
            }),
        }
    }

    /// Number of units of work, as the device defines them, after which the run is to stop. A run with fewer ends
    /// normally.
    pub fn stop_after(&self) -> Option<u64> {
        self.stop_after
    }

    /// Whether [`wrote`](SimulatorJob::wrote) has any effect. If not, a simulator need not determine the slots that
    /// were written.
    pub fn is_watching(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Reports after each launch that it wrote these slots.
    pub fn wrote(&self, written: &[usize], content: &mut [Vec<u8>]) {
        for &(slot, how) in self.wrong.iter().filter(|(slot, _)| written.contains(slot)) {
            self.corrupt(slot, how, &mut content[slot]);
        }
    }

    /// Corrupts the slots that are read; gives the static content to restore.
    pub(super) fn before(&self, content: &mut [Vec<u8>]) -> Vec<(usize, Vec<u8>)> {
        let mut kept = Vec::new();
        for &(slot, how) in &self.wrong {
            let role = self.slots[slot].role;
            if role == Role::Static {
                kept.push((slot, content[slot].clone()));
            }
            if matches!(role, Role::Static | Role::Input) {
                self.corrupt(slot, how, &mut content[slot]);
            }
        }
        kept
    }

    fn corrupt(&self, slot: usize, how: Corruption, bytes: &mut [u8]) {
        let changed = inject::corrupt(how, &self.slots[slot], bytes);
        let mut corrupted = lock(self.corrupted);
        corrupted.n_applied += 1;
        corrupted.n_changed += u64::from(changed);
    }
}
