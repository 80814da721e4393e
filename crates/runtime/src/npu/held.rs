//! Weights as a device holds them, where its format is not the checkpoint's.
//!
//! A target may keep a matrix in blocks of its own. What it then multiplies with are other numbers than the
//! file's, and no rounding to bf16 explains the difference: the gate computes its reference with these, and
//! says apart how far they are from the file's. How a token's launches round within a product is asked here, too.
//! That slots hold these numbers is for the check of ops to find.

use super::NpuError;
use super::model::{NpuModel, lock};
use super::prepared::Prepared;
use crate::load::LoadedModel;
use millrace_model::graph::WeightId;
use millrace_plan::{Binding, Call, PackedWeight, Planner, WeightLayout};
use millrace_quant as quant;
use std::sync::Arc;

/// A matrix as the slot of a launch holds it.
struct Slot {
    program: usize,
    launch: usize,
    id: u32,
    half_split: Option<usize>,
    bytes: Vec<u8>,
    /// Whether its numbers are not the checkpoint's.
    differs: bool,
}

/// The matrices of a token's plan that lie in a layout of the target's own.
pub(crate) struct Held {
    prepared: Arc<Prepared>,
    planner: Arc<dyn Planner>,
    /// By weight of the graph.
    slots: Vec<Option<Slot>>,
}

impl NpuModel {
    /// What the device has instead of the checkpoint's numbers; worked out once.
    pub(crate) fn held(&self) -> Result<Arc<Held>, NpuError> {
        let mut known = lock(&self.held);
        if let Some(held) = &*known {
            return Ok(held.clone());
        }
        let prepared = self.decode_at(0, false)?;
        let mut held = Held {
            slots: Vec::new(),
            planner: self.planner.clone(),
            prepared: prepared.clone(),
        };
        let n_weights = self.model.model().graph.weights.len();
        held.slots.resize_with(n_weights, || None);
        for call in prepared.plan.calls() {
            for slot in 0..call.bindings.len() {
                held.add(self, call, slot)?;
            }
        }
        Ok(known.insert(Arc::new(held)).clone())
    }
}

impl Held {
    /// Whether the device has the checkpoint's numbers everywhere.
    pub(crate) fn is_exact(&self) -> bool {
        !self.slots.iter().flatten().any(|slot| slot.differs)
    }

    /// A matrix `[n, k]` in the checkpoint's order; `None` where its numbers are the checkpoint's.
    pub(crate) fn matrix(&self, weight: WeightId, [n, k]: [usize; 2]) -> Option<Vec<f32>> {
        let slot = self.slots.get(weight.0)?.as_ref()?;
        let read = self.read(slot, [n, k]).filter(|_| slot.differs)?;
        Some(read.values)
    }

    /// A matrix of which a token's launches round the sums of groups; `None` of all others.
    pub(crate) fn grouped(&self, weight: WeightId, [n, k]: [usize; 2]) -> Option<PackedWeight> {
        let slot = self.slots.get(weight.0)?.as_ref()?;
        self.read(slot, [n, k])
            .filter(|read| read.offsets.is_some())
    }

    /// In the checkpoint's order; `None` where the target does not tell.
    fn read(&self, slot: &Slot, [n, k]: [usize; 2]) -> Option<PackedWeight> {
        let launch = &self.prepared.plan.programs[slot.program].launches[slot.launch];
        let read = self.planner.read_weight(launch, slot.id, &slot.bytes, k)?;
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

    /// Takes a slot in, if it is a weight in a layout of the target's own that the target can read.
    fn add(&mut self, npu: &NpuModel, call: &Call, slot: usize) -> Result<(), NpuError> {
        let Binding::Weight {
            weight,
            layout: WeightLayout::Own { id, half_split },
        } = call.bindings[slot]
        else {
            return Ok(());
        };
        let planned = &self.prepared.plan.programs[call.program];
        let reads = |launch: &millrace_plan::PlannedLaunch| launch.slots.contains(&slot);
        let Some(launch) = planned.launches.iter().position(reads) else {
            return Ok(());
        };
        let size_bytes = planned.slots()[slot].size_bytes().unwrap_or(0);
        let mut bytes = vec![0; size_bytes as usize];
        let at = self.prepared.own_slot(call, slot, id);
        npu.fill_own(weight, half_split, &at, &mut bytes)?;
        let mut slot = Slot {
            program: call.program,
            launch,
            id,
            half_split,
            bytes,
            differs: false,
        };
        let spec = &npu.model.model().graph.weights[weight.0];
        if let Some(read) = self.read(&slot, [spec.n, spec.k]) {
            slot.differs = differs(&npu.model, weight, &read.values)?;
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
            .map_err(crate::Error::from)?;
        if row != found {
            return Ok(true);
        }
    }
    Ok(false)
}
