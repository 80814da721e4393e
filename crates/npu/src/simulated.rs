//! Devices that exist in software. [`SimulatedDevice`] is their common part: memory in two sides, owners, fences,
//! deliberate failures. A [`Simulator`] adds the programs and their execution.

mod job;

pub use job::SimulatorJob;

use crate::device::unique_number;
use crate::held::{DeviceUsage, Holdings, Lease};
use crate::inject::{CorruptionCounts, Inject, Injection, InjectionEvent, Injections};
use crate::ram::{DeviceSideMut, RamBuffer};
use crate::{
    BoundProgram, Buffer, Completion, Container, Device, DeviceError, DeviceInfo, ErrorPlace,
    Fence, LoadedProgram, Role, Slot, Usage,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of a kind of NPU in a simulated device.
pub trait Simulator: Send + Sync + 'static {
    /// A program that it accepted.
    type Program: Send + Sync + 'static;

    /// Properties of the device.
    fn info(&self) -> DeviceInfo;

    /// How long the device waits for a submission before it stops it, in nanoseconds.
    fn timeout_ns(&self) -> u64;

    /// The program of a container of the device's target.
    ///
    /// # Errors
    /// Every reason why it is refused, in words.
    fn accept(&self, container: &Container) -> Result<Self::Program, String>;

    /// Why the program runs on something else than the simulator that was asked for; [`LoadedProgram::substitute`]
    /// passes it on.
    fn substitute(&self, program: &Self::Program) -> Option<String> {
        let _ = program;
        None
    }

    /// Runs a program on the content of its slots, which have their sizes. It calls [`SimulatorJob::wrote`] after each
    /// part that it counts as a launch, and ends early where [`SimulatorJob::stop_after`] says so. When it returns,
    /// static content is unchanged.
    ///
    /// # Errors
    /// Where and why it stopped; its outputs are then undefined.
    fn run(
        &self,
        program: &Self::Program,
        content: &mut [Vec<u8>],
        job: &SimulatorJob<'_>,
    ) -> Result<Completion, RunStop>;
}

/// Where and why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStop {
    /// Where.
    pub place: ErrorPlace,
    /// Why.
    pub reason: String,
}

/// A device in software: buffers in ordinary memory, one submission at a time, each run when it is
/// submitted.
pub struct SimulatedDevice<S: Simulator> {
    simulator: S,
    info: DeviceInfo,
    number: u64,
    /// Held by the submission that runs.
    running: Mutex<()>,
    next: AtomicU64,
    /// Outcomes whose fence still exists.
    ended: Arc<Mutex<HashMap<u64, Result<Completion, DeviceError>>>>,
    holdings: Arc<Holdings>,
    injections: Mutex<Injections>,
    corrupted: Mutex<CorruptionCounts>,
    life: Mutex<Life>,
}

/// Whether the device is present, and the owners of its programs and buffers.
struct Life {
    is_lost: bool,
    /// Owner of everything made since it last came back.
    owner: u64,
    /// Owners of everything that was lost.
    former: Vec<u64>,
}

/// An accepted program.
struct SimulatedProgram<P> {
    owner: u64,
    name: String,
    slots: Vec<Slot>,
    program: P,
    substitute: Option<String>,
    _lease: Lease,
}

