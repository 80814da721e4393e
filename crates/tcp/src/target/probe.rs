//! The probe for the command line: a virtual chip, alive or with a fault.

use super::{NAME, TcpTarget, machine};
use crate::device::{Chip, VirtualDevice};
use crate::lower::reduction::{Reduction, product};
use crate::lower::{TcpLowerOptions, Weights};
use crate::{Element, host};
use millrace_npu::{
    Buffer, Container, Corruption, Device, Direction, Injection, LoadedProgram, Provenance,
};
use millrace_plan::units::{bytes, duration};
use millrace_plan::{
    Choice, ProbeFigure, ProbeOf, ProbeReport, ProbeStatus, ProbeStep, Prober, SettingError,
    Settings,
};
use std::sync::Arc;

/// Name of a fault, its effect, and the injection for the device.
type DeviceFault = (&'static str, &'static str, fn() -> Injection);

const FAULTS: [DeviceFault; 5] = [
    ("not-pinned", "memory cannot be pinned", || {
        Injection::NotPinned
    }),
    ("refused", "the program is refused", || {
        Injection::RefuseLoad
    }),
    ("hung", "the first job hangs", || Injection::Timeout),
    ("gone", "the device disappears in the first job", || {
        Injection::Lose
    }),
    ("wrong", "the first result is wrong", || {
        Injection::Corrupt {
            program: PROGRAM.to_owned(),
            slot: "y".to_owned(),
            how: Corruption::Some,
        }
    }),
];

const PROGRAM: &str = "product";

/// Columns and rows of the product.
const SHAPE: [u64; 2] = [256, 512];

/// Steps in their order.
const STEPS: [&str; 5] = ["open", "memory", "load", "run", "compare"];

impl Prober for TcpTarget {
    fn faults(&self) -> Vec<Choice> {
        let choice = |(name, summary, _): &DeviceFault| Choice::new(name, summary);
        FAULTS.iter().map(choice).collect()
    }

    fn probe(&self, settings: &Settings, of: &ProbeOf) -> Result<ProbeReport, SettingError> {
        let (machine, profile) = machine(settings)?;
        let fault = match of {
            ProbeOf::Hardware => return Ok(no_hardware()),
            ProbeOf::Virtual(None) => None,
            ProbeOf::Virtual(Some(name)) => {
                let known = FAULTS.iter().find(|fault| fault.0 == name);
                let unknown = || SettingError::unknown(NAME, "fault", name, &self.faults());
                Some(known.ok_or_else(unknown)?.2())
            }
        };
        let provenance = profile.provenance();
        let [k, n] = SHAPE;
        let options = TcpLowerOptions::plain(Weights::Bf16);
        let lowered = product(&machine, options, [1, k, n], Reduction::Slice(1));
        let container = lowered
            .map_err(|error| error.to_string())
            .and_then(|lowered| {
                let container = lowered.program.to_container();
                container.map_err(|error| error.to_string())
            });
        let container = container.map_err(SettingError::Facts)?;
        let device = VirtualDevice::new(Chip::new(machine, profile, 1));
        if let (Some(fault), Some(injector)) = (fault, device.injector()) {
            injector.inject(fault);
        }
        Ok(probed(&device, &container, provenance))
    }
}

fn no_hardware() -> ProbeReport {
    let mut steps = Steps(Vec::new());
    let detail = "this program has no driver for an RNGD card".to_owned();
    let advice = "`--virtual` probes a virtual chip; `millrace export MODEL --device tcp` writes programs for the \
                  vendor's own toolchain";
    steps.add(Err((detail, Some(advice.to_owned()))));
    ProbeReport {
        place: "this computer".to_owned(),
        provenance: None,
        steps: steps.finish(),
        figures: Vec::new(),
        profile: None,
    }
}

/// Finding of a step, or why it failed and what to do.
type ProbeResult<T> = Result<T, (String, Option<String>)>;

/// Steps in order; those after a failure are skipped.
struct Steps(Vec<ProbeStep>);

impl Steps {
    fn add(&mut self, outcome: ProbeResult<String>) {
        let (status, detail, advice) = match outcome {
            Ok(detail) => (ProbeStatus::Ok, detail, None),
            Err((detail, advice)) => (ProbeStatus::Failed, detail, advice),
        };
        let name = STEPS
            .get(self.0.len())
            .copied()
            .unwrap_or_default()
            .to_owned();
        self.0.push(ProbeStep {
            name,
            status,
            detail,
            advice,
        });
    }

    /// Records the outcome of a step.
    fn done<T>(&mut self, outcome: ProbeResult<(T, String)>) -> Option<T> {
        let (value, told) = match outcome {
            Ok((value, detail)) => (Some(value), Ok(detail)),
            Err(failure) => (None, Err(failure)),
        };
        self.add(told);
        value
    }

