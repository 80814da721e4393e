//! Operands that no slot has as an op takes them: one row of a prompt's, rows of a table by token, rotations.

use super::{CallCheck, statics};
use millrace_graph::{Node, Op, RopeId, ValueId};
use millrace_plan::{Binding, TableRows};
use millrace_runtime::npu::NpuError;

impl CallCheck<'_> {
    /// The rows of an operand that a node takes. If the result is a single row of a prompt, this is the last row before
    /// the padding.
    pub(super) fn rows_of(&self, value: ValueId, node: &Node, mut rows: Vec<f32>) -> Vec<f32> {
        let plan = self.seen.plan;
        let is_row = matches!(node.op, Op::RmsNorm(_));
        if is_row && plan.n_rows(value) > plan.n_rows(node.output) {
            let width = self.graph().values[value.0].width;
            let before = self.seen.n_real.saturating_sub(1) * width;
            rows.drain(..before.min(rows.len()));
        }
        rows
    }

    /// The exact table of a rotation whose target has none in a slot.
    pub(super) fn rotation(&self, rope: RopeId, head_dim: usize, node: &Node) -> Vec<f32> {
        let rows = TableRows {
            n_tokens: self.n_rows(node.output),
            n_heads: self.graph().values[node.output.0].width / head_dim.max(1),
        };
        statics::table(&self.graph().ropes[rope.0], rows, self.seen.first, &[])
    }

    /// The rows of a table in a slot that the pass's tokens name.
    pub(super) fn embedded(&self, slot: usize, n_rows: usize) -> Result<Vec<f32>, NpuError> {
        let bytes = self.bytes(slot)?;
        let element = self.slots()[slot].element;
        let size = element.size_bytes() as usize;
        let n_table = match &self.seen.call.bindings[slot] {
            Binding::Weight { weight, .. } => self.graph().weights[weight.0].n,
            _ => 0,
        };
        let row_bytes = bytes.len() / n_table.max(1);
        let tokens = self.seen.tokens.iter().take(n_rows);
        let rows =
            tokens.filter_map(|&token| bytes.get(token as usize * row_bytes..)?.get(..row_bytes));
        let number = |x: &[u8]| element.number(x).unwrap_or(f64::NAN) as f32;
        Ok(rows
            .flat_map(|row| row.chunks_exact(size).map(number))
            .collect())
    }
}
