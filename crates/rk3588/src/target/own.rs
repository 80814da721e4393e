//! Packed slots: written from the checkpoint and from rows of the host, and read back.

use super::planner::Rk3588;
use crate::linear::LayerLinear;
use crate::matmul::{MatmulKind, Precision};
use crate::program::{A, B, C};
use crate::quantise::Rotation;
use crate::tiling::{Grid, WeightSplit};
use half::f16;
use millrace_kernels::Cpu;
use millrace_plan::{
    OperandArrangement, OwnSlot, Scales, ValueArrangement, WeightArrangement, WeightLayout,
    WeightSource,
};
use millrace_quant as quant;
use std::sync::{Mutex, PoisonError};

/// Numbers of layouts: the properties that distinguish two arrangements, packed into bits. Only equality counts.
pub(super) mod id {
    use crate::matmul::MatmulKind;
    use crate::tiling::Tiling;

    /// Bit for results.
    const RESULT: u32 = 1 << 31;

    fn common(kind: MatmulKind, rotates: bool, depth: u32) -> u32 {
        kind as u32 | (u32::from(rotates) << 3) | ((depth / 32) << 4)
    }

    /// Number for activations: rows and depth of a task.
    pub(crate) fn rows(kind: MatmulKind, rotates: bool, tiling: Tiling) -> u32 {
        common(kind, rotates, tiling.depth) | (tiling.rows << 14)
    }

    /// Number for weights: depth of a task, and workers.
    pub(crate) fn weights(kind: MatmulKind, rotates: bool, tiling: Tiling) -> u32 {
        common(kind, rotates, tiling.depth) | (tiling.workers << 14)
    }

    /// Number for results, which no other program reads.
    pub(crate) fn result(kind: MatmulKind) -> u32 {
        RESULT | kind as u32
    }
}

/// The tiles of the slot's program.
fn grid<'a, I>(at: &OwnSlot<'a, I>) -> Result<&'a Grid, String> {
    let grid = at.program.annex.get::<Grid>();
    grid.ok_or_else(|| format!("the form of `{}` is not there", at.program.name()))
}

impl Rk3588 {
    /// How k is rotated for products of that kind.
    pub(super) fn rotation(&self, kind: MatmulKind, k: u32) -> Rotation {
        match self.rotates(kind) {
            true => Rotation::of(k),
            false => Rotation::NONE,
        }
    }

    /// Whether k is rotated at all: floats have no steps that an outlier could make coarse.
    pub(super) fn rotates(&self, kind: MatmulKind) -> bool {
        self.has_rotation && kind.is_integer()
    }

    fn linear(&self, grid: &Grid) -> LayerLinear {
        let (shape, tiling) = (grid.shape, grid.tiling);
        let split = WeightSplit {
            depth: tiling.depth,
            workers: tiling.workers,
        };
        let rotation = self.rotation(shape.kind, shape.k);
        LayerLinear::with_split(shape.kind, [shape.n, shape.k], split, rotation)
    }

    pub(super) fn fill_slot(
        &self,
        at: &OwnSlot<'_, WeightArrangement>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let grid = grid(at)?;
        if [weight.n, weight.k] != [grid.shape.n as usize, grid.shape.k as usize] {
            return Err(format!(
                "a weight of {} × {} for a program of {}",
                weight.n, weight.k, grid.shape
            ));
        }
        let order = WeightLayout::Own {
            id: at.id,
            half_split: weight.half_split,
        };
        let failed = Mutex::new(None);
        let decode = |row: u32, out: &mut [f32]| {
            let from = order.source_row(row as usize).unwrap_or(row as usize);
            let (n, k) = (weight.n, weight.k);
            let row = from..from + 1;
            if let Err(error) = quant::decode_rows(weight.dtype, weight.bytes, n, k, row, out) {
                out.fill(0.0);
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        let scales = (self.linear(grid).pack_weights(grid, decode, out))
            .map_err(|error| error.to_string())?;
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.to_string()),
            None => Ok(scales.0.into()),
        }
    }

    pub(super) fn pack_slot(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_, ValueArrangement>,
        rows: &[f32],
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let grid = grid(at)?;
        // Keys and values are weights for one pass.
        if at.slot == B {
            let k = grid.shape.k as usize;
            if rows.len() != grid.shape.n as usize * k {
                return Err(format!("{} numbers for {}", rows.len(), grid.shape));
            }
            let row = |n: u32, out: &mut [f32]| out.copy_from_slice(&rows[n as usize * k..][..k]);
            let scales = self.linear(grid).pack_weights(grid, row, out);
            return Ok(scales.map_err(|error| error.to_string())?.0.into());
        }
        let scales = self.linear(grid).pack_rows(cpu.pool(), grid, rows, out);
        Ok(scales.map_err(|error| error.to_string())?.0.into())
    }

    pub(super) fn unpack_slot(
        &self,
        at: &OwnSlot<'_, ValueArrangement>,
        bytes: &[u8],
        scales: &[Scales],
        rows: &mut [f32],
    ) -> Result<(), String> {
        let grid = grid(at)?;
        let (C, [a, b, ..]) = (at.slot, scales) else {
            return Err("no result, or no scales for it".to_owned());
        };
        let unpacked = self.linear(grid).unpack(grid, bytes, a, b, rows);
        unpacked.map_err(|error| error.to_string())
    }

    pub(super) fn operand_of(
        &self,
        at: &OwnSlot<'_, OperandArrangement>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        let grid = grid(at)?;
        let k = grid.shape.k as usize;
        let n_rows = match at.slot {
            A => grid.shape.m as usize,
            B => grid.shape.n as usize,
            _ => return Err("a result is no operand".to_owned()),
        };
        if rows.len() != n_rows * k || scales.len() != n_rows {
            return Err(format!("{} numbers for {n_rows} rows of {k}", rows.len()));
        }
        let plain = match at.slot {
            A => grid.read_a(bytes),
            _ => grid.read_b(bytes),
        };
        let plain = plain.map_err(|error| error.to_string())?;
        let each = plain.chunks_exact(grid.input_row_bytes());
        for ((row, bytes), scale) in rows.chunks_exact_mut(k).zip(each).zip(scales.iter()) {
            match grid.shape.kind.input() {
                Precision::Int8 => row
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(x, byte)| *x = f32::from(*byte as i8) * scale),
                Precision::Fp16 => row
                    .iter_mut()
                    .zip(bytes.as_chunks::<2>().0)
                    .for_each(|(x, bytes)| *x = f16::from_le_bytes(*bytes).to_f32() * scale),
                other => return Err(format!("operands of {other:?} are not read back")),
            }
        }
        Ok(())
    }
}
