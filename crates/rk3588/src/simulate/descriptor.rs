//! An open file of the virtual kernel.

use super::job::{self, BoardJob, TaskStep};
use super::memory::{Bo, Fence, Space};
use super::{BoardMode, BoardState, Inner};
use crate::rocket::{CreatedBo, JobArgs, Node};
use millrace_accel::DriverVersion;
use millrace_npu::Provenance;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A job that a thread computes.
struct DescriptorJob {
    steps: Vec<TaskStep>,
    fence: Arc<Fence>,
}

/// An open file. A separate thread computes its jobs in order, as they run on one core.
pub(super) struct Descriptor {
    board: Arc<Inner>,
    worker: u64,
    space: Mutex<Space>,
    queue: Option<Sender<DescriptorJob>>,
    thread: Option<JoinHandle<()>>,
    was_interrupted: AtomicBool,
}

impl Descriptor {
    pub(super) fn open(board: Arc<Inner>, worker: u64) -> Result<Descriptor, Errno> {
        let (queue, jobs) = channel::<DescriptorJob>();
        let thread = std::thread::Builder::new()
            .name(format!("rk3588 worker {worker}"))
            .spawn(move || {
                for queued in jobs {
                    job::run(&queued.steps, &queued.fence);
                }
            })
            .map_err(|_| Errno::NOMEM)?;
        Ok(Descriptor {
            board,
            worker,
            space: Mutex::default(),
            queue: Some(queue),
            thread: Some(thread),
            was_interrupted: AtomicBool::new(false),
        })
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The board's state, where the device is there.
    fn state(&self) -> Result<MutexGuard<'_, BoardState>, Errno> {
        let state = self.board.lock();
        state.present()?;
        Ok(state)
    }

    fn bo(&self, handle: u32) -> Result<Arc<Bo>, Errno> {
        self.space().get(handle).cloned().ok_or(Errno::INVAL)
    }

    /// One job. In strict mode its problems are an error.
    fn submit_job(&self, state: &mut BoardState, args: &JobArgs) -> Result<(), Errno> {
        let options = &self.board.options;
        let strict = options.mode == BoardMode::Strict;
        let worker = self.worker;
        let mut work = match job::prepare(&self.board, &self.space(), args) {
            Ok(work) => work,
            Err(rejected) => {
                state.log(format!("file {worker}: job ignored: {}", rejected.0));
                return if strict { Err(Errno::INVAL) } else { Ok(()) };
            }
        };
        for problem in &work.problems {
            state.log(format!("file {worker}: {problem}"));
        }
        if strict && !work.problems.is_empty() {
            return Err(Errno::INVAL);
        }
        let number = state.n_jobs;
        if state.faults.gone_at.is_some_and(|gone| number >= gone) {
            state.gone = true;
            return Err(Errno::NODEV);
        }
        state.n_jobs += 1;
        work.inject(number, &state.faults);
        work.cut(
            options.machine.job_timeout_ns as f64,
            options.profile.core_bytes_per_ns(),
        );
        if work.hangs {
            state.log(format!("file {worker}: job {number} will be reset"));
        }
        self.queue(state, work)
    }

    fn queue(&self, state: &mut BoardState, work: BoardJob) -> Result<(), Errno> {
        let ready_ns = state.clock_ns;
        let id = (state.schedule).submit(self.worker, ready_ns, &work.costs, work.hangs);
        let fence = Fence::new(id);
        for bo in &work.out {
            bo.set_fence(fence.clone());
        }
        let queued = DescriptorJob {
            steps: work.steps,
            fence,
        };
        let queue = self.queue.as_ref().ok_or(Errno::NODEV)?;
        queue.send(queued).map_err(|_| Errno::NODEV)
    }

