//! Deliberate failures: the board's own faults, requested in the words of all devices.

use super::RkDevice;
use super::link::Files;
use super::loaded::BoardProgram;
use crate::program;
use crate::simulate::{Board, TaskAt};
use millrace_npu::inject::{
    self, Corruption, CorruptionCounts, Inject, Injection, InjectionEvent, Injections,
};
use millrace_npu::{Buffer, DeviceError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The failures that were asked for.
#[derive(Default)]
pub(super) struct InjectionRequest {
    waiting: Mutex<Injections>,
    corrupted: Arc<Mutex<CorruptionCounts>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Corruption that is planned for one run.
pub(super) struct Wrong {
    /// Slots that the program reads, with their content before the run.
    before: Vec<(Arc<Buffer>, Vec<u8>)>,
    /// Corruptions of the result.
    result: Vec<Corruption>,
    corrupted: Arc<Mutex<CorruptionCounts>>,
}

impl InjectionRequest {
    pub(super) fn take(&self, event: InjectionEvent) -> Option<Injection> {
        lock(&self.waiting).take(event)
    }

    /// Plans the requested failure for the board's next submission.
    pub(super) fn plan(&self, board: &Board, loaded: &BoardProgram) {
        let first = board.n_jobs();
        match self.take(InjectionEvent::Submission) {
            Some(Injection::Timeout) => board.change_faults(|faults| faults.hung.push(first)),
            Some(Injection::Lose) => board.change_faults(|faults| faults.gone_at = Some(first)),
            // A task is a unit of work.
            Some(Injection::StopAfter(n)) => {
                let jobs = (first..).zip(&loaded.jobs);
                let tasks = jobs.flat_map(|(job, loaded)| {
                    (0..loaded.writes.len()).map(move |task| TaskAt { job, task })
                });
                let rest: Vec<TaskAt> = tasks.skip(n as usize).collect();
                board.change_faults(|faults| faults.dropped.extend(rest));
            }
            _ => {}
        }
    }

    /// Corrupts slots that the program reads. Gives the work to do after the run.
    pub(super) fn corrupt(
        &self,
        device: &RkDevice,
        loaded: &BoardProgram,
        (buffers, files): (&[Arc<Buffer>], &Files),
    ) -> Result<Option<Wrong>, DeviceError> {
        let asked = lock(&self.waiting).corrupted(&loaded.name, &loaded.slots);
        if asked.is_empty() {
            return Ok(None);
        }
        let mut wrong = Wrong {
            before: Vec::new(),
            result: Vec::new(),
            corrupted: self.corrupted.clone(),
        };
        for (slot, how) in asked {
            if slot == program::C {
                wrong.result.push(how);
                continue;
            }
            let object = device.own(&buffers[slot], files)?;
            let before = object.device_content()?;
            let mut content = before.clone();
            wrong.count(inject::corrupt(how, &loaded.slots[slot], &mut content));
            object.set_device_content(&content)?;
            wrong.before.push((buffers[slot].clone(), before));
        }
        Ok(Some(wrong))
    }
}

impl Wrong {
    fn count(&self, changed: bool) {
        let mut corrupted = lock(&self.corrupted);
        corrupted.n_applied += 1;
        corrupted.n_changed += u64::from(changed);
    }

    /// After the run, restores the slots that were read and corrupts the result.
    pub(super) fn settle(&self, loaded: &BoardProgram, c: &Buffer) -> Result<(), DeviceError> {
        use super::buffer::RkBuffer;
        for (buffer, before) in self.before.iter().rev() {
            if let Some(object) = buffer.object::<RkBuffer>() {
                object.set_device_content(before)?;
            }
        }
        let Some(object) = c.object::<RkBuffer>() else {
            return Ok(());
        };
        for how in &self.result {
            let mut content = object.device_content()?;
            let changed = inject::corrupt(*how, &loaded.slots[program::C], &mut content);
            self.count(changed);
            object.set_device_content(&content)?;
        }
        Ok(())
    }
}

impl Inject for RkDevice {
    fn inject_after(&self, n_passed: u64, injection: Injection) {
        lock(&self.asked.waiting).add(n_passed, injection);
    }

    fn clear(&self) {
        lock(&self.asked.waiting).clear();
        *lock(&self.asked.corrupted) = CorruptionCounts::default();
    }

    fn corrupted(&self) -> CorruptionCounts {
        *lock(&self.asked.corrupted)
    }

    fn revive(&self) {
        if let Some(board) = self.link.host().board() {
            board.set_faults(Default::default());
        }
    }
}
