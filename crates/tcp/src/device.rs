//! The virtual chip as a [`Device`]: programs are verified, computed, and timed by the model. Times say
//! `modelled(profile)`.

use crate::execute::{self, Fault};
use crate::program::TARGET;
use crate::{Machine, Profile, Program, timing, verify};
use millrace_npu::device::unique_number;
use millrace_npu::held::{Held, Holdings, Lease};
use millrace_npu::ram::RamBuffer;
use millrace_npu::{
    Bound, Buffer, Completion, Container, Device, DeviceError, DeviceInfo, Energy, ErrorPlace,
    Fence, LoadedProgram, Role, Slot, Trace, Usage,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A chip that is not there.
pub struct VirtualDevice {
    info: DeviceInfo,
    number: u64,
    machine: Machine,
    profile: Profile,
    options: execute::Options,
    traces: bool,
    /// One program runs at a time.
    running: Mutex<()>,
    /// Commands after which the next submission stops, if it is to.
    stop_after: Mutex<Option<u64>>,
    next: AtomicU64,
    /// Outcomes whose fence still exists.
    ended: Arc<Mutex<HashMap<u64, Result<Completion, DeviceError>>>>,
    holdings: Arc<Holdings>,
}

/// A verified program.
struct Loaded {
    owner: u64,
    program: Program,
    slots: Vec<Slot>,
    /// Predicted once: times do not depend on data.
    duration_ns: u64,
    trace: Option<Trace>,
    _lease: Lease,
}

impl LoadedProgram for Loaded {
    fn name(&self) -> &str {
        &self.program.name
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VirtualDevice {
    /// A chip of that machine, timed by that profile.
    pub fn new(machine: Machine, profile: Profile, options: execute::Options) -> VirtualDevice {
        VirtualDevice {
            info: DeviceInfo {
                name: format!(
                    "virtual {}, {} × {} slices",
                    machine.name.to_uppercase(),
                    machine.clusters,
                    machine.slices
                ),
                target: TARGET.to_owned(),
                memory_bytes: machine.hbm_bytes,
                max_buffer_bytes: machine.hbm_bytes,
                coherent: false,
                provenance: profile.provenance(),
            },
            number: unique_number(),
            holdings: Holdings::new(machine.hbm_bytes),
            machine,
            profile,
            options,
            traces: false,
            running: Mutex::default(),
            stop_after: Mutex::default(),
            next: AtomicU64::new(0),
            ended: Arc::default(),
        }
    }

    /// The same with so many bytes for all buffers together. For a device that holds nothing yet.
    #[must_use]
    pub fn with_memory(mut self, memory_bytes: u64) -> VirtualDevice {
        self.info.memory_bytes = memory_bytes;
        self.info.max_buffer_bytes = memory_bytes;
        self.holdings = Holdings::new(memory_bytes);
        self
    }

    /// The same with completions that say when each command ran.
    #[must_use]
    pub fn with_traces(mut self) -> VirtualDevice {
        self.traces = true;
        self
    }

    /// Has the next submission fail after so many commands.
    pub fn stop_next_after(&self, n_commands: u64) {
        *lock(&self.stop_after) = Some(n_commands);
    }

    fn loaded<'a>(&self, program: &'a dyn LoadedProgram) -> Result<&'a Loaded, DeviceError> {
        let loaded = program.as_any().downcast_ref::<Loaded>();
        let own = loaded.filter(|loaded| loaded.owner == self.number);
        own.ok_or_else(|| DeviceError::ForeignProgram(program.name().to_owned()))
    }

    /// Runs a program on the device's side of its buffers.
    fn execute(&self, loaded: &Loaded, buffers: &[Arc<Buffer>]) -> Result<Completion, DeviceError> {
        // Taken before the buffers, so that two submissions do not wait for each other's.
        let _running = lock(&self.running);
        let options = execute::Options {
            stop_after: lock(&self.stop_after).take(),
            ..self.options
        };
        let mut sides = Vec::with_capacity(buffers.len());
        for (slot, buffer) in loaded.slots.iter().zip(buffers) {
            let object = RamBuffer::of(buffer, self.number)?;
            sides.push(match slot.role {
                // No program writes it: rule TC503.
                Role::Static => object.device_lent(),
                _ => object.device_mut(),
            });
        }
        let take = |side: &mut _| std::mem::take(side);
        let mut content: Vec<Vec<u8>> = sides.iter_mut().map(|side| take(&mut **side)).collect();
        let result = execute::run(&loaded.program, &mut content, &options);
        for (side, content) in sides.iter_mut().zip(content) {
            **side = content;
        }
        match result {
            Ok(_) => Ok(self.completion(loaded)),
            Err(fault) => Err(fault_of(loaded, &fault)),
        }
    }

    fn completion(&self, loaded: &Loaded) -> Completion {
        let provenance = self.info.provenance.clone();
        let mut energy = Energy::default();
        // The board's limit, not what it draws: nobody has published a measured power by program.
        let board = energy.add(
            "board at its limit",
            self.machine.tdp_watts,
            loaded.duration_ns,
            provenance.clone(),
        );
        Completion {
            duration_ns: loaded.duration_ns,
            provenance,
            trace: loaded.trace.clone(),
            energy: board.is_ok().then_some(energy),
        }
    }

    /// A buffer has one place in memory; a program that reads one slot and writes another must not
    /// find both there.
    fn check_distinct(&self, loaded: &Loaded, buffers: &[Arc<Buffer>]) -> Result<(), DeviceError> {
        let mut objects = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            objects.push(std::ptr::from_ref(RamBuffer::of(buffer, self.number)?));
        }
        for (slot, object) in objects.iter().enumerate() {
            if let Some(other) = objects[..slot].iter().position(|earlier| earlier == object) {
                return Err(DeviceError::Refused {
                    program: loaded.name().to_owned(),
                    reason: format!(
                        "slots `{}` and `{}` are bound to one buffer",
                        loaded.slots[other].name, loaded.slots[slot].name
                    ),
                });
            }
        }
        Ok(())
    }
}

