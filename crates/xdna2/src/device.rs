//! The virtual NPU2 as a [`Device`]: programs are verified, run functionally, and timed by the
//! model. Times say `modelled(profile)`.

use crate::functional::{self, Fault};
use crate::program::codec::TARGET;
use crate::{Machine, Profile, Program, timing, verify};
use millrace_kernels::Cpu;
use millrace_npu::device::{check_bindings, unique_number};
use millrace_npu::ram::RamBuffer;
use millrace_npu::{
    Buffer, Completion, Container, Device, DeviceError, DeviceInfo, Fence, LoadedProgram,
    Provenance, Slot, Usage,
};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory that buffers can take together: a host's, of which the NPU has no share of its own.
const MEMORY_BYTES: u64 = 16 << 30;

/// A failure to be had on purpose, for testing what is above a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The program does not run and the wait ends as a timeout would.
    Timeout,
    /// The program stops after so many units of work ([`functional::Options::max_units`]) a
    /// launch, with outputs half written.
    StopAfter(u64),
}

/// An NPU2 that is not there.
pub struct VirtualDevice {
    info: DeviceInfo,
    number: u64,
    machine: Machine,
    profile: Profile,
    /// One program runs at a time, on these threads.
    cpu: Mutex<Cpu>,
    next: AtomicU64,
    ended: Mutex<HashMap<u64, Result<Completion, DeviceError>>>,
    injections: Mutex<VecDeque<Injection>>,
}

/// A verified program.
struct Loaded {
    owner: u64,
    program: Program,
    /// Predicted once: times do not depend on data.
    duration_ns: u64,
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
                provenance: Provenance::Modelled {
                    profile: profile.name.clone(),
                    error: Some(profile.error_percent / 100.0),
                },
            },
            number: unique_number(),
            machine,
            profile,
            cpu: Mutex::new(cpu),
            next: AtomicU64::new(0),
            ended: Mutex::default(),
            injections: Mutex::default(),
        }
    }

    /// Makes a coming submission fail: the first injected is the first to happen.
    pub fn inject(&self, injection: Injection) {
        lock(&self.injections).push_back(injection);
    }

    /// Runs a program on the device's side of its buffers.
    fn execute(&self, loaded: &Loaded, buffers: &[Arc<Buffer>]) -> Result<Completion, DeviceError> {
        let fault = |reason: String| DeviceError::Fault {
            program: loaded.program.name.clone(),
            reason,
        };
        // Taken before the buffers, so that two submissions do not wait for each other's.
        let cpu = lock(&self.cpu);
        let mut options = functional::Options::new(&cpu);
        match lock(&self.injections).pop_front() {
            None => {}
            Some(Injection::Timeout) => return Err(fault("timed out (injected)".to_owned())),
            Some(Injection::StopAfter(units)) => options.max_units = units,
        }
        let mut sides = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            sides.push(RamBuffer::of(buffer, self.number)?.device_mut());
        }
        let mut content: Vec<Vec<u8>> =
            sides.iter_mut().map(|s| std::mem::take(&mut **s)).collect();
        let result = functional::run(&loaded.program, &mut content, &options);
        for (side, content) in sides.iter_mut().zip(content) {
            **side = content;
        }
        result.map_err(|found: Fault| fault(found.to_string()))?;
        Ok(Completion {
            duration_ns: loaded.duration_ns,
            provenance: self.info.provenance.clone(),
            trace: None,
            energy: None,
        })
    }

    /// A buffer has one place in memory; a program that reads one slot and writes another must not
    /// find both there.
    fn check_distinct(&self, name: &str, buffers: &[Arc<Buffer>]) -> Result<(), DeviceError> {
        let mut objects = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            objects.push(std::ptr::from_ref(RamBuffer::of(buffer, self.number)?));
        }
        for (slot, object) in objects.iter().enumerate() {
            if let Some(other) = objects[..slot].iter().position(|earlier| earlier == object) {
                return Err(DeviceError::Refused {
                    program: name.to_owned(),
                    reason: format!("slots {other} and {slot} are bound to one buffer"),
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

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        let max_bytes = self.info.max_buffer_bytes;
        if size_bytes > self.info.memory_bytes {
            return Err(DeviceError::OutOfMemory {
                asked_bytes: size_bytes,
                available_bytes: self.info.memory_bytes,
            });
        }
        if size_bytes > max_bytes {
            return Err(DeviceError::BufferTooLarge {
                asked_bytes: size_bytes,
                max_bytes,
            });
        }
        RamBuffer::alloc(self.number, size_bytes, usage, self.info.memory_bytes).map(Arc::new)
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
        let timing = timing::predict(&program, &self.machine, &self.profile)
            .map_err(|error| refused(error.to_string()))?;
        Ok(Arc::new(Loaded {
            owner: self.number,
            program,
            duration_ns: timing.total_ns.round() as u64,
        }))
    }

    fn submit(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<Fence, DeviceError> {
        let loaded = (program.as_any().downcast_ref::<Loaded>())
            .filter(|loaded| loaded.owner == self.number)
            .ok_or_else(|| DeviceError::ForeignProgram(program.name().to_owned()))?;
        check_bindings(&**program, buffers)?;
        self.check_distinct(program.name(), buffers)?;
        let outcome = self.execute(loaded, buffers);
        let id = self.next.fetch_add(1, Relaxed);
        lock(&self.ended).insert(id, outcome);
        Ok(Fence::new(self.number, id))
    }

    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError> {
        let id = fence.id(self.number)?;
        lock(&self.ended)
            .remove(&id)
            .ok_or(DeviceError::UnknownFence)?
    }
}
