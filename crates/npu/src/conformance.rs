//! Requirements on every [`Device`], as checks that any device can be put through. A target calls [`run`] in its tests
//! with its own devices and a few programs whose results it knows. For virtual devices it calls [`run_virtual`], which
//! asks for more. That is memory that nobody else takes from, a host whose caches never send a byte by themselves,
//! failures on request.

mod buffers;
mod injected;
mod programs;

use crate::cache::ProgramCache;
use crate::{
    Buffer, Completion, Container, Device, DeviceError, Direction, Fence, LoadedProgram, Role,
};
use std::sync::Arc;

/// A device to check, with the data for the checks.
pub struct Subject {
    /// The device, fresh.
    pub device: Arc<dyn Device>,
    /// Programs with known results, at least one with an input and an output.
    pub samples: Vec<Sample>,
    /// A program that loads, then fails while it runs, where the device has one.
    pub faulty: Option<Sample>,
}

/// A program with data.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The program.
    pub container: Container,
    /// An entry a slot: data of `input` and `static` slots.
    pub inputs: Vec<Option<Vec<u8>>>,
    /// An entry a slot: the expected content of `output` slots after the run.
    pub outputs: Vec<Option<Vec<u8>>>,
}

/// A check that a device did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The check's name.
    pub check: &'static str,
    /// Description of the problem.
    pub problem: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.check, self.problem)
    }
}

/// Makes subjects, each with a new device.
pub type Factory<'a> = &'a dyn Fn() -> Subject;

/// A check.
pub type Check = fn(Factory<'_>) -> Result<(), String>;

/// Requirements on every device.
pub const CHECKS: &[(&str, Check)] = &[
    ("info", info),
    ("alloc", buffers::alloc),
    ("map_and_sync", buffers::map_and_sync),
    ("accounting", buffers::accounting),
    ("run", programs::run),
    ("leaves_inputs_alone", programs::leaves_inputs_alone),
    ("target", programs::target),
    ("payload", programs::payload),
    ("bindings", programs::bindings),
    ("foreign", programs::foreign),
    ("fences", programs::fences),
    ("in_flight", programs::in_flight),
    ("keeps_alive", programs::keeps_alive),
    ("threads", programs::threads),
    ("fault", programs::fault),
    ("cache", cache),
];

/// Further requirements on a virtual device. Those of injected failures are for devices with an
/// [injector](Device::injector).
pub const VIRTUAL_CHECKS: &[(&str, Check)] = &[
    ("needs_sync", programs::needs_sync),
    ("memory", buffers::memory),
    ("held", programs::held),
    ("stops", injected::stops),
    ("lost", injected::lost),
    ("refuses", injected::refuses),
    ("corrupts", injected::corrupts),
];

/// Runs the checks of every device on devices of the factory.
pub fn run(factory: Factory<'_>) -> Vec<Failure> {
    failures(CHECKS.iter(), factory)
}

/// Runs all checks on virtual devices.
pub fn run_virtual(factory: Factory<'_>) -> Vec<Failure> {
    failures(CHECKS.iter().chain(VIRTUAL_CHECKS), factory)
}

fn failures<'c>(
    checks: impl Iterator<Item = &'c (&'static str, Check)>,
    factory: Factory<'_>,
) -> Vec<Failure> {
    checks
        .filter_map(|&(check, run)| {
            let problem = run(factory).err()?;
            Some(Failure { check, problem })
        })
        .collect()
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(problem()),
    }
}

fn text<T>(result: Result<T, DeviceError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn info(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let info = subject.device.info();
    ensure(!info.name.is_empty(), || "it has no name".to_owned())?;
    ensure(info.max_buffer_bytes > 0, || "no buffer fits".to_owned())?;
    ensure(info.max_buffer_bytes <= info.memory_bytes, || {
        "one buffer may exceed the memory".to_owned()
    })?;
    ensure(!subject.samples.is_empty(), || {
        "no sample is given".to_owned()
    })?;
    for sample in &subject.samples {
        let target = sample.container.target();
        ensure(target == info.target, || {
            format!("its target is `{}`, a sample's `{target}`", info.target)
        })?;
    }
    Ok(())
}

/// A sample ready to run: program and buffers with their content, synchronised.
struct Ready {
    sample: Sample,
    program: Arc<dyn LoadedProgram>,
    buffers: Vec<Arc<Buffer>>,
}

impl Ready {
    fn new(device: &dyn Device, sample: &Sample) -> Result<Ready, String> {
        let program = text(device.load(&sample.container))?;
        ensure(program.slots() == sample.container.slots(), || {
            "a loaded program has other slots than its container".to_owned()
        })?;
        let mut buffers = Vec::new();
        for (slot, data) in sample.container.slots().iter().zip(&sample.inputs) {
            let size = slot.size_bytes().unwrap_or(u64::MAX);
            let buffer = text(device.alloc(size, slot.role.into()))?;
            if let Some(data) = data {
                text(buffer.write(0, data))?;
                text(buffer.sync(Direction::ToDevice))?;
            }
            buffers.push(buffer);
        }
        Ok(Ready {
            sample: sample.clone(),
            program,
            buffers,
        })
    }

    fn run(&self, device: &dyn Device) -> Result<Completion, String> {
        let fence = text(self.submit(device))?;
        text(device.wait(fence))
    }

    fn submit(&self, device: &dyn Device) -> Result<Fence, DeviceError> {
        device.submit(&device.bind(&self.program, &self.buffers)?)
    }

    /// Compares the outputs with the expected ones of the sample.
    fn check_outputs(&self) -> Result<(), String> {
        let slots = self.sample.container.slots().iter();
        for ((slot, expected), buffer) in slots.zip(&self.sample.outputs).zip(&self.buffers) {
            let Some(expected) = expected else {
                continue;
            };
            text(buffer.sync(Direction::FromDevice))?;
            let mut found = vec![0; expected.len()];
            text(buffer.read(0, &mut found))?;
            if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
                return Err(format!(
                    "`{}` slot `{}`: byte {at} is {}, not {}",
                    self.sample.container.name(),
                    slot.name,
                    found[at],
                    expected[at]
                ));
            }
        }
        Ok(())
    }
}

/// The cache over this device: static slots cross once, results stay right.
fn cache(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let cache = ProgramCache::new(subject.device.clone());
    for sample in &subject.samples {
        let size = |role: Role| -> u64 {
            let slots = sample.container.slots().iter();
            let sizes = slots
                .filter(|s| s.role == role)
                .filter_map(|s| s.size_bytes());
            sizes.sum()
        };
        let inputs: Vec<Option<&[u8]>> = sample.inputs.iter().map(Option::as_deref).collect();
        for round in 0..3 {
            let call = cache
                .load_and_run(&sample.container, sample.container.name(), &inputs)
                .map_err(|error| error.to_string())?;
            let constant = if round == 0 { size(Role::Static) } else { 0 };
            let expected = constant + size(Role::Input);
            let traffic = call.traffic;
            ensure(traffic.to_device_bytes == expected, || {
                let found = traffic.to_device_bytes;
                format!("call {round} sent {found} bytes to the device, not {expected}")
            })?;
            ensure(traffic.from_device_bytes == size(Role::Output), || {
                format!("call {round} fetched {} bytes", traffic.from_device_bytes)
            })?;
            for (found, expected) in call.outputs.iter().zip(&sample.outputs) {
                if let Some(expected) = expected {
                    ensure(found == expected, || {
                        format!("call {round} gave another result")
                    })?;
                }
            }
        }
    }
    Ok(())
}
