//! Results of launches: each is compared with its op, computed on the contents of the op's slots.

use super::rule::{OpRule, Operation};
use super::{CallCheck, Mismatch, OpsState, bias};
use millrace_graph::{Node, Op, RotateHeads, ValueId};
use millrace_plan::{Binding, CachePart, PlannedLaunch};
use millrace_runtime::npu::NpuError;

/// Numbers of a weight or table, and of groups their size and offsets.
type OpWeights = (Vec<f32>, Option<(usize, Vec<f32>)>);

impl CallCheck<'_> {
    /// A result of a launch.
    pub(super) fn op(
        &self,
        number: usize,
        launch: &PlannedLaunch,
        part: usize,
        values: &[Option<ValueId>],
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let (node, slot) = (self.graph().nodes.get(number), launch.results().get(part));
        let (Some(node), Some(&slot)) = (node, slot) else {
            return Err(NpuError::plan(
                &launch.name,
                "a launch without a node or slots",
            ));
        };
        let rule = match self.rule(node, launch, (part, slot), values)? {
            Ok(rule) => rule,
            Err(reason) => {
                state.summary.unchecked.insert(node.label, reason);
                return Ok(());
            }
        };
        let n_cols = match &self.seen.call.bindings[slot] {
            Binding::Part { len, .. } => *len,
            _ => self.graph().values[node.output.0].width,
        };
        let n_rows = self.n_rows(node.output);
        let mut found = self.result(slot)?;
        // Rows of a part of the vocabulary end in padding.
        let stride = found.len() / (self.seen.plan.n_rows(node.output) as usize).max(1);
        if n_rows > 1 && stride > n_cols {
            let rows = found.chunks_exact(stride).take(n_rows);
            found = rows.flat_map(|row| &row[..n_cols]).copied().collect();
        }
        if found.len() < n_rows * n_cols {
            return Err(NpuError::plan(&launch.name, "a result of another size"));
        }
        let (worst, n_wrong) = rule.compare(self.npu.cpu(), n_rows, n_cols, &found);
        let share = state.summary.worst.entry(node.label).or_default();
        *share = share.max(worst.share);
        let what = (n_wrong > 0).then_some(Mismatch::Op {
            row: worst.row,
            col: worst.col,
            expected: worst.expected,
            found: worst.found,
            tolerance: worst.tolerance,
            n_wrong,
            n_elements: (n_rows * n_cols) as u64,
        });
        self.report(slot, Some(launch), Some(number), what, state);
        Ok(())
    }

    /// The op's rule on the contents of its slots, or the reason why it cannot be checked.
    fn rule(
        &self,
        node: &Node,
        launch: &PlannedLaunch,
        (part, result): (usize, usize),
        values: &[Option<ValueId>],
    ) -> Result<Result<OpRule, String>, NpuError> {
        let bindings = &self.seen.call.bindings;
        if let Err(reason) = bias::is_bare(node, &bindings[result]) {
            return Ok(Err(reason));
        }
        let slots = || launch.slots.iter().copied();
        let operands = match self.operands(node, launch, values)? {
            Ok(operands) => operands,
            Err(reason) => return Ok(Err(reason)),
        };
        let is_parameter = |slot: &usize| {
            matches!(
                bindings[*slot],
                Binding::Weight { .. } | Binding::RopeTable { .. }
            )
        };
        let parameter = slots().filter(is_parameter).nth(part);
        if let (Op::Embed(_), Some(table)) = (&node.op, parameter) {
            let rows = self.embedded(table, self.n_rows(node.output))?;
            return Ok(Ok(OpRule::embed(&node.op, rows)));
        }
        let (weights, offsets) = match self.weights(node, launch, parameter)? {
            Ok(weights) => weights,
            Err(reason) => return Ok(Err(reason)),
        };
        let widths = node.inputs.iter().map(|v| self.graph().values[v.0].width);
        let (first, oldest_key) = self.first_position(launch);
        Ok(OpRule::new(&Operation {
            arithmetic: self.npu.planner().arithmetic(launch),
            result: self.slots()[result].element,
            node,
            launch,
            parameter: parameter.map(|slot| &bindings[slot]),
            operands,
            weights,
            offsets,
            widths: widths.collect(),
            n_rows: self.n_rows(node.output),
            first,
            oldest_key,
        }))
    }

    /// The contents of the slot of a launch's weight or table, with offsets of groups, or the reason why it cannot be
    /// inspected.
    fn weights(
        &self,
        node: &Node,
        launch: &PlannedLaunch,
        parameter: Option<usize>,
    ) -> Result<Result<OpWeights, String>, NpuError> {
        let Some(slot) = parameter else {
            let rotation = match &node.op {
                Op::Rope(RotateHeads { rope, head_dim, .. }) => {
                    self.rotation(*rope, *head_dim, node)
                }
                _ => Vec::new(),
            };
            return Ok(Ok((rotation, None)));
        };
        if let Some(packed) = self.packed(node, launch, slot)? {
            return Ok(Ok((packed.values, packed.offsets)));
        }
        Ok(self.operand(slot)?.map(|weights| (weights, None)))
    }

    /// Position of the first row (for attention, among its keys), and the first key that belongs to a token.
    fn first_position(&self, launch: &PlannedLaunch) -> (usize, usize) {
        let first = self.seen.first;
        let of_slot = |slot: &usize| match self.seen.call.bindings[*slot] {
            Binding::RangePosition { range } => Some((range.row(first), range.oldest(first))),
            Binding::Cache { .. } => {
                let start = self.ring_start(*slot);
                Some((first.saturating_sub(start), 0))
            }
            _ => None,
        };
        launch.slots.iter().find_map(of_slot).unwrap_or((first, 0))
    }

    /// The contents of slots, by the node's inputs, or the reason why they cannot be inspected.
    fn operands(
        &self,
        node: &Node,
        launch: &PlannedLaunch,
        values: &[Option<ValueId>],
    ) -> Result<Result<Vec<Vec<f32>>, String>, NpuError> {
        let bindings = &self.seen.call.bindings;
        let slots = || launch.slots.iter().copied();
        let mut operands = Vec::new();
        for (input, value) in node.inputs.iter().enumerate() {
            let cached = |slot: &usize| match (&bindings[*slot], input) {
                (Binding::Cache { of, .. } | Binding::CacheRange { of, .. }, 1) => {
                    *of == CachePart::Keys
                }
                (Binding::Cache { of, .. } | Binding::CacheRange { of, .. }, 2) => {
                    *of == CachePart::Values
                }
                _ => false,
            };
            let holds = |slot: &usize| values.get(*slot) == Some(&Some(*value));
            let Some(slot) = slots().find(cached).or_else(|| slots().find(holds)) else {
                return Ok(Err(format!("`{}` takes other operands", launch.kernel)));
            };
            match self.operand(slot)? {
                Ok(operand) => operands.push(self.rows_of(*value, node, operand)),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(operands))
    }
}
