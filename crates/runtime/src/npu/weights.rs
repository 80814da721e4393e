//! Weights from the checkpoint into buffer objects, decoded and arranged on the way; and numbers of the
//! host in the element type of a slot.

use super::NpuError;
use crate::load::LoadedModel;
use bytemuck::{Pod, cast_slice, try_cast_slice_mut};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use millrace_graph::WeightId;
use millrace_kernels::Cpu;
use millrace_npu::{Element, Slot};
use millrace_plan::WeightLayout;
use millrace_quant as quant;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Rows that are decoded together: of a transposed matrix their columns then are written in runs of
/// a cache line.
const BLOCK_ROWS: usize = 32;

/// A number that slots hold.
trait SlotNumber: Pod + Send + Sync {
    fn of(x: f32) -> Self;
}

impl SlotNumber for bf16 {
    fn of(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

impl SlotNumber for f16 {
    fn of(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

impl SlotNumber for f32 {
    fn of(x: f32) -> f32 {
        x
    }
}

/// Calls `fill` with a buffer's bytes as numbers, through a copy only where they are misaligned.
fn as_numbers<T: SlotNumber, R>(bytes: &mut [u8], fill: impl FnOnce(&mut [T]) -> R) -> R {
    if let Ok(values) = try_cast_slice_mut(bytes) {
        return fill(values);
    }
    let mut values = vec![T::of(0.0); bytes.len() / size_of::<T>()];
    let done = fill(&mut values);
    let values = cast_slice(&values);
    bytes[..values.len()].copy_from_slice(values);
    done
}

/// Writes numbers in an element type, each rounded to nearest.
pub(super) fn write_f32(values: &[f32], element: Element, bytes: &mut [u8]) -> Result<(), String> {
    fn all<T: SlotNumber>(values: &[f32], bytes: &mut [u8]) {
        as_numbers(bytes, |out: &mut [T]| {
            out.iter_mut()
                .zip(values)
                .for_each(|(out, x)| *out = T::of(*x));
        });
    }
    if bytes.len() as u64 != values.len() as u64 * element.size_bytes() {
        return Err(format!(
            "{} numbers for {} bytes",
            values.len(),
            bytes.len()
        ));
    }
    match element {
        Element::Bf16 => all::<bf16>(values, bytes),
        Element::F16 => all::<f16>(values, bytes),
        Element::F32 => all::<f32>(values, bytes),
        other => return Err(format!("{other} needs a layout of the target's own")),
    }
    Ok(())
}

/// Writes numbers of bf16 in a slot's element type.
pub(super) fn write(values: &[bf16], slot: &Slot, bytes: &mut [u8]) -> Result<(), String> {
    if slot.element == Element::Bf16 && bytes.len() == size_of_val(values) {
        bytes.copy_from_slice(cast_slice(values));
        return Ok(());
    }
    write_f32(&values.to_f32_vec(), slot.element, bytes)
}

/// Numbers of an element type, rounded to bf16.
pub(super) fn read(bytes: &[u8], element: Element, values: &mut [bf16]) -> Result<(), String> {
    let size = element.size_bytes() as usize;
    if bytes.len() != values.len() * size {
        return Err(format!(
            "{} bytes for {} numbers",
            bytes.len(),
            values.len()
        ));
    }
    if element == Element::Bf16 {
        bytemuck::cast_slice_mut::<bf16, u8>(values).copy_from_slice(bytes);
        return Ok(());
    }
    if element.precision().is_none() {
        return Err(format!("{element} needs a layout of the target's own"));
    }
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size)) {
        *value = bf16::from_f64(element.number(bytes).unwrap_or(f64::NAN));
    }
    Ok(())
}

/// Numbers of an element type, as they are.
pub(super) fn read_f32(bytes: &[u8], element: Element, values: &mut [f32]) -> Result<(), String> {
    let size = element.size_bytes() as usize;
    if element.precision().is_none() {
        return Err(format!("{element} needs a layout of the target's own"));
    }
    if bytes.len() != values.len() * size {
        let (found, wanted) = (bytes.len(), values.len());
        return Err(format!("{found} bytes for {wanted} numbers"));
    }
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size)) {
        *value = element.number(bytes).unwrap_or(f64::NAN) as f32;
    }
    Ok(())
}

/// Columns `start .. start + len` of every row of that width; the rest of the slot's rows is padding.
pub(super) fn read_part(
    bytes: &[u8],
    element: Element,
    (start, len): (usize, usize),
    width: usize,
    rows: &mut [bf16],
) -> Result<(), String> {
    let width = width.max(1);
    let n_rows = (rows.len() / width).max(1);
    let size = element.size_bytes() as usize;
    let stride = bytes.len() / n_rows;
    for (row, bytes) in rows.chunks_exact_mut(width).zip(bytes.chunks_exact(stride)) {
        match (row.get_mut(start..start + len), bytes.get(..len * size)) {
            (Some(part), Some(bytes)) => read(bytes, element, part)?,
            _ => return Err("a part beyond its value".to_owned()),
        }
    }
    Ok(())
}

