//! Content that the host writes into slots: quantised weights, positions, masks, rotation matrices.

use crate::Element;
use crate::lower::{PassSizes, Weights};
use millrace_graph::Rope;
use std::ops::Range;

/// Added to scores of keys that a query does not see. Finite, so that a chunk without a single key gives
/// numbers.
pub const MASKED: f32 = -1e30;

/// A weight as its slot holds it, and its scales, one a row, where it has them.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotWeight {
    /// The slot of the weight.
    pub bytes: Vec<u8>,
    /// The slot of its scales, f32: factors of the sum of stored weights times scaled activations.
    pub scales: Option<Vec<u8>>,
}

/// Stores a weight `[n, k]`, row-major.
pub fn store_weight(values: &[f32], k: usize, weights: Weights) -> SlotWeight {
    let element = weights.stored();
    let largest = weights.largest();
    let mut bytes = vec![0; element.bytes(values.len() as u64) as usize];
    let mut scales = Vec::new();
    for (number, row) in values.chunks(k.max(1)).enumerate() {
        let size = row.iter().fold(0f32, |size, x| size.max(x.abs()));
        let scale = match largest {
            Some(largest) if size > 0.0 => size / largest,
            _ => 1.0,
        };
        for (at, x) in row.iter().enumerate() {
            element.encode(x / scale, &mut bytes, number * k + at);
        }
        scales.extend((scale / weights.activation_scale()).to_le_bytes());
    }
    SlotWeight {
        bytes,
        scales: largest.map(|_| scales),
    }
}

/// Values as a slot holds them.
pub fn store(element: Element, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; element.bytes(values.len() as u64) as usize];
    for (at, &value) in values.iter().enumerate() {
        element.encode(value, &mut bytes, at);
    }
    bytes
}

/// The table of rotations, `[n_cache, d_k_prime, f, r]` bf16: those of positions 0 to `n_cache`.
pub fn rope_table(rope: &Rope, n_cache: u64) -> Vec<u8> {
    rotations(rope, 0..n_cache)
}

/// Rotations of some positions, `[n, d_k_prime, f, r]` bf16: `x'[r] = Σ_f x[f] · t[f, r]`, with
/// `t = [[cos, sin], [-sin, cos]]` of `position · inv_freq`. Angles are computed in f32, as Hugging Face's
/// reference does.
pub fn rotations(rope: &Rope, positions: Range<u64>) -> Vec<u8> {
    let mut table = Vec::new();
    for position in positions {
        for &frequency in &rope.inv_freq {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            let factor = rope.attention_factor;
            table.extend([cos * factor, sin * factor, -sin * factor, cos * factor]);
        }
    }
    store(Element::Bf16, &table)
}

/// The tokens of one sequence in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencePart {
    /// Tokens in the cache before the pass.
    pub n_past: u64,
    /// Tokens of the pass; the bucket's others are padding.
    pub n_new: u64,
}

/// Positions of a pass, `[B, s_q]` i32: the first token's is the number of those before it. Padding gets the last
/// row of the cache, which no token may have.
pub fn positions(call: PassSizes, parts: &[SequencePart]) -> Vec<u8> {
    let mut all = Vec::new();
    for sequence in 0..call.batch {
        let part = parts.get(sequence as usize);
        let (n_past, n_new) = part.map_or((0, 0), |part| (part.n_past, part.n_new));
        let spare = call.n_cache.saturating_sub(1);
        for token in 0..call.n_tokens {
            let position = match token < n_new {
                true => (n_past + token).min(spare),
                false => spare,
            };
            all.extend((position as i32).to_le_bytes());
        }
    }
    all
}

/// The mask of a pass, `[B, s_q, s_k]` f32: a token sees itself and earlier ones. Padding sees the same as the last
/// token.
pub fn mask(call: PassSizes, parts: &[SequencePart]) -> Vec<u8> {
    let mut all = Vec::new();
    for sequence in 0..call.batch {
        let part = parts.get(sequence as usize);
        let (n_past, n_new) = part.map_or((0, 1), |part| (part.n_past, part.n_new.max(1)));
        for token in 0..call.n_tokens {
            let last = n_past + token.min(n_new - 1);
            for key in 0..call.n_keys {
                let added = if key <= last { 0.0 } else { MASKED };
                all.extend(f32::to_le_bytes(added));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_causal_and_hide_padding() {
        let call = PassSizes {
            batch: 1,
            n_tokens: 4,
            n_keys: 8,
            n_cache: 8,
        };
        let part = SequencePart {
            n_past: 2,
            n_new: 3,
        };
        let bytes = mask(call, &[part]);
        let mut values = vec![0.0; 32];
        Element::F32.decode(&bytes, 0, &mut values);
        let seen: Vec<usize> = values
            .chunks(8)
            .map(|row| row.iter().filter(|x| **x == 0.0).count())
            .collect();
        assert_eq!(seen, [3, 4, 5, 5]);
        let mut at = vec![0.0; 4];
        Element::I32.decode(&positions(call, &[part]), 0, &mut at);
        assert_eq!(at, [2.0, 3.0, 4.0, 7.0]);
    }

    #[test]
    fn stored_weights_come_back_within_their_format() {
        let row: Vec<f32> = (0..64).map(|i| (i as f32 - 31.5) * 0.001).collect();
        for (weights, bound) in [
            (Weights::Bf16, 0.004),
            (Weights::Fp8, 0.0626),
            (Weights::Int4, 0.0721),
            (Weights::Int8, 0.0041),
        ] {
            let stored = store_weight(&row, 64, weights);
            let mut scale = [weights.activation_scale().recip()];
            if let Some(scales) = &stored.scales {
                Element::F32.decode(scales, 0, &mut scale);
            }
            let mut values = vec![0.0; 64];
            weights.stored().decode(&stored.bytes, 0, &mut values);
            for (found, x) in values.iter().zip(&row) {
                let found = found * scale[0] * weights.activation_scale();
                let size = if matches!(weights, Weights::Int4 | Weights::Int8) {
                    0.0315
                } else {
                    x.abs()
                };
                assert!(
                    (found - x).abs() <= bound * size + 1e-5,
                    "{weights:?}: {found} {x}"
                );
            }
        }
    }
}
