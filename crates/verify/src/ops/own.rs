//! Slots in an arrangement of the target's own. The target reads them back, and code without any part of it compares
//! the numbers with the checkpoint.

use super::rule::half_unit;
use super::{CallCheck, Mismatch, differs, statics};
use crate::reference::{narrow, rotation};
use millrace_graph::{Node, ValueId};
use millrace_npu::Role;
use millrace_plan::{
    Binding, OperandArrangement, OwnSlot, PackedWeight, PlannedLaunch, WeightLayout,
};
use millrace_runtime::npu::NpuError;

/// How far from the nearest level a number may be for the rounding of the rotation in f32, in steps.
const SLACK: f64 = 1e-2;

/// Below it binary16 has no normal numbers: half a step there.
const TINY: f64 = 3e-8;

impl CallCheck<'_> {
    pub(super) fn own_slot<I>(&self, slot: usize, id: I) -> OwnSlot<'_, I> {
        OwnSlot {
            program: &self.seen.plan.programs[self.seen.call.program],
            slot,
            id,
        }
    }

    /// The numbers of an operand's slot as they are multiplied, or the reason why they are unknown.
    pub(super) fn operand(&self, slot: usize) -> Result<Result<Vec<f32>, String>, NpuError> {
        let graph = self.graph();
        let (id, n_elems) = match &self.seen.call.bindings[slot] {
            Binding::Packed { value, id, .. } => {
                let [n_rows, width] = self.slot_rows(*value, Role::Input);
                (OperandArrangement::Value(*id), n_rows * width)
            }
            Binding::Weight {
                weight,
                layout: WeightLayout::Own { id, .. },
            } => {
                let spec = &graph.weights[weight.0];
                (OperandArrangement::Weight(*id), spec.n * spec.k)
            }
            _ => return Ok(Ok(self.values(slot)?)),
        };
        let bytes = self.bytes(slot)?;
        let scales = self.seen.scales.get(slot).cloned().unwrap_or_default();
        let mut rows = vec![0.0; n_elems];
        let (at, cpu) = (self.own_slot(slot, id), self.npu.cpu());
        let read = (self.npu.planner()).operand(cpu, &at, &bytes, &scales, &mut rows);
        Ok(read.map(|()| rows))
    }

    /// The numbers of a result's slot, before the host adds a bias.
    pub(super) fn result(&self, slot: usize) -> Result<Vec<f32>, NpuError> {
        let Binding::Packed { value, id, .. } = &self.seen.call.bindings[slot] else {
            return self.values(slot);
        };
        let [n_rows, width] = self.slot_rows(*value, Role::Output);
        let mut rows = vec![0.0; n_rows * width];
        let (at, bytes) = (self.own_slot(slot, *id), self.bytes(slot)?);
        let (cpu, scales) = (self.npu.cpu(), self.seen.scales);
        (self.npu.planner())
            .unpack(cpu, &at, &bytes, scales, width, &mut rows)
            .map_err(|problem| NpuError::plan(&self.seen.call.set, problem))?;
        Ok(rows)
    }

    /// Number of rows of a slot that holds a value, and their width. For experts the rows are those of a dispatch.
    fn slot_rows(&self, value: ValueId, role: Role) -> [usize; 2] {
        let (graph, seen) = (self.graph(), self.seen);
        let experts = seen.call.experts;
        let op = experts.and_then(|experts| Some((experts, experts.op(graph)?.1.weight)));
        match op {
            Some((experts, weight)) => {
                let spec = &graph.weights[weight.0];
                let width = if role == Role::Input { spec.k } else { spec.n };
                [experts.rows as usize, width]
            }
            None => {
                let n_rows = seen.plan.n_rows(value) as usize;
                [n_rows, graph.values[value.0].width]
            }
        }
    }

    /// The weight's matrix that the dispatch multiplies with.
    pub(super) fn matrix(&self) -> usize {
        self.seen.expert.map_or(0, |dispatch| dispatch.expert)
    }

    /// A weight in a layout of the target's own, as the launch multiplies with it; nothing where the target
    /// tells no more than its numbers.
    pub(super) fn packed(
        &self,
        node: &Node,
        launch: &PlannedLaunch,
        slot: usize,
    ) -> Result<Option<PackedWeight>, NpuError> {
        let Binding::Weight {
            layout: WeightLayout::Own { id, .. },
            ..
        } = &self.seen.call.bindings[slot]
        else {
            return Ok(None);
        };
        let k = node.inputs.first().map(|v| self.graph().values[v.0].width);
        let (planner, bytes) = (self.npu.planner(), self.bytes(slot)?);
        Ok(planner.read_weight(launch, *id, &bytes, k.unwrap_or(1)))
    }

    /// Fault of a weight in the target's own layout: a number that is farther from the checkpoint's than rounding
    /// explains. If the target cannot read its numbers, bytes are compared with those that it fills such a slot with.
    pub(super) fn own_weight(
        &self,
        slot: usize,
        binding: &Binding,
    ) -> Result<Option<Mismatch>, NpuError> {
        let Binding::Weight { weight, layout } = binding else {
            return Ok(None);
        };
        let Ok(found) = self.operand(slot)? else {
            return self.filled_again(slot, binding);
        };
        let program = &self.seen.plan.programs[self.seen.call.program];
        let mut launches = program.launches.iter();
        let launch = launches.find(|launch| launch.slots.contains(&slot));
        let rule = launch.and_then(|l| self.npu.planner().arithmetic(l).quantised);
        let expected = statics::weight(self.npu.model(), (*weight, self.matrix()), layout)?;
        let arithmetic = launch.map(|l| self.npu.planner().arithmetic(l));
        let narrowed = arithmetic.and_then(|arithmetic| arithmetic.narrowed);
        let k = self.graph().weights[weight.0].k.max(1);
        let half_unit = half_unit(program.slots()[slot].element);
        let (mut first, mut n_wrong) = (None, 0);
        let rows = expected.chunks_exact(k).zip(found.chunks_exact(k));
        for (row, (expected, found)) in rows.enumerate() {
            if let Some(rule) = &narrowed {
                let scale = narrow::scale(expected, rule);
                for (col, (exact, found)) in expected.iter().zip(found).enumerate() {
                    let (exact, found) = (f64::from(*exact), f64::from(*found));
                    // The larger of the two steps, where rounding changes the exponent.
                    let step = |x: f64| narrow::half_step(x / scale, rule.weights) * scale;
                    let tolerance = step(exact).max(step(found)) * (1.0 + SLACK);
                    if (found - exact).abs() <= tolerance {
                        continue;
                    }
                    first.get_or_insert(row * k + col);
                    n_wrong += 1;
                }
                continue;
            }
            let block = rule.map_or(1, |rule| rule.block);
            let exact = rotation::rotated(expected, block);
            let step = rule.map(|rule| rotation::step(&exact, &rule));
            for (col, (exact, found)) in exact.iter().zip(found).enumerate() {
                let tolerance = match step {
                    Some(step) => step * (0.5 + SLACK),
                    None => half_unit * exact.abs() + TINY,
                };
                // NaN is wrong too.
                if (f64::from(*found) - exact).abs() <= tolerance {
                    continue;
                }
                first.get_or_insert(row * k + col);
                n_wrong += 1;
            }
        }
        Ok(first.map(|at| Mismatch::Static { at, n_wrong }))
    }

    fn filled_again(&self, slot: usize, binding: &Binding) -> Result<Option<Mismatch>, NpuError> {
        let Binding::Weight {
            weight,
            layout: WeightLayout::Own { id, half_split },
        } = binding
        else {
            return Ok(None);
        };
        let found = self.bytes(slot)?;
        let (at, mut expected) = (self.own_slot(slot, *id), vec![0; found.len()]);
        self.npu
            .fill_own((*weight, self.matrix()), *half_split, &at, &mut expected)?;
        let differs = differs(&expected, &found);
        Ok(differs.map(|(at, n_wrong)| Mismatch::Static { at, n_wrong }))
    }
}
