//! An RK3588 behind the device contract: on Linux's rocket driver or on the virtual board, by the same code.
//!
//! The driver hides failures: SUBMIT answers success for jobs it ignores, and waiting for a job that was reset
//! succeeds. So before every run the last bytes of each task's output are overwritten with a pattern that no result
//! has, and checked afterwards. A pattern that is still there is an error that names job and task.

mod buffer;
mod inject;
mod link;
mod loaded;
mod pending;

use crate::driver::OpenError;
use crate::driver::{self, Driver, DriverError};
use crate::machine::Machine;
use crate::profile::Profile;
use crate::program::{self, Program, TARGET};
use crate::rocket::Host;
use crate::rocket::sys::Linux;
use crate::simulate::{Board, BoardOptions};
use crate::verify;
use buffer::RkBuffer;
use inject::InjectionRequest;
use link::{Files, Link};
use loaded::BoardProgram;
use millrace_npu::device::unique_number;
use millrace_npu::held::{DeviceUsage, Holdings};
use millrace_npu::inject::{Inject, InjectionEvent};
use millrace_npu::{
    BoundProgram, Buffer, Completion, Container, Device, DeviceError, DeviceInfo, Fence,
    LoadedProgram, Role, Usage,
};
use pending::{Pending, PendingWork};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An RK3588's NPU.
pub struct RkDevice {
    number: u64,
    info: DeviceInfo,
    name: Arc<str>,
    machine: Machine,
    holdings: Arc<Holdings>,
    link: Link,
    asked: InjectionRequest,
    /// Work whose fence still exists, by fence. Also the order of submissions.
    pending: Arc<Mutex<DeviceSubmission>>,
}

#[derive(Default)]
struct DeviceSubmission {
    next: u64,
    work: BTreeMap<u64, Arc<Pending>>,
}

/// Most work in flight; the oldest is then waited for, and its outcome kept for its fence.
const MAX_PENDING: usize = 64;

fn lock(submitted: &Mutex<DeviceSubmission>) -> MutexGuard<'_, DeviceSubmission> {
    submitted.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that buffers may take by default: the free part on boards of 8 GiB.
const MEMORY_BYTES: u64 = 6 << 30;

impl RkDevice {
    /// The NPU of this machine; where no node exists, a virtual board. Its name says which.
    ///
    /// # Errors
    /// Where a node exists and cannot be used.
    pub fn open(n_workers: usize) -> Result<RkDevice, OpenError> {
        RkDevice::open_as(&Machine::rk3588(), &Profile::rocket_200(), n_workers)
    }

    /// The same, where a virtual board has those facts and that clock.
    ///
    /// # Errors
    /// As [`open`](RkDevice::open).
    pub(crate) fn open_as(
        machine: &Machine,
        profile: &Profile,
        n_workers: usize,
    ) -> Result<RkDevice, OpenError> {
        if Linux.paths().is_empty() {
            let board = Board::new(BoardOptions {
                machine: machine.clone(),
                profile: profile.clone(),
                ..BoardOptions::default()
            });
            return RkDevice::with_host(&board, machine.clone(), n_workers);
        }
        RkDevice::with_host(&Linux, machine.clone(), n_workers)
    }

    /// An NPU of a host, opened so many times: a program of so many workers keeps as many cores busy, but no more than
    /// exist.
    ///
    /// # Errors
    /// [`OpenError`]: why not, and what to do.
    pub fn with_host(
        host: &dyn Host,
        machine: Machine,
        n_workers: usize,
    ) -> Result<RkDevice, OpenError> {
        let driver = Driver::open(host, n_workers)?;
        let name = format!("RK3588 NPU ({}, {} workers)", host.describe(), n_workers);
        let max_buffer_bytes = machine.domain_bytes - 2 * machine.page_bytes;
        let info = DeviceInfo {
            name: name.clone(),
            target: TARGET.into(),
            memory_bytes: MEMORY_BYTES,
            max_buffer_bytes: max_buffer_bytes.min(MEMORY_BYTES),
            coherent: false,
            provenance: driver.node(0).provenance(),
        };
        Ok(RkDevice {
            number: unique_number(),
            info,
            link: Link::new(host.shared(), driver, name.as_str().into()),
            asked: InjectionRequest::default(),
            name: name.into(),
            machine,
            holdings: Holdings::new(MEMORY_BYTES),
            pending: Arc::default(),
        })
    }

