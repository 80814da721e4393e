//! Work in flight, and its outcome.

use super::buffer::ObjectPart;
use super::inject::Wrong;
use super::loaded::{BoardProgram, Commands};
use crate::driver::{Driver, DriverError};
use crate::program;
use millrace_npu::{Buffer, Completion, DeviceError, ErrorPlace, LoadedProgram};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Content of the last bytes of every task's output before it runs. As a 32-bit integer it is beyond any sum of
/// products of bytes with k up to 16,384. As a float of 32 or 16 bits it is a NaN with a payload that no arithmetic
/// makes. As a 16-bit integer it is beyond any sum of 4-bit products with k up to 500; for larger k a match is a
/// coincidence of 128 bits.
const MARK: [u8; 16] = 0x7fa5_7fa5_7fa5_7fa5_7fa5_7fa5_7fa5_7fa5_u128.to_le_bytes();

/// The kernel resets a job after 500 ms. A wait this long that left a mark means a reset.
const RESET_NS: i64 = 450_000_000;

/// Longest wait for a job, with a reset and the jobs before it.
const JOB_WAIT_NS: i64 = 2_000_000_000;

type JobResult = Result<Completion, DeviceError>;

/// Submitted work with all it needs.
pub(super) struct PendingWork {
    pub(super) program: Arc<dyn LoadedProgram>,
    pub(super) buffers: Vec<Arc<Buffer>>,
    pub(super) driver: Arc<Driver>,
    pub(super) c: Arc<Vec<ObjectPart>>,
    /// Jobs that were submitted, by worker.
    pub(super) n_jobs: BTreeMap<usize, i64>,
    pub(super) started_ns: i64,
    /// A SUBMIT that failed; jobs after it were not submitted.
    pub(super) failed: Option<DriverError>,
    /// Its planned corruption.
    pub(super) wrong: Option<Wrong>,
    pub(super) _commands: Arc<Commands>,
    pub(super) _parts: [Arc<Vec<ObjectPart>>; 3],
}

enum PendingState {
    Running(Box<PendingWork>),
    Ended(JobResult),
}

/// Work by its fence.
pub(super) struct Pending(Mutex<PendingState>);

impl Pending {
    pub(super) fn new(work: PendingWork) -> Pending {
        Pending(Mutex::new(PendingState::Running(Box::new(work))))
    }

    /// Whether it is unfinished and works on one of the buffers.
    pub(super) fn uses(&self, buffers: &[Arc<Buffer>]) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            PendingState::Running(work) => {
                let mut own = work.buffers.iter();
                own.any(|own| buffers.iter().any(|other| Arc::ptr_eq(own, other)))
            }
            PendingState::Ended(_) => false,
        }
    }

    /// Waits for its end, checks its outputs, and releases all it held.
    pub(super) fn finish(&self, device: &str) -> JobResult {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let PendingState::Running(work) = &*state {
            let outcome = work.outcome(device);
            let settled = work.settle_wrong();
            *state = PendingState::Ended(outcome.and_then(|done| settled.map(|()| done)));
        }
        match &*state {
            PendingState::Ended(outcome) => outcome.clone(),
            PendingState::Running(_) => Err(DeviceError::UnknownFence),
        }
    }
}

/// Marks the end of every task's output.
pub(super) fn mark(program: &BoardProgram, c: &[ObjectPart]) -> Result<(), DriverError> {
    for part in c {
        part.bo.touch(|bytes| {
            for end in ends(program, part) {
                bytes[end..end + MARK.len()].copy_from_slice(&MARK);
            }
        })?;
    }
    Ok(())
}

/// Positions of the last bytes of outputs of the part's worker, in its object.
fn ends<'p>(program: &'p BoardProgram, part: &'p ObjectPart) -> impl Iterator<Item = usize> + 'p {
    tasks(program, part.at.worker).map(|(_, _, end)| (end - part.at.range.start) as usize)
}