    fn finish(mut self) -> Vec<ProbeStep> {
        for name in &STEPS[self.0.len().min(STEPS.len())..] {
            self.0.push(ProbeStep {
                name: (*name).to_owned(),
                status: ProbeStatus::Skipped,
                detail: "a step before it failed".to_owned(),
                advice: None,
            });
        }
        self.0
    }
}

fn probed(device: &VirtualDevice, container: &Container, provenance: Provenance) -> ProbeReport {
    let mut steps = Steps(Vec::new());
    let info = device.info();
    steps.add(Ok(format!(
        "{}, {} of memory",
        info.name,
        bytes(info.memory_bytes)
    )));
    let mut figures = Vec::new();
    let ran = steps.done(memory(device, container)).and_then(|buffers| {
        let program = steps.done(loaded(device, container))?;
        let ns = steps.done(run(device, &program, &buffers))?;
        figures.push(ProbeFigure {
            name: "product_ns",
            value: ns as f64,
        });
        Some(buffers)
    });
    if let Some(buffers) = ran {
        steps.add(compared(&buffers));
    }
    ProbeReport {
        place: info.name.clone(),
        provenance: Some(provenance),
        steps: steps.finish(),
        figures,
        profile: None,
    }
}

fn failed(error: impl std::fmt::Display) -> (String, Option<String>) {
    (error.to_string(), None)
}

/// Numbers that bf16 holds exactly, and whose sums of products do not cancel.
fn operands() -> [Vec<f32>; 2] {
    let [k, n] = SHAPE;
    let x = (0..k).map(|i| (i % 7) as f32 * 0.25);
    let w = (0..n * k).map(|i| (i % 11) as f32 * 0.125 - 0.25);
    [x.collect(), w.collect()]
}

/// Buffers for the product's slots, with its operands.
fn memory(
    device: &VirtualDevice,
    container: &Container,
) -> ProbeResult<(Vec<Arc<Buffer>>, String)> {
    let [x, w] = operands().map(|values| host::store(Element::Bf16, &values));
    let content = [x, w, vec![0; 2 * SHAPE[1] as usize]];
    let mut buffers = Vec::new();
    let mut total = 0;
    for (slot, data) in container.slots().iter().zip(&content) {
        let size_bytes = slot.size_bytes().unwrap_or(0);
        let buffer = device.alloc(size_bytes, slot.role.into()).map_err(failed)?;
        buffer.write(0, data).map_err(failed)?;
        buffer.sync(Direction::ToDevice).map_err(failed)?;
        total += size_bytes;
        buffers.push(buffer);
    }
    let detail = format!("{} buffers, {} written", buffers.len(), bytes(total));
    Ok((buffers, detail))
}

fn loaded(
    device: &VirtualDevice,
    container: &Container,
) -> ProbeResult<(Arc<dyn LoadedProgram>, String)> {
    let program = device.load(container).map_err(failed)?;
    let [k, n] = SHAPE;
    Ok((program, format!("a product of {n} × {k} in bf16, verified")))
}

fn run(
    device: &VirtualDevice,
    program: &Arc<dyn LoadedProgram>,
    buffers: &[Arc<Buffer>],
) -> ProbeResult<(u64, String)> {
    let bound = device.bind(program, buffers).map_err(failed)?;
    let fence = device.submit(&bound).map_err(failed)?;
    let ns = device.wait(fence).map_err(failed)?.duration_ns;
    Ok((ns, duration(ns as f64)))
}

/// The result against the host's, within its rounding to bf16.
fn compared(buffers: &[Arc<Buffer>]) -> ProbeResult<String> {
    let [x, w] = operands();
    let mut found = vec![0.0; SHAPE[1] as usize];
    let y = &buffers[buffers.len() - 1];
    y.sync(Direction::FromDevice).map_err(failed)?;
    let read = |content: &[u8]| Element::Bf16.decode(content, 0, &mut found);
    y.read_with(read).map_err(failed)?;
    for (row, (w, y)) in w.chunks(x.len()).zip(&found).enumerate() {
        let exact: f64 = (x.iter().zip(w)).map(|(x, w)| f64::from(x * w)).sum();
        let error = (f64::from(*y) - exact).abs();
        let is_near = error <= exact.abs() / 256.0 + 1e-6;
        if !is_near {
            let detail = format!("element {row} is {y}, {exact} was expected");
            return Err((detail, None));
        }
    }
    Ok(format!(
        "{} results within their rounding to bf16",
        found.len()
    ))
}
