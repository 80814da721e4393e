//! The virtual NPU2 as a [`Device`]: programs are verified, run functionally, and timed by the
//! model. Times and energies say `modelled(profile)`.

use crate::functional::{self, Fault};
use crate::profile::Scope;
use crate::program::codec::TARGET;
use crate::{Machine, Profile, Program, timing, verify};
use millrace_kernels::Cpu;
use millrace_npu::device::unique_number;
use millrace_npu::held::{Held, Holdings, Lease};
use millrace_npu::inject::{self, Corrupted, Event, Inject, Injection, Injections};
use millrace_npu::ram::RamBuffer;
use millrace_npu::{
    Bound, Buffer, Completion, Container, Device, DeviceError, DeviceInfo, ErrorPlace, Fence,
    LoadedProgram, Role, Slot, Usage,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory that buffers can take together unless [`VirtualDevice::with_memory`] says otherwise. An
/// NPU has none of its own: buffers are the host's memory, pinned. Half of a laptop with 32 GiB.
const MEMORY_BYTES: u64 = 16 << 30;

/// How long a device waits for a submission before it stops it.
///
/// Source: the Linux driver amdxdna, whose command timeout is 2 s unless its module is told another.
const TIMEOUT_NS: u64 = 2_000_000_000;

/// An NPU2 that is not there.
pub struct VirtualDevice {
    info: DeviceInfo,
    number: u64,
    machine: Machine,
    profile: Profile,
    /// One program runs at a time, on these threads.
    cpu: Mutex<Cpu>,
    next: AtomicU64,
    ended: Arc<Mutex<HashMap<u64, Result<Completion, DeviceError>>>>,
    holdings: Arc<Holdings>,
    injections: Mutex<Injections>,
    corrupted: Mutex<Corrupted>,
    life: Mutex<Life>,
}

/// Whether the device is there, and whose programs and buffers it knows.
struct Life {
    is_lost: bool,
    /// Owner of what was made since it last came back.
    owner: u64,
    /// Owners of what was lost.
    former: Vec<u64>,
}

/// A verified program.
struct Loaded {
    owner: u64,
    program: Program,
    /// Predicted once: times do not depend on data.
    duration_ns: u64,
    _lease: Lease,
}

impl LoadedProgram for Loaded {
    fn name(&self) -> &str {
        &self.program.name
    }

    fn slots(&self) -> &[Slot] {
        &self.program.slots
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Where a fault is.
fn place_of(program: &Program, fault: &Fault) -> ErrorPlace {
    let site = fault.site();
    let slot = site.slot.and_then(|slot| program.slots.get(slot as usize));
    ErrorPlace {
        program: program.name.clone(),
        launch: fault.launch().map(str::to_owned),
        unit: site.core.map(|(col, row)| format!("core ({col}, {row})")),
        slot: slot.map(|slot| slot.name.clone()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VirtualDevice {
    /// A device of that machine, timed by that profile, computing on that CPU.
    pub fn new(machine: Machine, profile: Profile, cpu: Cpu) -> VirtualDevice {
        VirtualDevice {
            info: DeviceInfo {
                name: format!(
                    "virtual {}, {} × {}",
                    machine.name, machine.cols, machine.rows
                ),
                target: TARGET.to_owned(),
                memory_bytes: MEMORY_BYTES,
                max_buffer_bytes: machine.buffer_bytes_max.clamp(1, MEMORY_BYTES),
                coherent: false,
                provenance: profile.provenance(Scope::Kernel, &machine),
            },
            number: unique_number(),
            machine,
            profile,
            cpu: Mutex::new(cpu),
            next: AtomicU64::new(0),
            ended: Arc::default(),
            holdings: Holdings::new(MEMORY_BYTES),
            injections: Mutex::default(),
            corrupted: Mutex::default(),
            life: Mutex::new(Life {
                is_lost: false,
                owner: unique_number(),
                former: Vec::new(),
            }),
        }
    }

    /// The same with so many bytes for all buffers together. For a device that holds nothing yet.
    #[must_use]
    pub fn with_memory(mut self, memory_bytes: u64) -> VirtualDevice {
        self.info.memory_bytes = memory_bytes;
        self.info.max_buffer_bytes = self.info.max_buffer_bytes.min(memory_bytes);
        self.holdings = Holdings::new(memory_bytes);
        self
    }

    /// Takes the device away, with what is on it. Results that nobody has fetched are lost too.
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

    /// The owner of what is made at this moment.
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

    fn loaded<'a>(&self, program: &'a dyn LoadedProgram) -> Result<&'a Loaded, DeviceError> {
        let owner = self.owner()?;
        let loaded = program.as_any().downcast_ref::<Loaded>();
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
    fn execute(&self, loaded: &Loaded, buffers: &[Arc<Buffer>]) -> Result<Completion, DeviceError> {
        // Taken before the buffers, so that two submissions do not wait for each other's.
        let cpu = lock(&self.cpu);
        let injected = lock(&self.injections).take(Event::Submission);
        let mut options = functional::Options::new(&cpu);
        options.stop_after = match injected {
            None => None,
            Some(Injection::StopAfter(units)) => Some(units),
            Some(_) => Some(0),
        };
        let mut sides = Vec::with_capacity(buffers.len());
        for (slot, buffer) in loaded.program.slots.iter().zip(buffers) {
            let object = self.object(buffer)?;
            sides.push(match slot.role {
                // No program writes it: rule XD508.
                Role::Static => object.device_lent(),
                _ => object.device_mut(),
            });
        }
        let mut content: Vec<Vec<u8>> =
            sides.iter_mut().map(|s| std::mem::take(&mut **s)).collect();
        let program = &loaded.program;
        let result = self.run_corrupted(program, &mut content, &options);
        for (side, content) in sides.iter_mut().zip(content) {
            **side = content;
        }
        self.outcome(loaded, injected, result.err())
    }

    /// Runs a program, its content wrong where that was asked for.
    fn run_corrupted(
        &self,
        program: &Program,
        content: &mut [Vec<u8>],
        options: &functional::Options<'_>,
    ) -> Result<functional::Counters, Fault> {
        let wrong = lock(&self.injections).corrupted(&program.name, &program.slots);
        let corrupt = |slot: usize, how, bytes: &mut [u8]| {
            let changed = inject::corrupt(how, &program.slots[slot], bytes);
            let mut corrupted = lock(&self.corrupted);
            corrupted.n_applied += 1;
            corrupted.n_changed += u64::from(changed);
        };
        let mut kept = Vec::new();
        for &(slot, how) in &wrong {
            let role = program.slots[slot].role;
            if role == Role::Static {
                kept.push((slot, content[slot].clone()));
            }
            if matches!(role, Role::Static | Role::Input) {
                corrupt(slot, how, &mut content[slot]);
            }
        }
        let after = |written: &[usize], content: &mut [Vec<u8>]| {
            for &(slot, how) in wrong.iter().filter(|(slot, _)| written.contains(slot)) {
                corrupt(slot, how, &mut content[slot]);
            }
        };
        let mut options = *options;
        if !wrong.is_empty() {
            options.after_launch = Some(&after);
        }
        let result = functional::run(program, content, &options);
        for (slot, bytes) in kept {
            content[slot] = bytes;
        }
        result
    }

    /// What the host is told.
    fn outcome(
        &self,
        loaded: &Loaded,
        injected: Option<Injection>,
        fault: Option<Fault>,
    ) -> Result<Completion, DeviceError> {
        let place = fault.as_ref().map_or_else(
            || ErrorPlace::of(loaded.name()),
            |fault| place_of(&loaded.program, fault),
        );
        let reason = fault.as_ref().map(|fault| match (&injected, fault) {
            (Some(_), Fault::Budget { .. }) => format!("the array stopped; {}", fault.reason()),
            _ => fault.reason(),
        });
        match (injected, reason) {
            (Some(Injection::Lose), _) => {
                self.lose();
                Err(self.lost(Some(place)))
            }
            (Some(Injection::Timeout), reason) => Err(DeviceError::Timeout {
                place: Box::new(place),
                after_ns: TIMEOUT_NS,
                reason: reason.unwrap_or_else(|| "it never reported its end".to_owned()),
            }),
            (_, Some(reason)) => Err(DeviceError::Fault {
                place: Box::new(place),
                reason,
            }),
            (_, None) => Ok(Completion {
                duration_ns: loaded.duration_ns,
                provenance: self.info.provenance.clone(),
                trace: None,
                energy: self.profile.energy(loaded.duration_ns),
            }),
        }
    }

    /// A buffer has one place in memory; a program that reads one slot and writes another must not
    /// find both there.
    fn check_distinct(&self, loaded: &Loaded, buffers: &[Arc<Buffer>]) -> Result<(), DeviceError> {
        let mut objects = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            objects.push(std::ptr::from_ref(self.object(buffer)?));
        }
        for (slot, object) in objects.iter().enumerate() {
            if let Some(other) = objects[..slot].iter().position(|earlier| earlier == object) {
                return Err(DeviceError::Refused {
                    program: loaded.name().to_owned(),
                    reason: format!(
                        "slots `{}` and `{}` are bound to one buffer",
                        loaded.slots()[other].name,
                        loaded.slots()[slot].name
                    ),
                });
            }
        }
        Ok(())
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
        let owner = self.owner()?;
        let max_bytes = self.info.max_buffer_bytes;
        if (max_bytes + 1..=self.info.memory_bytes).contains(&size_bytes) {
            return Err(DeviceError::BufferTooLarge {
                asked_bytes: size_bytes,
                max_bytes,
            });
        }
        let lease = self.holdings.buffer(size_bytes)?;
        if lock(&self.injections).take(Event::Allocation).is_some() {
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
        if lock(&self.injections).take(Event::Load).is_some() {
            return Err(refused("no hardware context is free (injected)".to_owned()));
        }
        let program =
            Program::from_container(container).map_err(|error| refused(error.to_string()))?;
        verify(&program, &self.machine).map_err(|refusals| {
            let reasons: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            refused(reasons.join("; "))
        })?;
        let timing = timing::predict(&program, &self.machine, &self.profile)
            .map_err(|error| refused(error.to_string()))?;
        Ok(Arc::new(Loaded {
            owner,
            program,
            duration_ns: timing.total_ns.round() as u64,
            _lease: self.holdings.program(),
        }))
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<Bound, DeviceError> {
        let loaded = self.loaded(&**program)?;
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
            _ = lock(&ended).remove(&id)
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

impl Inject for VirtualDevice {
    fn inject_after(&self, n_passed: u64, injection: Injection) {
        lock(&self.injections).add(n_passed, injection);
    }

    fn clear(&self) {
        lock(&self.injections).clear();
        *lock(&self.corrupted) = Corrupted::default();
    }

    fn corrupted(&self) -> Corrupted {
        *lock(&self.corrupted)
    }

    fn revive(&self) {
        lock(&self.life).is_lost = false;
    }
}
