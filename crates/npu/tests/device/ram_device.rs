//! A small device in memory, and ways for it to be wrong.

use millrace_npu::conformance::{Sample, Subject};
use millrace_npu::device::{check_bindings, unique_number};
use millrace_npu::held::{DeviceUsage, Holdings, Lease};
use millrace_npu::ram::RamBuffer;
use millrace_npu::{
    BoundProgram, Buffer, Completion, Container, Device, DeviceError, DeviceInfo, Element,
    ErrorPlace, Fence, LoadedProgram, Provenance, Role, Slot, Usage,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

pub(crate) const TARGET: &str = "ram";
const MEMORY_BYTES: u64 = 1 << 20;

/// Defect of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    WrongResult,
    SeesUnsyncedBytes,
    ScribblesOnInputs,
    TakesAnyTarget,
    TakesAnyPayload,
    TakesAnyBinding,
    TakesForeignFences,
    TakesForeignPrograms,
    OneFenceForAll,
    HidesFaults,
    OtherProvenance,
    HugeBuffers,
    DirtyBuffers,
    KeepsPrograms,
    ForgetsBuffers,
    LiesAboutMemory,
}

struct Program {
    owner: u64,
    name: String,
    slots: Vec<Slot>,
    /// `None` is a program that faults.
    factor: Option<u8>,
    _lease: Lease,
}

impl LoadedProgram for Program {
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

type Outcome = Result<Completion, DeviceError>;

struct Job {
    program: Arc<dyn LoadedProgram>,
    buffers: Vec<Arc<Buffer>>,
    reply: Sender<Outcome>,
}

pub(crate) struct RamDevice {
    number: u64,
    info: DeviceInfo,
    defect: Defect,
    holdings: Arc<Holdings>,
    next: AtomicU64,
    jobs: Sender<Job>,
    results: Arc<Mutex<HashMap<u64, Receiver<Outcome>>>>,
}

impl RamDevice {
    pub(crate) fn new(defect: Defect) -> RamDevice {
        let number = unique_number();
        let (jobs, queue) = channel::<Job>();
        std::thread::spawn(move || {
            for job in queue {
                let outcome = execute(&job, number, defect);
                let reply = job.reply.clone();
                // After the wait, program and buffers are already released.
                drop(job);
                let _ = reply.send(outcome);
            }
        });
        let provenance = Provenance::Measured("nothing".into());
        RamDevice {
            number,
            info: DeviceInfo {
                name: "memory".into(),
                target: TARGET.into(),
                memory_bytes: MEMORY_BYTES,
                max_buffer_bytes: MEMORY_BYTES,
                coherent: false,
                provenance,
            },
            defect,
            holdings: Holdings::new(MEMORY_BYTES),
            next: AtomicU64::new(0),
            jobs,
            results: Arc::default(),
        }
    }
}

/// y = factor · x + w; t is scratch.
fn execute(job: &Job, owner: u64, defect: Defect) -> Outcome {
    let program = job.program.as_any().downcast_ref::<Program>().unwrap();
    let Some(mut factor) = program.factor else {
        if defect != Defect::HidesFaults {
            return Err(DeviceError::Fault {
                place: Box::new(ErrorPlace::of(&program.name)),
                reason: "it was asked to".into(),
            });
        }
        return Ok(completion(defect));
    };
    if defect == Defect::WrongResult {
        factor += 1;
    }
    let content = |slot: usize| {
        let mut bytes = RamBuffer::of(&job.buffers[slot], owner)
            .unwrap()
            .device()
            .clone();
        if defect == Defect::SeesUnsyncedBytes {
            job.buffers[slot]
                .read_with(|view| bytes = view.to_vec())
                .unwrap();
        }
        bytes
    };
    let (x, w) = (content(0), content(1));
    let write = |slot: usize, bytes: &[u8]| {
        let object = RamBuffer::of(&job.buffers[slot], owner).unwrap();
        object.device_mut().copy_from_slice(bytes);
    };
    let scaled: Vec<u8> = x.iter().map(|b| b.wrapping_mul(factor)).collect();
    write(2, &scaled);
    let y: Vec<u8> = scaled
        .iter()
        .zip(&w)
        .map(|(a, b)| a.wrapping_add(*b))
        .collect();
    write(3, &y);
    if defect == Defect::ScribblesOnInputs {
        write(1, &y);
    }
    Ok(completion(defect))
}

fn completion(defect: Defect) -> Completion {
    let source = match defect {
        Defect::OtherProvenance => "a guess",
        _ => "nothing",
    };
    Completion {
        duration_ns: 1,
        provenance: Provenance::Measured(source.into()),
        trace: None,
        energy: None,
    }
}

impl Device for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn held(&self) -> DeviceUsage {
        self.holdings.held()
    }

    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError> {
        let size = match self.defect {
            Defect::HugeBuffers => size_bytes.min(MEMORY_BYTES),
            _ => size_bytes,
        };
        let lease = match self.defect {
            Defect::LiesAboutMemory => Holdings::new(MEMORY_BYTES).buffer(size)?,
            _ => self.holdings.buffer(size)?,
        };
        let buffer = RamBuffer::alloc(self.number, size, usage, MEMORY_BYTES)?;
        if self.defect == Defect::ForgetsBuffers {
            std::mem::forget(lease);
            return Ok(Arc::new(buffer));
        }
        let buffer = buffer.leased(lease);
        if self.defect == Defect::DirtyBuffers {
            RamBuffer::of(&buffer, self.number)?.device_mut()[0] = 1;
        }
        Ok(Arc::new(buffer))
    }

    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        if container.target() != TARGET && self.defect != Defect::TakesAnyTarget {
            return Err(DeviceError::Target {
                expected: TARGET.into(),
                found: container.target().into(),
            });
        }
        let text = std::str::from_utf8(container.payload()).unwrap_or("");
        let factor = match text.strip_prefix("scale-add ").map(str::parse) {
            Some(Ok(factor)) => Some(factor),
            _ if text == "fault!" => None,
            _ if self.defect == Defect::TakesAnyPayload => Some(1),
            _ => {
                return Err(DeviceError::Refused {
                    program: container.name().into(),
                    reason: "the payload is neither `scale-add N` nor `fault!`".into(),
                });
            }
        };
        let lease = self.holdings.program();
        if self.defect == Defect::KeepsPrograms {
            std::mem::forget(self.holdings.program());
        }
        Ok(Arc::new(Program {
            _lease: lease,
            owner: self.number,
            name: container.name().into(),
            slots: container.slots().to_vec(),
            factor,
        }))
    }

    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<BoundProgram, DeviceError> {
        let own = program.as_any().downcast_ref::<Program>();
        let own = own.filter(|p| p.owner == self.number);
        if own.is_none() && self.defect != Defect::TakesForeignPrograms {
            return Err(DeviceError::ForeignProgram(program.name().into()));
        }
        if self.defect != Defect::TakesAnyBinding {
            check_bindings(&**program, buffers)?;
        }
        for buffer in buffers {
            RamBuffer::of(buffer, self.number)?;
        }
        Ok(BoundProgram {
            program: program.clone(),
            buffers: buffers.to_vec(),
            stream: None,
        })
    }

    fn submit(&self, bound: &BoundProgram) -> Result<Fence, DeviceError> {
        let own = bound.program.as_any().downcast_ref::<Program>();
        let own = own.filter(|p| p.owner == self.number);
        if own.is_none() && self.defect != Defect::TakesForeignPrograms {
            return Err(DeviceError::ForeignProgram(bound.program.name().into()));
        }
        let id = match self.defect {
            Defect::OneFenceForAll => 0,
            _ => self.next.fetch_add(1, Relaxed),
        };
        let (reply, result) = channel();
        self.results.lock().unwrap().insert(id, result);
        let job = Job {
            program: bound.program.clone(),
            buffers: bound.buffers.clone(),
            reply,
        };
        self.jobs
            .send(job)
            .map_err(|e| DeviceError::Driver(e.to_string()))?;
        let results = self.results.clone();
        let forget = move || {
            results.lock().unwrap().remove(&id);
        };
        Ok(Fence::new(self.number, id, forget))
    }

    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError> {
        let id = match self.defect {
            Defect::TakesForeignFences => return Ok(completion(self.defect)),
            _ => fence.id(self.number)?,
        };
        let result = self.results.lock().unwrap().remove(&id);
        let result = result.ok_or(DeviceError::UnknownFence)?;
        result
            .recv()
            .map_err(|e| DeviceError::Driver(e.to_string()))?
    }
}