/// Job, task and first marked byte of slot `c` for all tasks of a worker.
fn tasks(program: &BoardProgram, worker: usize) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
    let jobs = program.jobs.iter().enumerate();
    let jobs = jobs.filter(move |(_, job)| job.worker == worker);
    jobs.flat_map(|(at, job)| {
        let writes = job.writes.iter().enumerate();
        // Every output is whole atoms of 16 bytes.
        writes.map(move |(task, range)| (at, task, range.end - MARK.len() as u64))
    })
}

impl PendingWork {
    /// Ends the planned corruption.
    fn settle_wrong(&self) -> Result<(), DeviceError> {
        let loaded = self.program.as_any().downcast_ref::<BoardProgram>();
        match (&self.wrong, loaded) {
            (Some(wrong), Some(loaded)) => wrong.settle(loaded, &self.buffers[program::C]),
            _ => Ok(()),
        }
    }

    /// Waits for all workers. The outcome is the first fault, in the order of jobs.
    fn outcome(&self, device: &str) -> JobResult {
        let mut unwritten = None;
        let mut error = self.failed;
        for part in self.c.iter() {
            let jobs = self.n_jobs.get(&part.at.worker).copied().unwrap_or(0);
            if jobs == 0 {
                continue;
            }
            match self.unwritten(part, jobs) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    unwritten = Some(unwritten.map_or(found, |before| found.min(before)));
                }
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        let node = self.driver.node(0);
        let duration_ns = (node.now_ns() - self.started_ns).max(0);
        if let Some((job, task, worker)) = unwritten {
            return Err(self.failure(job, task, worker, duration_ns));
        }
        match error {
            None => Ok(Completion {
                duration_ns: duration_ns as u64,
                provenance: node.provenance(),
                trace: None,
                energy: None,
            }),
            Some(error) => Err(self.driver_failure(error, device, duration_ns)),
        }
    }

    /// The first task of the part's worker that left its mark.
    fn unwritten(
        &self,
        part: &ObjectPart,
        n_jobs: i64,
    ) -> Result<Option<(usize, usize, usize)>, DriverError> {
        let Some(program) = self.program.as_any().downcast_ref::<BoardProgram>() else {
            return Ok(None);
        };
        let worker = part.at.worker;
        let deadline = self.driver.node(worker).now_ns() + n_jobs * JOB_WAIT_NS;
        part.bo.touch_by(deadline, |bytes| {
            let mut tasks = tasks(program, worker);
            let left = tasks.find(|&(_, _, end)| {
                let at = (end - part.at.range.start) as usize;
                bytes[at..at + MARK.len()] == MARK
            });
            left.map(|(job, task, _)| (job, task, worker))
        })
    }

    fn place(&self) -> ErrorPlace {
        ErrorPlace::of(self.program.name())
    }

    fn failure(&self, job: usize, task: usize, worker: usize, waited_ns: i64) -> DeviceError {
        let mut place = self.place();
        let workers = self.driver.n_workers();
        place.launch = Some(format!(
            "job {job}, task {task} of worker {worker} of {workers}"
        ));
        place.slot = Some("c".into());
        let mut log = self.driver.node(worker).log();
        log.truncate(4);
        let log = match log.is_empty() {
            true => "; the kernel's log (`dmesg`) may say why".to_owned(),
            false => format!("; the kernel says: {}", log.join("; ")),
        };
        let place = Box::new(place);
        match waited_ns >= RESET_NS {
            true => DeviceError::Timeout {
                place,
                after_ns: 500_000_000,
                reason: format!("the kernel reset the job and its output is not written{log}"),
            },
            false => DeviceError::Fault {
                place,
                reason: format!("the task ended without writing its output{log}"),
            },
        }
    }

    fn driver_failure(&self, error: DriverError, device: &str, waited_ns: i64) -> DeviceError {
        if error.is_gone() {
            return DeviceError::Lost {
                device: device.to_owned(),
                place: Some(Box::new(self.place())),
            };
        }
        if error.errno == Errno::TIMEDOUT {
            return DeviceError::Timeout {
                place: Box::new(self.place()),
                after_ns: waited_ns as u64,
                reason: "the kernel did not end its jobs".into(),
            };
        }
        error.to_device(device)
    }
}
