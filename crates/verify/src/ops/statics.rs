//! Expected content of static slots, from the definitions of the layouts alone.
//!
//! None of this code is called by the code that fills slots. Of a matrix W `[n, k]` of the checkpoint, element
//! W\[r\]\[c\] is in the slot, in elements from its begin, at
//!
//! | layout | place |
//! |---|---|
//! | as stored | s·k + c |
//! | transposed | c·n + s |
//! | rows a .. a + l of it, then zeros | (r − a)·k + c |
//! | vector | c, with the offset added |
//!
//! where s = r, or with heads of D elements put from interleaved to half-split order, for
//! r = h·D + 2i + p: s = h·D + p·D/2 + i. Rounding to bf16 is to nearest, ties to even. A table's row
//! for token t and head h is number t·n_heads + h: the cosines of all frequencies, then their sines.

use millrace_graph::{Rope, WeightId};
use millrace_npu::Element;
use millrace_plan::{TableRows, WeightLayout};
use millrace_quant as quant;
use millrace_runtime::Error;
use millrace_runtime::LoadedModel;

/// Expected content of the slot of one of a weight's matrices, before it is rounded to the slot's type.
pub(super) fn weight(
    model: &LoadedModel,
    (weight, matrix): (WeightId, usize),
    layout: &WeightLayout,
) -> Result<Vec<f32>, Error> {
    let spec = &model.model().graph.weights[weight.0];
    let (n, k) = (spec.n, spec.k);
    let rows = match *layout {
        WeightLayout::Rows { start, len, .. } => start..start + len,
        _ => 0..n,
    };
    let n_elems = match *layout {
        WeightLayout::Rows { padded_to, .. } => padded_to * k,
        _ => n * k,
    };
    let mut slot = vec![0.0; n_elems];
    let mut row = vec![0.0; k];
    let bytes = model.matrix_bytes(weight, matrix);
    for r in rows {
        quant::decode_rows(spec.dtype, bytes, n, k, r..r + 1, &mut row)?;
        for (c, value) in row.iter().enumerate() {
            let (at, value) = match *layout {
                WeightLayout::AsStored { half_split } => (split(r, half_split) * k + c, *value),
                WeightLayout::Transposed { half_split } => (c * n + split(r, half_split), *value),
                WeightLayout::Rows { start, .. } => ((r - start) * k + c, *value),
                WeightLayout::Vector { offset } => (c, value + offset),
                // Rows in this order, before the target arranges them.
                WeightLayout::Own { half_split, .. } => (split(r, half_split) * k + c, *value),
            };
            if let Some(place) = slot.get_mut(at) {
                *place = value;
            }
        }
    }
    Ok(slot)
}

/// All numbers of a weight that experts have one or a row each of, in their order.
pub(super) fn vector(model: &LoadedModel, id: WeightId) -> Result<Vec<f32>, Error> {
    let layout = WeightLayout::AsStored { half_split: None };
    let mut all = Vec::new();
    for matrix in 0..model.model().graph.weights[id.0].n_experts {
        all.extend(weight(model, (id, matrix), &layout)?);
    }
    Ok(all)
}

/// A bias in the column order of its product, whose weight has this layout.
pub(super) fn bias(
    model: &LoadedModel,
    bias: WeightId,
    layout: &WeightLayout,
) -> Result<Vec<f32>, Error> {
    let half_split = match *layout {
        WeightLayout::AsStored { half_split }
        | WeightLayout::Transposed { half_split }
        | WeightLayout::Own { half_split, .. } => half_split,
        WeightLayout::Rows { .. } | WeightLayout::Vector { .. } => None,
    };
    let stored = weight(model, (bias, 0), &WeightLayout::Vector { offset: 0.0 })?;
    let mut columns = vec![0.0; stored.len()];
    for (r, value) in stored.iter().enumerate() {
        if let Some(place) = columns.get_mut(split(r, half_split)) {
            *place = *value;
        }
    }
    Ok(columns)
}

