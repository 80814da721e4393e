//! Weights that are narrowed when they are loaded: a slot of elements and one of scales a row.

use crate::Element;
use crate::host::store_weight;
use crate::lower::{LARGEST_I8, Weights};
use millrace_kernels::Cpu;
use millrace_plan::{
    Factor, NarrowOperands, OperandArrangement, PlannedLaunch, Scales, WeightArrangement,
    WeightLayout, WeightSource,
};
use millrace_quant as quant;
use std::sync::{Mutex, PoisonError};

/// The target's own layout of elements.
pub(super) const ELEMENTS: WeightArrangement = WeightArrangement(0);
/// Scales of the rows, f32.
pub(super) const ROW_SCALES: WeightArrangement = WeightArrangement(1);

/// Whether a product's weights are stored in less than bf16.
pub(super) fn is_narrowed(launch: &PlannedLaunch) -> bool {
    let bits = launch.tiling.get("bits");
    bits.is_some_and(|bits| bits < Element::Bf16.bits())
}

/// How layers' weights and their activations are narrowed.
pub(super) fn narrowed(weights: Weights) -> Option<NarrowOperands> {
    let largest = weights.largest()?;
    Some(NarrowOperands {
        weights: match weights {
            Weights::Int4 => millrace_npu::Element::I4,
            Weights::Int8 => millrace_npu::Element::I8,
            _ => millrace_npu::Element::F8E4m3,
        },
        largest,
        activations: match weights {
            Weights::Int8 => millrace_npu::Element::I8,
            _ => millrace_npu::Element::F8E4m3,
        },
        factor: match weights {
            Weights::Int8 => Factor::OfRow(LARGEST_I8),
            _ => Factor::Constant(weights.activation_scale()),
        },
    })
}

/// Rows that are stored together.
const ROWS: usize = 64;

/// Fills one of the two slots of a weight; gives the factor of the elements of each row.
///
/// # Errors
/// Bytes that do not decode, a slot of another size.
pub(super) fn fill(
    cpu: &Cpu,
    id: WeightArrangement,
    weights: Weights,
    source: &WeightSource<'_>,
    out: &mut [u8],
) -> Result<Scales, String> {
    let WeightSource { n, k, .. } = *source;
    let row_bytes = weights.stored().bytes(k as u64) as usize;
    let unit = if id == ELEMENTS { row_bytes } else { 4 };
    if out.len() != n * unit {
        return Err(format!("{} bytes for {n} rows of {unit}", out.len()));
    }
    let layout = WeightLayout::Own {
        id,
        half_split: source.half_split,
    };
    let failed = Mutex::new(None);
    let scales = Mutex::new(vec![0f32; n]);
    cpu.pool().run_pieces(out, ROWS * unit, &|piece, out| {
        let mut row = vec![0.0; k];
        for (i, out) in out.chunks_exact_mut(unit).enumerate() {
            let number = piece * ROWS + i;
            let from = layout.source_row(number).unwrap_or(number);
            let (dtype, bytes) = (source.dtype, source.bytes);
            if let Err(error) = quant::decode_rows(dtype, bytes, n, k, from..from + 1, &mut row) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                return;
            }
            let stored = store_weight(&row, k, weights);
            let scale = stored.scales.unwrap_or_default();
            let value = scale
                .first_chunk()
                .map_or(1.0, |bytes| f32::from_le_bytes(*bytes));
            out.copy_from_slice(if id == ELEMENTS {
                &stored.bytes
            } else {
                &scale
            });
            scales.lock().unwrap_or_else(PoisonError::into_inner)[number] =
                value * weights.activation_scale();
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(problem) => Err(problem),
        None => Ok(scales
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .into()),
    }
}

/// The numbers that a slot of elements represents.
///
/// # Errors
/// A slot of scales, or of another size.
pub(super) fn operand(
    id: OperandArrangement,
    weights: Weights,
    bytes: &[u8],
    scales: &Scales,
    rows: &mut [f32],
) -> Result<(), String> {
    let k = rows.len() / scales.len().max(1);
    if id != OperandArrangement::Weight(ELEMENTS)
        || weights.stored().bytes(rows.len() as u64) != bytes.len() as u64
    {
        return Err("scales of rows are no operand".to_owned());
    }
    weights.stored().decode(bytes, 0, rows);
    for (row, scale) in rows.chunks_exact_mut(k.max(1)).zip(scales.iter()) {
        row.iter_mut().for_each(|x| *x *= scale);
    }
    Ok(())
}
