//! Kernels one by one: built, verified, computed, timed.

use super::{machine, weights};
use crate::lower::ops::{KERNELS, Op, OpKernel};
use crate::lower::{TcpLowerOptions, Weights};
use crate::program::{parse, print};
use crate::target::planner::limits;
use crate::timing::{self, TimedProgram};
use crate::{Machine, Profile, Program, simulate, verify};
use millrace_kernels::Cpu;
use millrace_npu::{Role, Slot};
use millrace_plan::units::{bytes, duration};
use millrace_plan::workbench::{SlotOutput, contents};
use millrace_plan::{
    BenchError, Choice, KernelReport, KernelRequest, KernelSubject, ReportLine, Sweep, Workbench,
};
use serde_json::json;
use std::time::Instant;

pub(super) struct TcpBench;

/// A kernel's constant that no model gives.
const NORM_EPS: f32 = 1e-5;

struct ProgramCase {
    name: String,
    heading: String,
    program: Program,
    /// Lines of an explanation.
    notes: Vec<String>,
    flops: u64,
    machine: Machine,
    profile: Profile,
}

fn usage(message: String, hint: impl Into<String>) -> BenchError {
    BenchError::Usage {
        message,
        hint: hint.into(),
    }
}

/// `s_qxDxF`, as shapes are written.
fn axes(kernel: &OpKernel) -> String {
    kernel.axes.join(" x ")
}

impl ProgramCase {
    fn new(request: &KernelRequest) -> Result<ProgramCase, BenchError> {
        let (machine, profile) = machine(&request.settings)?;
        match &request.subject {
            KernelSubject::Program { text, .. } => {
                let program = parsed(text)?;
                Ok(ProgramCase {
                    name: program.name.clone(),
                    heading: format!("on {}", machine.name),
                    notes: Vec::new(),
                    flops: 0,
                    program,
                    machine,
                    profile,
                })
            }
            KernelSubject::Kernel { name, shape, tile } => {
                if tile.is_some() {
                    let message = "this target's mappings have no tiling to choose".to_owned();
                    return Err(usage(message, "leave --tile out"));
                }
                let weights = weights(&request.settings)?;
                let (kernel, op) = op(name, shape, weights)?;
                let lowered = op.lower(
                    &name.replace('-', "_"),
                    &machine,
                    TcpLowerOptions::plain(weights).of_model(weights),
                );
                let lowered = lowered.map_err(|error| usage(error.to_string(), ""))?;
                let cut: Vec<String> = lowered
                    .cut
                    .iter()
                    .map(|(name, n)| format!("{name}={n}"))
                    .collect();
                let notes = lowered.lowered.notes.iter();
                let mut notes: Vec<String> = notes.map(ToString::to_string).collect();
                if !cut.is_empty() {
                    notes.push(format!("cut: {}", cut.join(", ")));
                }
                Ok(ProgramCase {
                    name: name.clone(),
                    heading: format!("{} = {shape}  on {}", axes(kernel), machine.name),
                    program: lowered.lowered.program,
                    notes,
                    flops: op.flops(),
                    machine,
                    profile,
                })
            }
        }
    }

    fn verified(&self) -> Result<(), BenchError> {
        verify(&self.program, &self.machine)
            .map(|_| ())
            .map_err(|refusals| {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                BenchError::Failed(all.join("\n"))
            })
    }

    fn slots(&self) -> Result<Vec<Slot>, BenchError> {
        let slots = self.program.slots();
        slots.map_err(|error| BenchError::Input(error.to_string()))
    }
}

fn op(name: &str, shape: &str, weights: Weights) -> Result<(&'static OpKernel, Op), BenchError> {
    let kernel = OpKernel::named(name).ok_or_else(|| {
        let known: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
        BenchError::NotFound {
            message: format!("no kernel `{name}`"),
            hint: format!("there are {}", known.join(", ")),
        }
    })?;
    let sizes: Vec<Option<u64>> = shape.split('x').map(|n| n.trim().parse().ok()).collect();
    let sizes: Option<Vec<u64>> = sizes.into_iter().collect();
    let sizes = sizes.filter(|sizes| sizes.len() == kernel.axes.len() && !sizes.contains(&0));
    let sizes = sizes.ok_or_else(|| {
        let message = format!("`{shape}` is no shape of {name}");
        usage(message, format!("its dimensions are {}", axes(kernel)))
    })?;
    let head_dim = kernel
        .axes
        .iter()
        .zip(&sizes)
        .find(|(axis, _)| **axis == "d_k");
    let op = Op {
        kind: kernel.kind,
        norm_eps: NORM_EPS,
        attention_scale: head_dim.map_or(1.0, |(_, n)| 1.0 / (*n as f32).sqrt()),
        weights,
        sizes,
    };
    Ok((kernel, op))
}

fn parsed(text: &str) -> Result<Program, BenchError> {
    parse(text).map_err(|error| BenchError::Input(error.to_string()))
}

impl Workbench for TcpBench {
    fn kernels(&self) -> Vec<Choice> {
        let line = |kernel: &OpKernel| format!("{}: {}", axes(kernel), kernel.summary);
        let rows = KERNELS.iter();
        rows.map(|kernel| Choice::new(kernel.name, &line(kernel)))
            .collect()
    }