    /// Waits for a fence on the board's clock, then for its numbers.
    fn wait(&self, fence: &Fence, deadline_ns: i64) -> Result<(), Errno> {
        let mut state = self.state()?;
        let mut end = (fence.end_ns.lock()).unwrap_or_else(PoisonError::into_inner);
        if end.is_none() {
            let limit = (deadline_ns as f64).max(state.clock_ns);
            let ran = state.schedule.run_until(fence.job, limit);
            if ran.is_some() {
                state.schedule.finish(fence.job);
            }
            *end = ran.map(|ran| ran.end_ns);
        }
        let Some(end_ns) = *end else {
            if deadline_ns == 0 {
                return Err(Errno::BUSY);
            }
            state.clock_ns = state.clock_ns.max(deadline_ns as f64);
            return Err(Errno::TIMEDOUT);
        };
        state.clock_ns = state.clock_ns.max(end_ns);
        drop((state, end));
        fence.wait_computed();
        Ok(())
    }
}

/// Linux counts time left in ticks of 4 ms.
const JIFFY_NS: f64 = 4e6;

impl Node for Descriptor {
    fn version(&self) -> Result<DriverVersion, Errno> {
        let _state = self.state()?;
        Ok(DriverVersion {
            name: self.board.options.driver_name.clone(),
            description: "virtual RK3588 NPU".into(),
            numbers: (0, 0, 0),
        })
    }

    fn create_bo(&self, size: u32) -> Result<CreatedBo, Errno> {
        let mut state = self.state()?;
        if size == 0 {
            return Err(Errno::INVAL);
        }
        let machine = &self.board.options.machine;
        let size = u64::from(size).next_multiple_of(machine.page_bytes);
        let domain_bytes = state.faults.domain_bytes.unwrap_or(machine.domain_bytes);
        let (handle, dma_address) = self.space().create(size, domain_bytes)?;
        state.n_bos += 1;
        Ok(CreatedBo {
            handle,
            dma_address,
            offset: u64::from(handle) << 32,
        })
    }

    fn submit(&self, jobs: &[JobArgs]) -> Result<(), Errno> {
        let mut state = self.state()?;
        state.clock_ns += self.board.options.profile.submit_ns;
        let now = state.clock_ns;
        state.schedule.advance(now);
        jobs.iter()
            .try_for_each(|job| self.submit_job(&mut state, job))
    }

    fn prep_bo(&self, handle: u32, deadline_ns: i64) -> Result<i32, Errno> {
        let interrupts = self.state()?.faults.interrupts;
        if interrupts && !self.was_interrupted.fetch_xor(true, SeqCst) {
            return Err(Errno::INTR);
        }
        let bo = self.bo(handle)?;
        if let Some(fence) = bo.fence() {
            self.wait(&fence, deadline_ns)?;
        }
        bo.hold(true);
        let left_ns = deadline_ns as f64 - self.state()?.clock_ns;
        match self.board.options.prep_answers_time_left {
            true => Ok((left_ns / JIFFY_NS).clamp(1.0, f64::from(i32::MAX)) as i32),
            false => Ok(0),
        }
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        let _state = self.state()?;
        self.bo(handle)?.hold(false);
        Ok(())
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        // A file closes its objects even when the device is gone.
        self.space().close(handle)?;
        self.board.lock().n_bos -= 1;
        Ok(())
    }

    fn access(&self, bo: &CreatedBo, touch: &mut dyn FnMut(&mut [u8])) -> Result<(), Errno> {
        let object = self.bo(bo.handle)?;
        if !object.host_holds() {
            let line = format!(
                "file {}: object {} touched without PREP_BO",
                self.worker, bo.handle
            );
            self.board.lock().log(line);
            return Err(Errno::ACCESS);
        }
        let mut memory = object
            .memory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        touch(&mut memory);
        Ok(())
    }

    fn now_ns(&self) -> i64 {
        self.board.lock().clock_ns as i64
    }

    fn provenance(&self) -> Provenance {
        Provenance::Modelled {
            profile: self.board.options.profile.name.clone(),
            error: self.board.options.profile.error,
        }
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.board.lock().log)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was printed by its thread.
            let _ = thread.join();
        }
        let left = self.space().len() as u64;
        self.board.lock().n_bos -= left;
    }
}
