//! Weights from the checkpoint into buffer objects, decoded and arranged on the way.

use super::NpuError;
use crate::load::LoadedModel;
use bytemuck::{cast_slice, try_cast_slice_mut};
use half::bf16;
use millrace_kernels::Cpu;
use millrace_model::graph::WeightId;
use millrace_quant as quant;
use millrace_xdna2::lower::WeightLayout;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Rows that are decoded together: of a transposed matrix their columns then are written in runs of
/// a cache line.
const BLOCK_ROWS: usize = 32;

/// Calls `fill` with a buffer's bytes as bf16, through a copy only where they are misaligned.
pub(super) fn as_bf16(
    bytes: &mut [u8],
    fill: impl FnOnce(&mut [bf16]) -> Result<(), NpuError>,
) -> Result<(), NpuError> {
    if let Ok(values) = try_cast_slice_mut(bytes) {
        return fill(values);
    }
    let mut values = vec![bf16::ZERO; bytes.len() / size_of::<bf16>()];
    fill(&mut values)?;
    let values = cast_slice(&values);
    bytes[..values.len()].copy_from_slice(values);
    Ok(())
}

/// Writes a weight as its slot wants it. Nothing of the matrix is held besides a few rows a thread; the
/// pages of the file that it was read from are given back.
pub(super) fn fill(
    cpu: &Cpu,
    model: &LoadedModel,
    weight: WeightId,
    layout: &WeightLayout,
    out: &mut [bf16],
) -> Result<(), NpuError> {
    let spec = &model.model().graph.weights[weight.0];
    let expected = layout.n_elements([spec.n, spec.k]);
    if out.len() != expected {
        let problem = format!("{expected} elements for a slot of {}", out.len());
        return Err(NpuError::plan(format!("weight `{}`", spec.name), problem));
    }
    let source = Source {
        layout,
        dtype: spec.dtype,
        bytes: model.weight_bytes(weight),
        n: spec.n,
        k: spec.k,
    };
    let failed = Mutex::new(Ok(()));
    let keep = |result: Result<(), quant::Error>| {
        if result.is_err() {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = result;
        }
    };
    if let WeightLayout::Transposed { .. } = layout {
        // A thread takes some elements of every row, so that it writes a part of its own.
        let columns = spec.k.div_ceil(cpu.pool().n_threads());
        cpu.pool().run_pieces(out, columns * spec.n, &|i, out| {
            let end = (i + 1) * columns;
            keep(source.columns(i * columns..end.min(spec.k), out));
        });
    } else {
        cpu.pool().run_pieces(out, BLOCK_ROWS * spec.k, &|i, out| {
            keep(source.rows(i * BLOCK_ROWS, out))
        });
    }
    let rows = match *layout {
        WeightLayout::Rows { start, len, .. } => start..start + len,
        _ => 0..spec.n,
    };
    let row_bytes = source.bytes.len() / spec.n.max(1);
    model.release_weight(weight, rows.start * row_bytes..rows.end * row_bytes);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(failed?)
}

struct Source<'a> {
    layout: &'a WeightLayout,
    dtype: quant::DType,
    bytes: &'a [u8],
    n: usize,
    k: usize,
}

impl Source<'_> {
    /// Row `row` of the arranged matrix.
    fn row(&self, row: usize, out: &mut [f32]) -> Result<(), quant::Error> {
        match self.layout.source_row(row) {
            None => out.fill(0.0),
            Some(row) => {
                quant::decode_rows(self.dtype, self.bytes, self.n, self.k, row..row + 1, out)?
            }
        }
        if let WeightLayout::Vector { offset } = self.layout {
            out.iter_mut().for_each(|x| *x += offset);
        }
        Ok(())
    }

    /// Whole rows from `first` on.
    fn rows(&self, first: usize, out: &mut [bf16]) -> Result<(), quant::Error> {
        let mut values = vec![0.0; self.k];
        for (i, out) in out.chunks_exact_mut(self.k).enumerate() {
            self.row(first + i, &mut values)?;
            let values = values.iter().map(|x| bf16::from_f32(*x));
            out.iter_mut().zip(values).for_each(|(out, x)| *out = x);
        }
        Ok(())
    }

    /// Elements `columns` of every row, as rows of `out: [columns.len(), n]`.
    fn columns(&self, columns: Range<usize>, out: &mut [bf16]) -> Result<(), quant::Error> {
        let mut block = vec![0.0; BLOCK_ROWS * self.k];
        for first in (0..self.n).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(self.n - first);
            for (i, values) in block.chunks_exact_mut(self.k).take(rows).enumerate() {
                self.row(first + i, values)?;
            }
            for (column, out) in columns.clone().zip(out.chunks_exact_mut(self.n)) {
                let values = block.iter().skip(column).step_by(self.k);
                let out = out[first..first + rows].iter_mut();
                out.zip(values)
                    .for_each(|(out, x)| *out = bf16::from_f32(*x));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_kernels::CpuOptions;
    use millrace_model::graph::Weight;
    use std::path::Path;

    /// Every layout of every matrix, against the layout's own arrangement.
    #[test]
    fn slots_hold_what_the_layout_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf");
        let model = LoadedModel::open(&path).expect("the model");
        let cpu = Cpu::new(CpuOptions {
            n_threads: Some(2),
            level: None,
        });
        let cpu = cpu.expect("a CPU");
        for (id, spec) in model.model().graph.weights.iter().enumerate() {
            let Weight { n, k, .. } = *spec;
            for layout in layouts(n) {
                let len = layout.n_elements([n, k]);
                let row = |row: usize, out: &mut [f32]| {
                    let bytes = model.weight_bytes(WeightId(id));
                    let decoded = quant::decode_rows(spec.dtype, bytes, n, k, row..row + 1, out);
                    decoded.expect("a row");
                };
                let mut expected = vec![bf16::ZERO; len];
                layout.arrange([n, k], row, &mut expected);
                let mut found = vec![bf16::ONE; len];
                fill(&cpu, &model, WeightId(id), &layout, &mut found).expect("filled");
                assert!(found == expected, "{} {layout:?}", spec.name);
                found.push(bf16::ZERO);
                assert!(fill(&cpu, &model, WeightId(id), &layout, &mut found).is_err());
            }
        }
    }

    fn layouts(n: usize) -> Vec<WeightLayout> {
        if n == 1 {
            return vec![
                WeightLayout::Vector { offset: 0.0 },
                WeightLayout::Vector { offset: 1.0 },
            ];
        }
        let (half_split, len) = (Some(64), n / 2);
        vec![
            WeightLayout::AsStored { half_split: None },
            WeightLayout::AsStored { half_split },
            WeightLayout::Transposed { half_split: None },
            WeightLayout::Transposed { half_split },
            WeightLayout::Rows {
                start: n - len,
                len,
                padded_to: len + 3,
            },
        ]
    }
}