    /// The same device with so much memory for buffers.
    #[must_use]
    pub fn with_memory(mut self, memory_bytes: u64) -> RkDevice {
        self.info.memory_bytes = memory_bytes;
        self.info.max_buffer_bytes = self.info.max_buffer_bytes.min(memory_bytes);
        self.holdings = Holdings::new(memory_bytes);
        self
    }

    /// Workers it was opened with.
    pub fn n_workers(&self) -> usize {
        self.link.n_workers()
    }

    fn loaded<'p>(
        &self,
        program: &'p dyn LoadedProgram,
        files: &Files,
    ) -> Result<&'p BoardProgram, DeviceError> {
        let foreign = || DeviceError::ForeignProgram(program.name().to_owned());
        let loaded = program.as_any().downcast_ref::<BoardProgram>();
        let loaded = loaded.ok_or_else(foreign)?;
        match loaded.owner == files.owner {
            true => Ok(loaded),
            false => Err(self.link.not_own(loaded.owner, "a program", foreign())),
        }
    }

    fn error(&self, error: DriverError) -> DeviceError {
        error.to_device(&self.name)
    }

    fn own<'b>(&self, buffer: &'b Buffer, files: &Files) -> Result<&'b RkBuffer, DeviceError> {
        let object = buffer.object::<RkBuffer>();
        let object = object.ok_or(DeviceError::ForeignBuffer)?;
        let foreign = DeviceError::ForeignBuffer;
        match object.owner == files.owner {
            true => Ok(object),
            false => Err(self.link.not_own(object.owner, "a buffer", foreign)),
        }
    }

    fn refused(&self, program: &str, reason: String) -> DeviceError {
        DeviceError::Refused {
            program: program.to_owned(),
            reason,
        }
    }

    /// Ends work that uses one of the buffers, and the oldest where too much is in flight.
    fn settle(&self, submitted: &DeviceSubmission, buffers: &[Arc<Buffer>]) {
        let too_many = submitted.work.len().saturating_sub(MAX_PENDING);
        for (at, pending) in submitted.work.values().enumerate() {
            if at < too_many || pending.uses(buffers) {
                // Kept for the caller that waits.
                let _outcome = self.link.noticed(pending.finish(&self.name));
            }
        }
    }

    /// Marks the outputs and submits. Gives the submitted work even where a later job fails. Commands are written for
    /// addresses once ([`BoardProgram::bind`]): a buffer may have moved since it was bound, because programs split
    /// buffers over workers differently.
    fn start(
        &self,
        BoundProgram {
            program, buffers, ..
        }: &BoundProgram,
        files: Files,
    ) -> Result<PendingWork, DeviceError> {
        let loaded = self.loaded(&**program, &files)?;
        let driver = files.driver.clone();
        let place = |slot: usize| {
            let object = self.own(&buffers[slot], &files)?;
            let parts = object.place(&driver, &loaded.parts[slot]);
            parts.map_err(|e| self.error(e))
        };
        let parts = [place(program::A)?, place(program::B)?, place(program::C)?];
        let bound = (loaded.bind(&driver, &parts)).map_err(|e| self.error(e))?;
        let wrong = self.asked.corrupt(self, loaded, (buffers, &files))?;
        pending::mark(loaded, &parts[program::C]).map_err(|e| self.error(e))?;
        self.own(&buffers[program::C], &files)?.device_writes();
        if let Some(board) = self.link.host().board() {
            self.asked.plan(board, loaded);
        }
        let mut work = PendingWork {
            program: program.clone(),
            buffers: buffers.clone(),
            c: parts[program::C].clone(),
            n_jobs: BTreeMap::new(),
            started_ns: driver.node(0).now_ns(),
            driver: driver.clone(),
            failed: None,
            wrong,
            _commands: bound.commands,
            _parts: parts,
        };
        for (worker, job) in bound.jobs {
            if let Err(error) = driver::submit(&**driver.node(worker), &[job]) {
                work.failed = Some(error);
                break;
            }
            *work.n_jobs.entry(worker).or_insert(0) += 1;
        }
        Ok(work)
    }
}

