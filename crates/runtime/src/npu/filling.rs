//! Contents of the slots that the host fills: weights, tables, empty caches.

use super::NpuError;
use super::model::{NpuModel, lock};
use super::prepared::PreparedPlan;
use super::weights;
use millrace_graph::WeightId;
use millrace_npu::Role;
use millrace_plan::{
    Binding, Call, OwnSlot, Scales, WeightArrangement, WeightLayout, WeightSource, rope_table,
};

impl NpuModel {
    /// The scales kept for a static buffer's contents.
    pub(super) fn scales(&self, name: Option<&str>) -> Scales {
        let kept = name.and_then(|name| lock(&self.scales).get(name).cloned());
        kept.unwrap_or_default()
    }

    /// Fills a slot of weights or a static one from the checkpoint.
    pub(super) fn fill_slot(
        &self,
        prepared: &PreparedPlan,
        call: &Call,
        number: usize,
        first: usize,
        bytes: &mut [u8],
    ) -> Result<Scales, NpuError> {
        let slot = &prepared.container(call).slots()[number];
        match &call.bindings[number] {
            Binding::Weight { .. } => self.fill_expert(prepared, call, number, 0, bytes),
            Binding::RopeTable { rope, rows } => {
                let table = rope_table(&self.model.model().graph.ropes[rope.0], *rows, first);
                weights::write(&table, slot, bytes)
                    .map_err(|problem| NpuError::plan(&call.set, problem))?;
                Ok(Scales::default())
            }
            // Rows come as they are made.
            Binding::Cache { .. } => {
                bytes.fill(0);
                Ok(Scales::default())
            }
            _ => Err(NpuError::plan(
                &call.set,
                format!("slot {number} is static but no weight"),
            )),
        }
    }

    /// Fills a slot of weights with one of a weight's matrices: an expert's, or the only one, which has index 0.
    pub(super) fn fill_expert(
        &self,
        prepared: &PreparedPlan,
        call: &Call,
        number: usize,
        expert: usize,
        bytes: &mut [u8],
    ) -> Result<Scales, NpuError> {
        let slot = &prepared.container(call).slots()[number];
        let Binding::Weight { weight, layout } = &call.bindings[number] else {
            let problem = format!("slot {number} is no weight");
            return Err(NpuError::plan(&call.set, problem));
        };
        let layout = match self.options.relayout {
            Some(relayout) => relayout(*layout),
            None => *layout,
        };
        let matrix = (*weight, expert);
        match layout {
            WeightLayout::Own { id, half_split } => {
                let at = prepared.own_slot(call, number, id);
                let filled = self.fill_own(matrix, half_split, &at, bytes)?;
                // Data that is filled in for every call is read again soon.
                if slot.role == Role::Static {
                    let n_bytes = self.model.matrix_bytes(*weight, expert).len();
                    self.model.release_weight(matrix, 0..n_bytes);
                }
                Ok(filled)
            }
            layout => {
                weights::fill(&self.cpu, &self.model, matrix, &layout, slot, bytes)?;
                Ok(Scales::default())
            }
        }
    }

    /// Contents of a slot in the target's own layout for one of a weight's matrices (index 0 if it has only one). Heads of `half_split`
    /// elements are put in half-split order.
    ///
    /// # Errors
    /// A weight that does not decode, or that the target refuses.
    pub fn fill_own(
        &self,
        (weight, matrix): (WeightId, usize),
        half_split: Option<usize>,
        at: &OwnSlot<'_, WeightArrangement>,
        bytes: &mut [u8],
    ) -> Result<Scales, NpuError> {
        let spec = &self.model.model().graph.weights[weight.0];
        let source = WeightSource {
            dtype: spec.dtype,
            bytes: self.model.matrix_bytes(weight, matrix),
            n: spec.n,
            k: spec.k,
            half_split,
        };
        let filled = self.arrangement().fill(&self.cpu, at, &source, bytes);
        filled.map_err(|problem| NpuError::plan(format!("weight `{}`", spec.name), problem))
    }
}