impl<P: Send + Sync + 'static> LoadedProgram for SimulatedProgram<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn substitute(&self) -> Option<&str> {
        self.substitute.as_deref()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Simulator> SimulatedDevice<S> {
    /// A device with that simulator.
    pub fn new(simulator: S) -> SimulatedDevice<S> {
        let info = simulator.info();
        SimulatedDevice {
            number: unique_number(),
            running: Mutex::default(),
            next: AtomicU64::new(0),
            ended: Arc::default(),
            holdings: Holdings::new(info.memory_bytes),
            injections: Mutex::default(),
            corrupted: Mutex::default(),
            life: Mutex::new(Life {
                is_lost: false,
                owner: unique_number(),
                former: Vec::new(),
            }),
            info,
            simulator,
        }
    }

    /// The same with so many bytes for all buffers together. For a device that holds nothing yet.
    #[must_use]
    pub fn with_memory(mut self, memory_bytes: u64) -> SimulatedDevice<S> {
        self.info.memory_bytes = memory_bytes;
        self.info.max_buffer_bytes = self.info.max_buffer_bytes.min(memory_bytes);
        self.holdings = Holdings::new(memory_bytes);
        self
    }

    /// Takes the device away, with its programs and buffers. Results that nobody has fetched are lost too.
    pub fn lose(&self) {
        let mut life = lock(&self.life);
        life.is_lost = true;
        let owner = std::mem::replace(&mut life.owner, unique_number());
        life.former.push(owner);
        for outcome in lock(&self.ended).values_mut() {
            *outcome = Err(self.lost(None));
        }
    }

    fn lost(&self, place: Option<ErrorPlace>) -> DeviceError {
        DeviceError::Lost {
            device: self.info.name.clone(),
            place: place.map(Box::new),
        }
    }

    /// The owner of objects made at this moment.
    fn owner(&self) -> Result<u64, DeviceError> {
        let life = lock(&self.life);
        match life.is_lost {
            true => Err(self.lost(None)),
            false => Ok(life.owner),
        }
    }

    fn stale(&self, what: String) -> DeviceError {
        DeviceError::Stale {
            device: self.info.name.clone(),
            what,
        }
    }

    fn loaded<'a>(
        &self,
        program: &'a dyn LoadedProgram,
    ) -> Result<&'a SimulatedProgram<S::Program>, DeviceError> {
        let owner = self.owner()?;
        let loaded = program
            .as_any()
            .downcast_ref::<SimulatedProgram<S::Program>>();
        match loaded {
            Some(loaded) if loaded.owner == owner => Ok(loaded),
            Some(loaded) if lock(&self.life).former.contains(&loaded.owner) => {
                Err(self.stale(format!("program `{}`", program.name())))
            }
            _ => Err(DeviceError::ForeignProgram(program.name().to_owned())),
        }
    }

    fn object<'a>(&self, buffer: &'a Buffer) -> Result<&'a RamBuffer, DeviceError> {
        let owner = self.owner()?;
        RamBuffer::of(buffer, owner).map_err(|error| {
            let life = lock(&self.life);
            let mut former = life.former.iter();
            match former.any(|&owner| RamBuffer::of(buffer, owner).is_ok()) {
                true => self.stale("a buffer".to_owned()),
                false => error,
            }
        })
    }

    /// Runs a program on the device's side of its buffers.
    fn execute(
        &self,
        loaded: &SimulatedProgram<S::Program>,
        buffers: &[Arc<Buffer>],
    ) -> Result<Completion, DeviceError> {
        // Taken before the buffers, so that two submissions do not wait for each other's.
        let _running = lock(&self.running);
        let injected = lock(&self.injections).take(InjectionEvent::Submission);
        let wrong = lock(&self.injections).corrupted(&loaded.name, &loaded.slots);
        let job = SimulatorJob::new(&loaded.slots, wrong, &self.corrupted, injected.as_ref());
        let mut sides = Vec::with_capacity(buffers.len());
        for (slot, buffer) in loaded.slots.iter().zip(buffers) {
            let object = self.object(buffer)?;
            sides.push(match slot.role {
                // No program writes it.
                Role::Static => object.device_lent(),
                _ => object.device_mut(),
            });
        }
        let take = |side: &mut DeviceSideMut<'_>| std::mem::take(&mut **side);
        let mut content: Vec<Vec<u8>> = sides.iter_mut().map(take).collect();
        let kept = job.before(&mut content);
        let ran = self.simulator.run(&loaded.program, &mut content, &job);
        for (slot, bytes) in kept {
            content[slot] = bytes;
        }
        for (side, content) in sides.iter_mut().zip(content) {
            **side = content;
        }
        drop(sides);
        self.outcome(&loaded.name, injected, ran)
    }

    /// The outcome that the host gets.
    fn outcome(
        &self,
        name: &str,
        injected: Option<Injection>,
        ran: Result<Completion, RunStop>,
    ) -> Result<Completion, DeviceError> {
        let place = match &ran {
            Ok(_) => ErrorPlace::of(name),
            Err(stopped) => stopped.place.clone(),
        };
        match (injected, ran) {
            (Some(Injection::Lose), _) => {
                self.lose();
                Err(self.lost(Some(place)))
            }
            (Some(Injection::Timeout), ran) => Err(DeviceError::Timeout {
                place: Box::new(place),
                after_ns: self.simulator.timeout_ns(),
                reason: ran.err().map_or_else(
                    || "it never reported its end".to_owned(),
                    |stopped| stopped.reason,
                ),
            }),
            (_, Err(stopped)) => Err(DeviceError::Fault {
                place: Box::new(place),
                reason: stopped.reason,
            }),
            (_, Ok(completion)) => Ok(completion),
        }
    }

    /// A buffer has one place in memory; a program that reads one slot and writes another must not
    /// find both there.
    fn check_distinct(
        &self,
        loaded: &SimulatedProgram<S::Program>,
        buffers: &[Arc<Buffer>],
    ) -> Result<(), DeviceError> {
        let mut objects = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            objects.push(std::ptr::from_ref(self.object(buffer)?));
        }
        for (slot, object) in objects.iter().enumerate() {
            if let Some(other) = objects[..slot].iter().position(|earlier| earlier == object) {
                return Err(DeviceError::Refused {
                    program: loaded.name.clone(),
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

impl<S: Simulator> Device for SimulatedDevice<S> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn held(&self) -> DeviceUsage {
        self.holdings.held()
    }

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        let owner = self.owner()?;
        let max_bytes = self.info.max_buffer_bytes;
        if (max_bytes + 1..=self.info.memory_bytes).contains(&size_bytes) {
            return Err(DeviceError::BufferTooLarge {
                asked_bytes: size_bytes,
                max_bytes,
            });
        }
        let lease = self.holdings.buffer(size_bytes)?;
        if lock(&self.injections)
            .take(InjectionEvent::Allocation)
            .is_some()
        {
            return Err(DeviceError::NotPinned {
                asked_bytes: size_bytes,
                reason: "cannot allocate memory (injected)".to_owned(),
            });
        }
        let buffer = RamBuffer::alloc(owner, size_bytes, usage, size_bytes)?;
        Ok(Arc::new(buffer.leased(lease)))
    }

    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        let owner = self.owner()?;
        if container.target() != self.info.target {
            return Err(DeviceError::Target {
                expected: self.info.target.clone(),
                found: container.target().to_owned(),
            });
        }
        let refused = |reason: String| DeviceError::Refused {
            program: container.name().to_owned(),
            reason,
        };
        if lock(&self.injections).take(InjectionEvent::Load).is_some() {
            return Err(refused("no hardware context is free (injected)".to_owned()));
        }
        let program = self.simulator.accept(container).map_err(refused)?;
        Ok(Arc::new(SimulatedProgram {
            owner,
            name: container.name().to_owned(),
            slots: container.slots().to_vec(),
            substitute: self.simulator.substitute(&program),
            program,
            _lease: self.holdings.program(),
        }))
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<BoundProgram, DeviceError> {
        let loaded = self.loaded(&**program)?;
        let bound = BoundProgram::new(program, buffers)?;
        self.check_distinct(loaded, buffers)?;
        Ok(bound)
    }

    fn submit(&self, bound: &BoundProgram) -> Result<Fence, DeviceError> {
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

    fn injector(&self) -> Option<&dyn Inject> {
        Some(self)
    }
}

impl<S: Simulator> Inject for SimulatedDevice<S> {
    fn inject_after(&self, n_passed: u64, injection: Injection) {
        lock(&self.injections).add(n_passed, injection);
    }

    fn clear(&self) {
        lock(&self.injections).clear();
        *lock(&self.corrupted) = CorruptionCounts::default();
    }

    fn corrupted(&self) -> CorruptionCounts {
        *lock(&self.corrupted)
    }

    fn revive(&self) {
        lock(&self.life).is_lost = false;
    }
}