impl Device for RkDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn held(&self) -> DeviceUsage {
        self.holdings.held()
    }

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        if size_bytes == 0 {
            return Err(DeviceError::EmptyBuffer);
        }
        let max_bytes = self.info.max_buffer_bytes;
        if size_bytes > max_bytes && max_bytes < self.info.memory_bytes {
            return Err(DeviceError::BufferTooLarge {
                asked_bytes: size_bytes,
                max_bytes,
            });
        }
        let files = self.link.files()?;
        if self.asked.take(InjectionEvent::Allocation).is_some() {
            return Err(DeviceError::NotPinned {
                asked_bytes: size_bytes,
                reason: "injected".to_owned(),
            });
        }
        let lease = self.holdings.buffer(size_bytes)?;
        let object = RkBuffer::new(files.owner, self.name.clone(), size_bytes);
        Ok(Arc::new(Buffer::new(Box::new(object), usage).leased(lease)))
    }

    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        if container.target() != TARGET {
            return Err(DeviceError::Target {
                expected: TARGET.into(),
                found: container.target().to_owned(),
            });
        }
        let files = self.link.files()?;
        let name = container.name();
        let refused = |reason: String| self.refused(name, reason);
        if self.asked.take(InjectionEvent::Load).is_some() {
            return Err(refused("injected".to_owned()));
        }
        let program =
            Program::decode(name, container.payload()).map_err(|e| refused(e.to_string()))?;
        let verified = verify::program(&program, &self.machine).map_err(|refusals| {
            let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            refused(lines.join("; "))
        })?;
        let mut slots = (program.slots(&self.machine)).map_err(|e| refused(e.to_string()))?;
        // Weights may be written once, or before every call.
        if container.slots().get(program::B).map(|b| b.role) == Some(Role::Input) {
            slots[program::B].role = Role::Input;
        }
        if slots != container.slots() {
            return Err(refused(
                "its slots are not those that its head describes; compile it again".into(),
            ));
        }
        let workers = self.n_workers();
        if program
            .jobs
            .iter()
            .any(|job| job.worker as usize >= workers)
        {
            return Err(refused(format!(
                "it is for {} workers, the device was opened with {workers}",
                program.tiling.workers
            )));
        }
        let lease = self.holdings.program();
        Ok(Arc::new(BoardProgram::new(
            files.owner,
            &program,
            slots,
            &verified,
            lease,
        )))
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<BoundProgram, DeviceError> {
        let files = self.link.files()?;
        self.loaded(&**program, &files)?;
        for buffer in buffers {
            self.own(buffer, &files)?;
        }
        BoundProgram::new(program, buffers)
    }

    fn submit(&self, bound: &BoundProgram) -> Result<Fence, DeviceError> {
        let mut submitted = lock(&self.pending);
        self.settle(&submitted, &bound.buffers);
        let files = self.link.files()?;
        let work = self.link.noticed(self.start(bound, files))?;
        let id = submitted.next;
        submitted.next += 1;
        submitted.work.insert(id, Arc::new(Pending::new(work)));
        let pending = self.pending.clone();
        // Work that still runs keeps its objects: the kernel holds those of its jobs.
        Ok(Fence::new(self.number, id, move || {
            let forgotten = lock(&pending).work.remove(&id);
            drop(forgotten);
        }))
    }

    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError> {
        let id = fence.id(self.number)?;
        let pending = lock(&self.pending).work.remove(&id);
        let pending = pending.ok_or(DeviceError::UnknownFence)?;
        self.link.noticed(pending.finish(&self.name))
    }

    fn injector(&self) -> Option<&dyn Inject> {
        self.link.host().board().map(|_| self as &dyn Inject)
    }
}
