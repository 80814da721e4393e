//! Weights in the device's buffer objects, and products with them.

use super::plan::PlannedProduct;
use super::{NpuUnit, lock};
use crate::device::{DeviceMemory, OpError};
use millrace_kernels::matmul::WeightMatrix;
use millrace_npu::{BoundProgram, Buffer, Completion, Direction, Usage};
use millrace_plan::{Scales, WeightArrangement, WeightSource};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Placed weights, by the address range of their original bytes on the host. An entry never outlives those bytes: they
/// are in the plugin's own memory, and it sees every write to that memory and its release.
#[derive(Default)]
pub(super) struct WeightStore {
    placed: Mutex<BTreeMap<usize, (usize, Arc<WeightPlacement>)>>,
    regions: Mutex<Vec<Range<usize>>>,
}

/// A weight on the device, once for each arrangement that its programs use.
#[derive(Default)]
pub(super) struct WeightPlacement(Mutex<Vec<(WeightArrangement, Arc<Buffer>, Scales)>>);

fn failed(error: impl ToString) -> OpError {
    OpError::Device(error.to_string())
}

impl WeightStore {
    /// Placement of these bytes. Bytes outside the device's memory leave no entry.
    pub(super) fn of(&self, weight: &WeightMatrix<'_>) -> Arc<WeightPlacement> {
        let at = weight.bytes().as_ptr() as usize;
        let is_own = lock(&self.regions)
            .iter()
            .any(|region| region.contains(&at));
        match is_own {
            true => {
                let end = at + weight.bytes().len();
                let mut placed = lock(&self.placed);
                let entry = placed.entry(at).or_default();
                if entry.0 != end {
                    *entry = (end, Arc::default());
                }
                Arc::clone(&entry.1)
            }
            false => Arc::default(),
        }
    }

    /// Writes a weight into a buffer object.
    pub(super) fn place(
        &self,
        unit: &NpuUnit,
        planned: &PlannedProduct,
        weight: &WeightMatrix<'_>,
    ) -> Result<(), OpError> {
        self.of(weight).buffer(unit, planned, weight).map(|_| ())
    }
}

impl DeviceMemory for WeightStore {
    fn add(&self, region: Range<usize>) {
        lock(&self.regions).push(region);
    }

    fn remove(&self, region: Range<usize>) {
        self.changed(region.clone());
        lock(&self.regions).retain(|other| *other != region);
    }

    fn changed(&self, bytes: Range<usize>) {
        lock(&self.placed).retain(|start, (end, _)| *start >= bytes.end || *end <= bytes.start);
    }
}

impl WeightPlacement {
    /// The buffer object that a program reads the weight from; filled at the first time.
    fn buffer(
        &self,
        unit: &NpuUnit,
        planned: &PlannedProduct,
        weight: &WeightMatrix<'_>,
    ) -> Result<(Arc<Buffer>, Scales), OpError> {
        let (slot, id) = planned.weights;
        let size_bytes = planned.program.slots()[slot]
            .size_bytes()
            .unwrap_or(u64::MAX);
        let mut placed = lock(&self.0);
        let known = placed
            .iter()
            .find(|(other, buffer, _)| *other == id && buffer.size_bytes() == size_bytes);
        if let Some((_, buffer, scales)) = known {
            return Ok((Arc::clone(buffer), Arc::clone(scales)));
        }
        let buffer = unit
            .device
            .alloc(size_bytes, Usage::HostToDevice)
            .map_err(failed)?;
        let source = WeightSource {
            dtype: weight.dtype(),
            bytes: weight.bytes(),
            n: weight.n(),
            k: weight.k(),
            half_split: None,
        };
        let mut filled = Ok(Scales::default());
        buffer
            .write_with(|bytes| {
                filled = unit.planner.fill(
                    &unit.cpu,
                    &planned.own_slot(planned.weights),
                    &source,
                    bytes,
                );
            })
            .map_err(failed)?;
        let scales = filled.map_err(OpError::Device)?;
        buffer.sync(Direction::ToDevice).map_err(failed)?;
        placed.push((id, Arc::clone(&buffer), Arc::clone(&scales)));
        Ok((buffer, scales))
    }

    /// Multiplies rows with the weight; rows that the program has beyond them are zeros.
    pub(super) fn run(
        &self,
        unit: &NpuUnit,
        planned: &PlannedProduct,
        weight: &WeightMatrix<'_>,
        x: &[f32],
        out: &mut [f32],
    ) -> Result<Completion, OpError> {
        let (n, k, m) = (weight.n(), weight.k(), planned.shape.m as usize);
        let slots = planned.program.slots();
        let alloc = |slot: usize, usage| {
            let size_bytes = slots[slot].size_bytes().unwrap_or(u64::MAX);
            unit.device.alloc(size_bytes, usage).map_err(failed)
        };
        let rows = alloc(planned.rows.0, Usage::HostToDevice)?;
        let results = alloc(planned.results.0, Usage::DeviceToHost)?;
        let (weights, weight_scales) = self.buffer(unit, planned, weight)?;
        let mut padded = x.to_vec();
        padded.resize(m * k, 0.0);
        let mut packed = Ok(Scales::default());
        rows.write_with(|bytes| {
            bytes.fill(0);
            packed = unit.planner.pack(
                &unit.cpu,
                &planned.own_slot(planned.rows),
                &padded,
                k,
                bytes,
            );
        })
        .map_err(failed)?;
        let mut scales = vec![Scales::default(); slots.len()];
        scales[planned.rows.0] = packed.map_err(OpError::Device)?;
        scales[planned.weights.0] = weight_scales;
        rows.sync(Direction::ToDevice).map_err(failed)?;
        let mut buffers = vec![Arc::clone(&rows); slots.len()];
        buffers[planned.weights.0] = weights;
        buffers[planned.results.0] = Arc::clone(&results);
        let bound: BoundProgram = unit
            .device
            .bind(&planned.loaded, &buffers)
            .map_err(failed)?;
        let fence = unit.device.submit(&bound).map_err(failed)?;
        let completion = unit.device.wait(fence).map_err(failed)?;
        results.sync(Direction::FromDevice).map_err(failed)?;
        let mut all = vec![0.0; m * n];
        let mut unpacked = Ok(());
        results
            .read_with(|bytes| {
                let at = planned.own_slot(planned.results);
                unpacked = unit
                    .planner
                    .unpack(&unit.cpu, &at, bytes, &scales, n, &mut all);
            })
            .map_err(failed)?;
        unpacked.map_err(OpError::Device)?;
        out.copy_from_slice(&all[..out.len()]);
        Ok(completion)
    }
}