/// Writes one of a weight's matrices in its slot's layout. Only a few rows for each thread are held in memory; the pages
/// of the file that it was read from are released.
pub(super) fn fill(
    cpu: &Cpu,
    model: &LoadedModel,
    (weight, matrix): (WeightId, usize),
    layout: &WeightLayout,
    slot: &Slot,
    bytes: &mut [u8],
) -> Result<(), NpuError> {
    let spec = &model.model().graph.weights[weight.0];
    let misfit = |problem| NpuError::plan(format!("weight `{}`", spec.name), problem);
    let expected = layout.n_elements([spec.n, spec.k]);
    let found = bytes.len() / slot.element.size_bytes() as usize;
    if expected != Some(found) {
        return Err(misfit(format!(
            "{expected:?} elements for a slot of {found}"
        )));
    }
    let source = SlotSource {
        layout,
        dtype: spec.dtype,
        bytes: model.matrix_bytes(weight, matrix),
        n: spec.n,
        k: spec.k,
    };
    let filled = match slot.element {
        Element::Bf16 => as_numbers::<bf16, _>(bytes, |out| source.fill(cpu, out)),
        Element::F16 => as_numbers::<f16, _>(bytes, |out| source.fill(cpu, out)),
        Element::F32 => as_numbers::<f32, _>(bytes, |out| source.fill(cpu, out)),
        other => return Err(misfit(format!("a layout of {other} is the target's own"))),
    };
    let rows = match *layout {
        WeightLayout::Rows { start, len, .. } => start..start + len,
        _ => 0..spec.n,
    };
    let row_bytes = source.bytes.len() / spec.n.max(1);
    model.release_weight(
        (weight, matrix),
        rows.start * row_bytes..rows.end * row_bytes,
    );
    Ok(filled?)
}

struct SlotSource<'a> {
    layout: &'a WeightLayout,
    dtype: quant::DType,
    bytes: &'a [u8],
    n: usize,
    k: usize,
}

impl SlotSource<'_> {
    /// Fills all of it, on all threads.
    fn fill<T: SlotNumber>(&self, cpu: &Cpu, out: &mut [T]) -> Result<(), quant::Error> {
        let failed = Mutex::new(Ok(()));
        let keep = |result: Result<(), quant::Error>| {
            if result.is_err() {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = result;
            }
        };
        if let WeightLayout::Transposed { .. } = self.layout {
            // A thread fills some elements of every row, so that it writes a separate part.
            let columns = self.k.div_ceil(cpu.pool().n_threads());
            cpu.pool().run_pieces(out, columns * self.n, &|i, out| {
                let end = (i + 1) * columns;
                keep(self.columns(i * columns..end.min(self.k), out));
            });
        } else {
            cpu.pool().run_pieces(out, BLOCK_ROWS * self.k, &|i, out| {
                keep(self.rows(i * BLOCK_ROWS, out))
            });
        }
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

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
    fn rows<T: SlotNumber>(&self, first: usize, out: &mut [T]) -> Result<(), quant::Error> {
        let mut values = vec![0.0; self.k];
        for (i, out) in out.chunks_exact_mut(self.k).enumerate() {
            self.row(first + i, &mut values)?;
            let values = values.iter().map(|x| T::of(*x));
            out.iter_mut().zip(values).for_each(|(out, x)| *out = x);
        }
        Ok(())
    }

    /// Elements `columns` of every row, as rows of `out: [columns.len(), n]`.
    fn columns<T: SlotNumber>(
        &self,
        columns: Range<usize>,
        out: &mut [T],
    ) -> Result<(), quant::Error> {
        let mut block = vec![0.0; BLOCK_ROWS * self.k];
        for first in (0..self.n).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(self.n - first);
            for (i, values) in block.chunks_exact_mut(self.k).take(rows).enumerate() {
                self.row(first + i, values)?;
            }
            for (column, out) in columns.clone().zip(out.chunks_exact_mut(self.n)) {
                let values = block.iter().skip(column).step_by(self.k);
                let out = out[first..first + rows].iter_mut();
                out.zip(values).for_each(|(out, x)| *out = T::of(*x));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_graph::Weight;
    use millrace_kernels::CpuOptions;
    use std::path::Path;

    /// Every layout of every matrix, against the layout's own arrangement.
    #[test]
    fn slots_hold_what_the_layout_says() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
        let model = LoadedModel::open(&path).expect("the model");
        let cpu = Cpu::new(CpuOptions {
            n_threads: Some(2),
            level: None,
        });
        let cpu = cpu.expect("a CPU");
        for (id, spec) in model.model().graph.weights.iter().enumerate() {
            let Weight { n, k, .. } = *spec;
            for layout in layouts(n) {
                let len = layout.n_elements([n, k]).expect("a common layout");
                let row = |row: usize, out: &mut [f32]| {
                    let bytes = model.weight_bytes(WeightId(id));
                    let decoded = quant::decode_rows(spec.dtype, bytes, n, k, row..row + 1, out);
                    decoded.expect("a row");
                };
                let mut expected = vec![bf16::ZERO; len];
                layout.arrange([n, k], row, &mut expected);
                for element in [Element::Bf16, Element::F16, Element::F32] {
                    let slot = Slot {
                        name: "w".to_owned(),
                        element,
                        shape: vec![len as u64],
                        role: millrace_npu::Role::Static,
                    };
                    let size = element.size_bytes() as usize;
                    let mut found = vec![0xa5; len * size];
                    let id = WeightId(id);
                    fill(&cpu, &model, (id, 0), &layout, &slot, &mut found).expect("filled");
                    for (found, expected) in found.chunks_exact(size).zip(&expected) {
                        let found = element.number(found).expect("a number");
                        // bf16 has the fewest digits; its rounding is within a step of the others.
                        let off = (found - expected.to_f64()).abs();
                        let step = f64::from(expected.to_f32().abs()) / 256.0 + 1e-7;
                        let exact = element == Element::Bf16;
                        assert!(
                            off <= if exact { 0.0 } else { step },
                            "{} {layout:?}",
                            spec.name
                        );
                    }
                    found.extend_from_slice(&[0; 4]);
                    assert!(fill(&cpu, &model, (id, 0), &layout, &slot, &mut found).is_err());
                }
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
