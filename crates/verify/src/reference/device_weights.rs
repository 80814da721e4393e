//! Weights as a device holds them, if its format is not the checkpoint's.
//!
//! A target may keep a matrix in its own kind of blocks. Then it multiplies with other numbers than the file's, and no
//! rounding to bf16 explains the difference. The reference is computed with the target's numbers, and their distance
//! from the file's is reported separately. This module also tells how a token's launches round within a product. The
//! check of ops finds out whether slots hold these numbers.

use millrace_graph::WeightId;
use millrace_plan::{
    Arrangement, Binding, Call, OwnSlot, PackedWeight, Plan, PlannedLaunch, WeightArrangement,
    WeightLayout,
};
use millrace_quant as quant;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuError, NpuModel};
use std::sync::Arc;

/// A matrix as in the slot of a launch.
struct WeightSlot {
    program: usize,
    launch: usize,
    id: WeightArrangement,
    half_split: Option<usize>,
    bytes: Vec<u8>,
    /// Whether its numbers are not the checkpoint's.
    differs: bool,
}

/// The matrices of a token's plan that are in a layout of the target's own.
pub struct DeviceWeights {
    plan: Arc<Plan>,
    arrangement: Arc<dyn Arrangement>,
    /// By weight of the graph.
    slots: Vec<Option<WeightSlot>>,
}

impl DeviceWeights {
    /// Fills the slots of these weights as on the device, and lets the target read them.
    ///
    /// # Errors
    /// As [`NpuModel::plan`]; a weight that does not decode or fit its slot.
    pub fn of(npu: &NpuModel) -> Result<DeviceWeights, NpuError> {
        let plan = npu.plan(0, &npu.sequences().decode(0))?;
        let mut weights = DeviceWeights {
            slots: Vec::new(),
            arrangement: npu.planner().clone(),
            plan: plan.clone(),
        };
        let n_weights = npu.model().model().graph.weights.len();
        weights.slots.resize_with(n_weights, || None);
        // Experts' matrices are quantised as their node says, or the checkpoint's.
        for call in plan.calls().filter(|call| call.experts.is_none()) {
            for slot in 0..call.bindings.len() {
                weights.add(npu, call, slot)?;
            }
        }
        Ok(weights)
    }

    /// Whether the device has the checkpoint's numbers everywhere.
    pub fn is_exact(&self) -> bool {
        !self.slots.iter().flatten().any(|slot| slot.differs)
    }

    /// A matrix `[n, k]` in the checkpoint's order; `None` where its numbers are the checkpoint's.
    pub(crate) fn matrix(&self, weight: WeightId, [n, k]: [usize; 2]) -> Option<Vec<f32>> {
        let slot = self.slots.get(weight.0)?.as_ref()?;
        let read = self.read(slot, [n, k]).filter(|_| slot.differs)?;
        Some(read.values)
    }

    /// A matrix whose group sums a token's launches round; `None` for all others.
    pub(crate) fn grouped(&self, weight: WeightId, [n, k]: [usize; 2]) -> Option<PackedWeight> {
        let slot = self.slots.get(weight.0)?.as_ref()?;
        self.read(slot, [n, k])
            .filter(|read| read.offsets.is_some())
    }

    /// Reads a matrix in the checkpoint's order; `None` if the target cannot.
    fn read(&self, slot: &WeightSlot, [n, k]: [usize; 2]) -> Option<PackedWeight> {
        let launch = &self.plan.programs[slot.program].launches[slot.launch];
        let read = self
            .arrangement
            .read_weight(launch, slot.id, &slot.bytes, k)?;
        let layout = WeightLayout::Own {
            id: slot.id,
            half_split: slot.half_split,
        };
        let ordered = |numbers: &[f32], width: usize| -> Option<Vec<f32>> {
            let mut rows = vec![0.0; n * width];
            for (row, values) in numbers.chunks_exact(width).take(n).enumerate() {
                let to = layout.source_row(row).filter(|&row| row < n)?;
                rows[to * width..][..width].copy_from_slice(values);
            }
            Some(rows)
        };
        let offsets = match &read.offsets {
            Some((group, offsets)) => Some((*group, ordered(offsets, k.div_ceil(*group))?)),
            None => None,
        };
        Some(PackedWeight {
            values: ordered(&read.values, k)?,
            offsets,
        })
    }

    /// Adds a slot, if it is a weight in a layout of the target's own that the target can read.
    fn add(&mut self, npu: &NpuModel, call: &Call, slot: usize) -> Result<(), NpuError> {
        let Binding::Weight {
            weight,
            layout: WeightLayout::Own { id, half_split },
        } = call.bindings[slot]
        else {
            return Ok(());
        };
        let planned = &self.plan.programs[call.program];
        let reads = |launch: &PlannedLaunch| launch.slots.contains(&slot);
        let Some(launch) = planned.launches.iter().position(reads) else {
            return Ok(());
        };
        let size_bytes = planned.slots()[slot].size_bytes().unwrap_or(0);
        let mut bytes = vec![0; size_bytes as usize];
        let at = OwnSlot {
            program: planned,
            slot,
            id,
        };
        npu.fill_own((weight, 0), half_split, &at, &mut bytes)?;
        let mut slot = WeightSlot {
            program: call.program,
            launch,
            id,
            half_split,
            bytes,
            differs: false,
        };
        let spec = &npu.model().model().graph.weights[weight.0];
        if let Some(read) = self.read(&slot, [spec.n, spec.k]) {
            slot.differs = differs(npu.model(), weight, &read.values)?;
            self.slots[weight.0] = Some(slot);
        }
        Ok(())
    }
}

/// Whether a matrix is not the checkpoint's.
fn differs(model: &LoadedModel, weight: WeightId, matrix: &[f32]) -> Result<bool, NpuError> {
    let spec = &model.model().graph.weights[weight.0];
    let bytes = model.weight_bytes(weight);
    let mut row = vec![0.0; spec.k];
    for (r, found) in matrix.chunks_exact(spec.k).enumerate() {
        quant::decode_rows(spec.dtype, bytes, spec.n, spec.k, r..r + 1, &mut row)
            .map_err(millrace_runtime::Error::from)?;
        if row != found {
            return Ok(true);
        }
    }
    Ok(false)
}