fn fault_of(loaded: &Loaded, fault: &Fault) -> DeviceError {
    let place = ErrorPlace {
        program: loaded.program.name.clone(),
        launch: Some(fault.command.clone()),
        unit: None,
        slot: fault.slot.clone(),
    };
    DeviceError::Fault {
        place: Box::new(place),
        reason: fault.reason.clone(),
    }
}

impl Device for VirtualDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn held(&self) -> Held {
        self.holdings.held()
    }

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        let lease = self.holdings.buffer(size_bytes)?;
        let buffer = RamBuffer::alloc(self.number, size_bytes, usage, size_bytes)?;
        Ok(Arc::new(buffer.leased(lease)))
    }

    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        if container.target() != TARGET {
            return Err(DeviceError::Target {
                expected: TARGET.to_owned(),
                found: container.target().to_owned(),
            });
        }
        let refused = |reason: String| DeviceError::Refused {
            program: container.name().to_owned(),
            reason,
        };
        let program =
            Program::from_container(container).map_err(|error| refused(error.to_string()))?;
        verify(&program, &self.machine).map_err(|refusals| {
            let reasons: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            refused(reasons.join("; "))
        })?;
        let timed = timing::Timed::new(&program, &self.machine, &self.profile);
        let timed = timed.map_err(|broken| refused(broken.message))?;
        let duration = timing::predict(&timed, &self.machine, &self.profile).total_ns;
        let trace = || timing::trace(&timed, &self.machine, &self.profile);
        Ok(Arc::new(Loaded {
            owner: self.number,
            slots: container.slots().to_vec(),
            program,
            duration_ns: duration.round() as u64,
            trace: self.traces.then(trace),
            _lease: self.holdings.program(),
        }))
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<Bound, DeviceError> {
        let loaded = self.loaded(&**program)?;
        for buffer in buffers {
            RamBuffer::of(buffer, self.number)?;
        }
        let bound = Bound::new(program, buffers)?;
        self.check_distinct(loaded, buffers)?;
        Ok(bound)
    }

    fn submit(&self, bound: &Bound) -> Result<Fence, DeviceError> {
        let loaded = self.loaded(&*bound.program)?;
        let outcome = self.execute(loaded, &bound.buffers);
        let id = self.next.fetch_add(1, Relaxed);
        lock(&self.ended).insert(id, outcome);
        let ended = self.ended.clone();
        Ok(Fence::new(self.number, id, move || {
            _ = lock(&ended).remove(&id);
        }))
    }

    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError> {
        let id = fence.id(self.number)?;
        lock(&self.ended)
            .remove(&id)
            .ok_or(DeviceError::UnknownFence)?
    }
}