/// y = factor · x + w over `n` bytes.
pub(crate) fn program(name: &str, n: u64, payload: &str) -> Container {
    let roles = [
        ("x", Role::Input),
        ("w", Role::Static),
        ("t", Role::Intermediate),
        ("y", Role::Output),
    ];
    let slots = roles.map(|(name, role)| Slot {
        name: name.into(),
        element: Element::U8,
        shape: vec![n],
        role,
    });
    Container::new(TARGET, name, slots.into(), payload.into()).unwrap()
}

pub(crate) fn sample(name: &str, n: u64, factor: u8) -> Sample {
    let x: Vec<u8> = (0..n).map(|i| (i * 7 + 1) as u8).collect();
    let w: Vec<u8> = (0..n).map(|i| (i * i) as u8).collect();
    let y = x
        .iter()
        .zip(&w)
        .map(|(x, w)| x.wrapping_mul(factor).wrapping_add(*w));
    Sample {
        container: program(name, n, &format!("scale-add {factor}")),
        outputs: vec![None, None, None, Some(y.collect())],
        inputs: vec![Some(x), Some(w), None, None],
    }
}

pub(crate) fn subject(defect: Defect) -> Subject {
    let mut faulty = sample("faulty", 16, 1);
    faulty.container = program("faulty", 16, "fault!");
    Subject {
        device: Arc::new(RamDevice::new(defect)),
        samples: vec![sample("triple", 100, 3), sample("one", 1, 5)],
        faulty: Some(faulty),
    }
}
