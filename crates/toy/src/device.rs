//! The toy itself: it computes in memory and says that its times are modelled.

use crate::NAME;
use crate::planner::run_ns;
use crate::program::{Program, W, X, Y};
use half::f16;
use half::slice::HalfFloatSliceExt;
use millrace_kernels::Cpu;
use millrace_npu::device::unique_number;
use millrace_npu::held::{Holdings, Lease};
use millrace_npu::inject::{self, Corrupted, Event, Inject, Injection, Injections};
use millrace_npu::ram::RamBuffer;
use millrace_npu::{
    Bound, Buffer, Completion, Container, Device, DeviceError, DeviceInfo, ErrorPlace, Fence, Held,
    LoadedProgram, Provenance, Slot, Usage,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MEMORY_BYTES: u64 = 8 << 30;

type Outcomes = Arc<Mutex<HashMap<u64, Result<Completion, DeviceError>>>>;

/// A toy that is not there.
pub struct ToyDevice {
    info: DeviceInfo,
    number: u64,
    /// Owners of what was made, one more each time it came back; what those before the last made is gone.
    owners: Mutex<Vec<u64>>,
    cpu: Cpu,
    holdings: Arc<Holdings>,
    next: AtomicU64,
    ended: Outcomes,
    injections: Mutex<Injections>,
    corrupted: Mutex<Corrupted>,
    is_lost: AtomicBool,
}

/// A program that the toy holds ready.
struct Loaded {
    owner: u64,
    program: Program,
    name: String,
    slots: Vec<Slot>,
    _lease: Lease,
}

impl LoadedProgram for Loaded {
    fn name(&self) -> &str {
        &self.name
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Where the toy's times come from.
pub fn provenance() -> Provenance {
    Provenance::Modelled {
        profile: "imagination".to_owned(),
        error: None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of any alignment as numbers.
fn numbers<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    let each = bytes.chunks_exact(size_of::<T>());
    each.map(bytemuck::pod_read_unaligned).collect()
}

impl ToyDevice {
    /// A toy that computes on that CPU.
    pub fn new(cpu: Cpu) -> ToyDevice {
        ToyDevice {
            info: DeviceInfo {
                name: "virtual toy".to_owned(),
                target: NAME.to_owned(),
                memory_bytes: MEMORY_BYTES,
                max_buffer_bytes: MEMORY_BYTES,
                coherent: false,
                provenance: provenance(),
            },
            number: unique_number(),
            owners: Mutex::new(vec![unique_number()]),
            cpu,
            holdings: Holdings::new(MEMORY_BYTES),
            next: AtomicU64::new(0),
            ended: Outcomes::default(),
            injections: Mutex::default(),
            corrupted: Mutex::default(),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Who owns what is made now.
    ///
    /// # Errors
    /// Where it is gone.
    fn owner(&self) -> Result<u64, DeviceError> {
        self.check_there()?;
        Ok(lock(&self.owners).last().copied().unwrap_or_default())
    }

    /// Whether a thing is the device's own and was not lost; `is_owner` says whose it is.
    fn check_owner(
        &self,
        is_owner: impl Fn(u64) -> bool,
        what: &str,
        foreign: DeviceError,
    ) -> Result<(), DeviceError> {
        match is_owner(self.owner()?) {
            true => Ok(()),
            false if lock(&self.owners).iter().any(|owner| is_owner(*owner)) => {
                Err(DeviceError::Stale {
                    device: self.info.name.clone(),
                    what: what.to_owned(),
                })
            }
            false => Err(foreign),
        }
    }

    fn loaded<'a>(&self, program: &'a dyn LoadedProgram) -> Result<&'a Loaded, DeviceError> {
        let foreign = || DeviceError::ForeignProgram(program.name().to_owned());
        let loaded = program.as_any().downcast_ref::<Loaded>();
        let loaded = loaded.ok_or_else(foreign)?;
        self.check_owner(|owner| loaded.owner == owner, "a program", foreign())?;
        Ok(loaded)
    }

    fn object<'a>(&self, buffer: &'a Buffer) -> Result<&'a RamBuffer, DeviceError> {
        let is_owner = |owner| RamBuffer::of(buffer, owner).is_ok();
        self.check_owner(is_owner, "a buffer", DeviceError::ForeignBuffer)?;
        RamBuffer::of(buffer, self.owner()?)
    }

    fn check_there(&self) -> Result<(), DeviceError> {
        match self.is_lost.load(Relaxed) {
            true => Err(DeviceError::Lost {
                device: self.info.name.clone(),
                place: None,
            }),
            false => Ok(()),
        }
    }

    fn execute(&self, loaded: &Loaded, buffers: &[Arc<Buffer>]) -> Result<Completion, DeviceError> {
        let place = || Box::new(ErrorPlace::of(&loaded.name));
        match lock(&self.injections).take(Event::Submission) {
            // A product is one unit of work.
            Some(Injection::StopAfter(0)) => {
                return Err(DeviceError::Fault {
                    place: place(),
                    reason: "injected".to_owned(),
                });
            }
            None | Some(Injection::StopAfter(_)) => {}
            Some(Injection::Lose) => {
                self.is_lost.store(true, Relaxed);
                return Err(DeviceError::Lost {
                    device: self.info.name.clone(),
                    place: Some(place()),
                });
            }
            Some(_) => {
                return Err(DeviceError::Timeout {
                    place: place(),
                    after_ns: 1_000_000_000,
                    reason: "injected".to_owned(),
                });
            }
        }
        let side = |slot: usize| -> Result<Vec<u8>, DeviceError> {
            let mut bytes = self.object(&buffers[slot])?.device().clone();
            if slot != Y {
                self.corrupt(loaded, slot, &mut bytes);
            }
            Ok(bytes)
        };
        let x: Vec<f32> = numbers(&side(X)?);
        let w: Vec<f16> = numbers(&side(W)?);
        let y = self.multiply(loaded.program, &x, &w);
        let mut bytes = bytemuck::cast_slice(&y).to_vec();
        self.corrupt(loaded, Y, &mut bytes);
        self.object(&buffers[Y])?
            .device_mut()
            .copy_from_slice(&bytes);
        Ok(Completion {
            duration_ns: run_ns(loaded.program).round() as u64,
            provenance: provenance(),
            trace: None,
            energy: None,
        })
    }

    /// Sums in f32, in order of k.
    fn multiply(&self, program: Program, x: &[f32], w: &[f16]) -> Vec<f32> {
        let (k, n) = (program.k as usize, program.n as usize);
        let mut y = vec![0.0; program.m as usize * n];
        self.cpu.pool().run_pieces(&mut y, n, &|row, y| {
            let x = &x[row * k..][..k];
            let mut w_row = vec![0.0; k];
            for (y, w) in y.iter_mut().zip(w.chunks_exact(k)) {
                w.convert_to_f32_slice(&mut w_row);
                *y = x.iter().zip(&w_row).map(|(x, w)| x * w).sum();
            }
        });
        y
    }

    fn corrupt(&self, loaded: &Loaded, slot: usize, bytes: &mut [u8]) {
        for (wrong, how) in lock(&self.injections).corrupted(&loaded.name, &loaded.slots) {
            if wrong == slot {
                let changed = inject::corrupt(how, &loaded.slots[slot], bytes);
                let mut corrupted = lock(&self.corrupted);
                corrupted.n_applied += 1;
                corrupted.n_changed += u64::from(changed);
            }
        }
    }
}

impl Device for ToyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn held(&self) -> Held {
        self.holdings.held()
    }

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        let owner = self.owner()?;
        if lock(&self.injections).take(Event::Allocation).is_some() {
            return Err(DeviceError::NotPinned {
                asked_bytes: size_bytes,
                reason: "injected".to_owned(),
            });
        }
        let lease = self.holdings.buffer(size_bytes)?;
        let buffer = RamBuffer::alloc(owner, size_bytes, usage, MEMORY_BYTES)?;
        Ok(Arc::new(buffer.leased(lease)))
    }

    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        let owner = self.owner()?;
        if container.target() != NAME {
            return Err(DeviceError::Target {
                expected: NAME.to_owned(),
                found: container.target().to_owned(),
            });
        }
        let refused = |reason| DeviceError::Refused {
            program: container.name().to_owned(),
            reason,
        };
        if lock(&self.injections).take(Event::Load).is_some() {
            return Err(refused("injected".to_owned()));
        }
        Ok(Arc::new(Loaded {
            owner,
            program: Program::from_container(container).map_err(refused)?,
            name: container.name().to_owned(),
            slots: container.slots().to_vec(),
            _lease: self.holdings.program(),
        }))
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<Bound, DeviceError> {
        self.loaded(&**program)?;
        for buffer in buffers {
            self.object(buffer)?;
        }
        Bound::new(program, buffers)
    }

    fn submit(&self, bound: &Bound) -> Result<Fence, DeviceError> {
        let outcome = self.execute(self.loaded(&*bound.program)?, &bound.buffers);
        let id = self.next.fetch_add(1, Relaxed);
        lock(&self.ended).insert(id, outcome);
        let ended = self.ended.clone();
        Ok(Fence::new(self.number, id, move || {
            lock(&ended).remove(&id);
        }))
    }

    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError> {
        let id = fence.id(self.number)?;
        let outcome = lock(&self.ended).remove(&id);
        outcome.ok_or(DeviceError::UnknownFence)?
    }

    fn injector(&self) -> Option<&dyn Inject> {
        Some(self)
    }
}

impl Inject for ToyDevice {
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
        if self.is_lost.swap(false, Relaxed) {
            lock(&self.owners).push(unique_number());
        }
    }
}
