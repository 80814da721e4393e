//! Demands of a command on the engines.

use super::{Findings, Rule};
use crate::axes::DigitLayout;
use crate::flow::FlowStream;
use crate::program::{
    Context, Dma, Engine, LaneMode, Place, Program, SliceKernel, Stage, VectorOp, VectorOperand,
};
use crate::{Element, Machine};

pub(super) fn engines(program: &Program, machine: &Machine, dma: &Dma, found: &mut Findings) {
    let place = format!("move `{}`", dma.name);
    if let Engine::Tdma { first, count } = dma.engine {
        let end = first.saturating_add(count);
        if count == 0 || end > machine.dma_engines {
            let message = format!(
                "engines {first} to {end}; there are {}, numbered from 0",
                machine.dma_engines
            );
            found.add(Rule::Engines, &place, message);
        }
    }
    let register = |tensor: usize| {
        let place = program.tensors.get(tensor).map(|t| &t.place);
        matches!(place, Some(Place::Trf { .. } | Place::Vrf { .. }) | None)
    };
    if register(dma.from.tensor) || register(dma.to.tensor) {
        let message = "DMA moves between HBM and data memory; register files are filled by kernels";
        found.add(Rule::Place, &place, message);
    }
}

/// Most terms of one sum.
const MAX_TERMS: u64 = 1 << 22;

/// The kernel's demands, stage by stage.
pub(super) fn kernel(
    program: &Program,
    machine: &Machine,
    kernel: &SliceKernel,
    streams: &[FlowStream],
    found: &mut Findings,
) {
    let mut checker = Checker {
        program,
        machine,
        kernel,
        streams,
        problems: Vec::new(),
    };
    checker.vector();
    for number in 0..streams.len() {
        checker.stage(number);
    }
    let problems = std::mem::take(&mut checker.problems);
    for (rule, stage, message) in problems {
        let place = format!("kernel `{}`, stage {}", kernel.name, stage + 1);
        found.add(rule, &place, message);
    }
}

struct Checker<'p> {
    program: &'p Program,
    machine: &'p Machine,
    kernel: &'p SliceKernel,
    streams: &'p [FlowStream],
    problems: Vec<(Rule, usize, String)>,
}