    fn kernel(&self, request: &KernelRequest, cpu: &Cpu) -> Result<KernelReport, BenchError> {
        let case = ProgramCase::new(request)?;
        case.verified()?;
        let timed = TimedProgram::new(&case.program, &case.machine, &case.profile);
        let timed = timed.map_err(|broken| BenchError::Failed(broken.message))?;
        let timing = timing::predict(&timed, &case.machine, &case.profile);
        let provenance = case.profile.provenance();
        let mut lines: Vec<ReportLine> = Vec::new();
        for (i, note) in case.notes.iter().enumerate() {
            lines.push(ReportLine::plain(if i == 0 { "op" } else { "" }, note));
        }
        lines.push(ReportLine::plain(
            "limits",
            limits(&case.program, &case.machine),
        ));
        let rate = match case.flops {
            0 => String::new(),
            n => format!(", {:.1} TFLOP/s", n as f64 / timing.total_ns / 1e3),
        };
        let time = duration(timing.total_ns);
        lines.push(ReportLine::plain(
            "time",
            format!("{time}{rate}, {provenance}"),
        ));
        lines.push(ReportLine::plain(
            "memory",
            format!("{} moved", bytes(timing.hbm_bytes as u64)),
        ));
        for (queue, busy) in &timing.busy_ns {
            let share = 100.0 * busy / timing.total_ns.max(f64::MIN_POSITIVE);
            lines.push(ReportLine::plain("", format!("{queue} busy {share:.0} %")));
        }
        let mut produced = Vec::new();
        let mut outputs = Vec::new();
        if !request.time_only {
            let (found, wanted) = case.compute(request, cpu, &mut lines)?;
            (produced, outputs) = (found, wanted);
        }
        let trace = request.trace_spans > 0;
        Ok(KernelReport {
            json: json!({
                "name": case.name,
                "notes": case.notes,
                "ns": timing.total_ns,
                "hbm_bytes": timing.hbm_bytes,
                "n_commands": case.program.commands.len(),
                "flops": case.flops,
                "outputs": produced,
                "times": provenance.to_string(),
            }),
            name: case.name,
            heading: case.heading,
            lines,
            trace: trace.then(|| timing::trace(&timed, &case.machine, &case.profile)),
            outputs,
            wrong: None,
        })
    }

    fn slots(&self, text: &str) -> Result<Vec<Slot>, BenchError> {
        let slots = parsed(text)?.slots();
        slots.map_err(|error| BenchError::Input(error.to_string()))
    }

    fn program_text(&self, request: &KernelRequest) -> Result<String, BenchError> {
        Ok(print(&ProgramCase::new(request)?.program))
    }

    fn sweep(
        &self,
        request: &KernelRequest,
        _progress: &mut dyn FnMut(usize, usize, &str),
    ) -> Result<Sweep, BenchError> {
        ProgramCase::new(request)?;
        let message = "this target's mappings have no tiling to choose".to_owned();
        Err(usage(message, "leave --sweep out"))
    }
}

impl ProgramCase {
    /// Runs it over random slots; reports the contents, and gives the slots that are wanted.
    fn compute(
        &self,
        request: &KernelRequest,
        cpu: &Cpu,
        lines: &mut Vec<ReportLine>,
    ) -> Result<(Vec<SlotOutput>, Vec<Vec<u8>>), BenchError> {
        let slots = self.slots()?;
        let (given, wanted) = match &request.subject {
            KernelSubject::Program {
                inputs, outputs, ..
            } => (&inputs[..], &outputs[..]),
            KernelSubject::Kernel { .. } => (&[][..], &[][..]),
        };
        let mut content = contents(&slots, given, request.seed)?;
        let options = simulate::SimulationOptions {
            n_threads: cpu.pool().n_threads(),
            ..simulate::SimulationOptions::default()
        };
        let start = Instant::now();
        simulate::run(&self.program, &mut content, &options)
            .map_err(|fault| BenchError::Failed(fault.to_string()))?;
        let host_ns = start.elapsed().as_nanos() as f64;
        let text = format!(
            "{} on this computer, which says nothing of the chip",
            duration(host_ns)
        );
        lines.push(ReportLine::plain("computed", text));
        let left = slots.iter().zip(&content);
        let left = left.filter(|(slot, _)| slot.role == Role::Output);
        let produced: Vec<SlotOutput> = left
            .map(|(slot, bytes)| SlotOutput::of(slot, bytes))
            .collect();
        for one in &produced {
            let text = format!(
                "{}: {:.4} to {:.4}, mean {:.4}, {} not finite",
                one.slot, one.least, one.greatest, one.mean, one.n_not_finite
            );
            lines.push(ReportLine::plain("", text));
        }
        let slot = |name: &String| {
            let at = slots.iter().position(|slot| slot.name == *name);
            let at = at.ok_or_else(|| BenchError::Input(format!("no slot `{name}`")))?;
            Ok(content[at].clone())
        };
        let outputs: Result<Vec<Vec<u8>>, BenchError> = wanted.iter().map(slot).collect();
        Ok((produced, outputs?))
    }
}