/// Target row of a checkpoint's row.
fn split(r: usize, head_dim: Option<usize>) -> usize {
    let Some(d) = head_dim else { return r };
    let (head, pair, part) = (r / d, r % d / 2, r % 2);
    head * d + part * (d / 2) + pair
}

/// Numbers in a slot's element type, each rounded to nearest.
pub(super) fn encode(values: &[f32], element: Element) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    match element {
        Element::F32 => values
            .iter()
            .for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
        Element::F16 => values
            .iter()
            .for_each(|x| bytes.extend_from_slice(&half::f16::from_f32(*x).to_le_bytes())),
        _ => values
            .iter()
            .for_each(|x| bytes.extend_from_slice(&to_bf16(*x).to_le_bytes())),
    }
    bytes
}

fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = bits >> 16 & 1;
    (bits.wrapping_add(0x7fff + odd) >> 16) as u16
}

/// Expected content of the slot of a table. A cosine that is halfway between two numbers of bf16 may be rounded to
/// either. Where `found` is as near to the exact number as f32 can resolve, `found` is expected.
pub(super) fn table(rope: &Rope, rows: TableRows, first: usize, found: &[f64]) -> Vec<f32> {
    /// Error of a cosine in f32 and of its product with the factor, beyond which no tie is seen.
    const SLACK: f64 = 1.0 / (1_u64 << 21) as f64;
    let half = rope.inv_freq.len();
    let mut slot = vec![0.0; rows.n_tokens * rows.n_heads * 2 * half];
    for (at, value) in slot.iter_mut().enumerate() {
        let (row, i) = (at / (2 * half), at % (2 * half));
        let position = first + row / rows.n_heads;
        // The angle is a product in f32, as where the model was trained.
        let angle = f64::from(position as f32 * rope.inv_freq[i % half]);
        let exact = if i < half { angle.cos() } else { angle.sin() };
        let exact = exact * f64::from(rope.attention_factor);
        *value = exact as f32;
        if let Some(&found) = found.get(at) {
            let rounded = f32::from_bits(u32::from(to_bf16(*value)) << 16);
            if f64::abs(found - exact) <= f64::abs(f64::from(rounded) - exact) + SLACK {
                *value = found as f32;
            }
        }
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use millrace_graph::RopeStyle;

    #[test]
    fn rounding_is_to_nearest_even() {
        for bits in (0..u32::MAX).step_by(65_521) {
            let x = f32::from_bits(bits);
            let expected = bf16::from_f32(x);
            if !x.is_nan() {
                assert_eq!(to_bf16(x), expected.to_bits(), "{x}");
            }
        }
        assert!(bf16::from_bits(to_bf16(f32::NAN)).is_nan());
    }

    /// By hand: two heads of four, rows 0 1 2 3 of a head become 0 2 1 3.
    #[test]
    fn interleaved_rows_are_split_in_halves() {
        let found: Vec<usize> = (0..8).map(|r| split(r, Some(4))).collect();
        assert_eq!(found, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(split(5, None), 5);
    }

    #[test]
    fn a_table_of_another_position_is_another() {
        let rope = Rope {
            style: RopeStyle::HalfSplit,
            n_rot: 4,
            inv_freq: vec![1.0, 0.01],
            attention_factor: 1.0,
        };
        let rows = TableRows {
            n_tokens: 3,
            n_heads: 2,
        };
        let bits = |first| -> Vec<f64> {
            let table = millrace_plan::rope_table(&rope, rows, first);
            table.into_iter().map(bf16::to_f64).collect()
        };
        let table = |found: &[f64], first| -> Vec<f64> {
            let table = table(&rope, rows, first, found);
            table.into_iter().map(f64::from).collect()
        };
        for first in [0, 5, 1000] {
            let found = bits(first);
            assert_eq!(table(&found, first), found);
            assert_ne!(table(&bits(first + 1), first), bits(first + 1));
        }
    }
}