impl Checker<'_> {
    fn add(&mut self, rule: Rule, stage: usize, message: String) {
        self.problems.push((rule, stage, message));
    }

    fn stage(&mut self, at: usize) {
        let (stage, stream) = (&self.kernel.stages[at], &self.streams[at]);
        let is_wide = matches!(stream.element, Element::F32 | Element::I32);
        match stage {
            Stage::Fetch { .. } => self.sequencer(at, stream),
            Stage::Collect { .. } | Stage::Transpose { .. } => self.flit(at, stream),
            Stage::Lane { .. } => self.flit(at, stream),
            Stage::Vector { .. } if is_wide => self.flit(at, stream),
            Stage::Outer { .. } => self.products(at),
            Stage::Time { .. } => {
                self.accumulators(at);
                self.terms(at);
            }
            Stage::Reduce { .. } => {
                self.reduce_slots(at);
                self.terms(at);
            }
            Stage::Ring { .. } => self.terms(at),
            Stage::Switch { slice, .. } => {
                let slices = slice.size(&self.program.axes).unwrap_or(0);
                if slices > self.machine.ring_slices {
                    let message = format!("a ring of {slices} slices; a cluster has 256");
                    self.add(Rule::Spatial, at, message);
                }
            }
            Stage::Commit { .. } => {
                if self.kernel.context == Context::Sub {
                    let message = "the sub context does not write data memory".to_owned();
                    self.add(Rule::SubContext, at, message);
                }
                self.sequencer(at, stream);
            }
            _ => {}
        }
        let is_main_only = matches!(
            stage,
            Stage::Outer { .. } | Stage::Vector { .. } | Stage::Reduce { .. } | Stage::Ring { .. }
        );
        if is_main_only && self.kernel.context == Context::Sub {
            let message = "the sub context has no contraction and no vector stages".to_owned();
            self.add(Rule::SubContext, at, message);
        }
    }

    fn flit(&mut self, at: usize, stream: &FlowStream) {
        let (bytes, limit) = (stream.packet_bytes(), self.machine.flit_bytes);
        if bytes > limit {
            let message = format!(
                "a flit of {} {} is {bytes} bytes; at most {limit}",
                stream.packet.size(),
                stream.element
            );
            self.add(Rule::Flit, at, message);
        }
    }

    fn sequencer(&mut self, at: usize, stream: &FlowStream) {
        let order = stream.time.followed_by(&stream.packet).canonical();
        let entries = order.digits.len() as u64;
        if entries > self.machine.sequencer_entries {
            let message = format!(
                "{entries} loops; a sequencer has {}",
                self.machine.sequencer_entries
            );
            self.add(Rule::Sequencer, at, message);
        }
        let largest = order.digits.iter().map(|d| d.size).max().unwrap_or(1);
        if largest > self.machine.sequencer_size {
            let message = format!(
                "a loop of {largest}; a sequencer counts to {}",
                self.machine.sequencer_size
            );
            self.add(Rule::Sequencer, at, message);
        }
    }

    fn products(&mut self, at: usize) {
        let Some(before) = at.checked_sub(1).map(|i| &self.streams[i]) else {
            return;
        };
        let bytes = before.element.bytes(self.streams[at].packet.size());
        let full = self.machine.packet_bytes;
        if bytes != full && bytes != full / 2 {
            let message = format!(
                "packets of {} {} are {bytes} bytes; expected {} or {full}",
                self.streams[at].packet.size(),
                before.element,
                full / 2
            );
            self.add(Rule::PacketSize, at, message);
        }
    }

    /// Results in flight: the remaining time within the outermost loop that is summed.
    fn accumulators(&mut self, at: usize) {
        let (before, after) = (&self.streams[at - 1], &self.streams[at]);
        let slots = in_flight(&before.time, &after.time);
        let mode = self.kernel.stages.iter().find_map(|stage| match stage {
            Stage::Lane { mode, .. } => Some(*mode),
            _ => None,
        });
        let (packet, lanes) = (after.packet.size(), after.lane.size());
        let capacity = match mode {
            Some(LaneMode::Sequential) => self.machine.sequential_slots / lanes.max(1),
            _ => self.machine.interleaved_slots / packet.max(1),
        };
        if slots > capacity {
            let message = format!(
                "{slots} sums in flight for packets of {packet} in {lanes} lanes; {capacity} slots hold them"
            );
            self.add(Rule::Accumulators, at, message);
        }
        if packet * lanes > self.machine.accumulator_cells {
            let message = format!("{packet} × {lanes} sums a cycle");
            self.add(Rule::Accumulators, at, message);
        }
    }

    /// Padding lengthens sums too; beyond a bound, nothing examines them one by one.
    fn terms(&mut self, at: usize) {
        let stages = &self.kernel.stages;
        let outer = stages.iter().position(|s| matches!(s, Stage::Outer { .. }));
        let from = match stages[at] {
            Stage::Time { .. } => outer.unwrap_or(at),
            _ => at.saturating_sub(1),
        };
        let (before, partial) = (&self.streams[from], &self.streams[at].partial);
        let layouts = [&before.cluster, &before.slice, &before.time, &before.packet];
        let digits = layouts.into_iter().flat_map(|layout| &layout.digits);
        let summed = digits.filter(|digit| digit.axis().is_some_and(|a| partial.contains(&a)));
        let terms = summed.fold(1u64, |n, digit| n.saturating_mul(digit.size));
        if terms > MAX_TERMS {
            let message = format!("sums of {terms} terms; at most {MAX_TERMS} are examined");
            self.add(Rule::TooLarge, at, message);
        }
    }

    fn reduce_slots(&mut self, at: usize) {
        let (before, after) = (&self.streams[at - 1], &self.streams[at]);
        let slots = in_flight(&before.time, &after.time);
        if slots > self.machine.reduce_slots {
            let message = format!(
                "{slots} results in flight; {} slots hold them",
                self.machine.reduce_slots
            );
            self.add(Rule::ReduceSlots, at, message);
        }
    }

    /// Checks that an ALU, the stash and a second tensor are used at most once.
    fn vector(&mut self) {
        let mut used = Vec::new();
        let (mut stashes, mut reads, mut seconds) = (0, 0, 0);
        let mut has_second = false;
        let mut vrf_bytes = 0;
        for at in 0..self.kernel.stages.len() {
            match &self.kernel.stages[at] {
                Stage::Fetch { with, .. } => has_second = with.is_some(),
                Stage::Stash => stashes += 1,
                Stage::Vector { op, operand } => {
                    let alu = alu(*op);
                    if used.contains(&alu) {
                        let message = format!("{alu} is used already in this kernel");
                        self.add(Rule::AluOnce, at, message);
                    }
                    used.push(alu);
                    match operand {
                        VectorOperand::Stash if stashes == 0 => {
                            let message = "nothing was stashed before".to_owned();
                            self.add(Rule::StashOnce, at, message);
                        }
                        VectorOperand::Stash => reads += 1,
                        VectorOperand::Second => seconds += 1,
                        VectorOperand::Vrf(tensor) => {
                            let tensor = &self.program.tensors[*tensor];
                            if let Place::Vrf { address, .. } = tensor.place {
                                let bytes = tensor.unit_bytes(&self.program.axes).unwrap_or(0);
                                vrf_bytes = address.saturating_add(bytes).max(vrf_bytes);
                            }
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let last = self.kernel.stages.len().saturating_sub(1);
        if stashes > 1 || reads > 1 {
            let message = format!("{stashes} stashes and {reads} reads; one each");
            self.add(Rule::StashOnce, last, message);
        }
        if has_second && seconds != 1 || !has_second && seconds > 0 {
            let message = format!("{seconds} uses of a second tensor");
            self.add(Rule::Second, last, message);
        }
        let left =
            self.machine.vrf_bytes - self.machine.vrf_stash_bytes.min(self.machine.vrf_bytes);
        if stashes > 0 && vrf_bytes > left {
            let message = format!("operands to byte {vrf_bytes}; beside a stash {left} are free");
            self.add(Rule::VectorRegisters, last, message);
        }
    }
}

/// Sizes of the remaining time within the outermost loop that is reduced.
fn in_flight(before: &DigitLayout, after: &DigitLayout) -> u64 {
    let (all, left) = (before.size(), after.size());
    if all == left {
        return 1;
    }
    // The common beginning of the two is outside the outermost reduced loop.
    let (before, after) = (before.canonical(), after.canonical());
    let mut outside = 1;
    for (b, a) in before.digits.iter().zip(&after.digits) {
        if b != a {
            // A digit with only its outer part left.
            let tail = b.source == a.source && a.stride * a.size == b.stride * b.size;
            if tail && a.stride > b.stride {
                outside *= a.size;
            }
            break;
        }
        outside *= b.size;
    }
    left / outside
}

/// The ALU that an operation takes. Source: the book, vector-engine: FpFma, FpMul0, FpMul1, FpExp, FpFpu,
/// FpDiv, and the clip stage's own.
pub(crate) fn alu(op: VectorOp) -> &'static str {
    match op {
        VectorOp::FixedToFloat => "FxpToFp",
        VectorOp::Add | VectorOp::Sub => "FpFma",
        VectorOp::Mul0 => "FpMul0",
        VectorOp::Mul1 => "FpMul1",
        VectorOp::Exp => "FpExp",
        VectorOp::Sqrt | VectorOp::Sigmoid => "FpFpu",
        VectorOp::Div | VectorOp::DivBy => "FpDiv",
        VectorOp::Max => "ClipMax",
        VectorOp::Min => "ClipMin",
        VectorOp::FloatToFixed => "FpToFxp",
    }
}
