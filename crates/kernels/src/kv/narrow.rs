//! Cache types of 4 to 6 bits.
//!
//! A row of K or V of one head is rotated (Hadamard) before it is rounded. So no dimension is much larger than the others of its
//! block. Queries are rotated in the same way, which leaves scores unchanged, and attention's result is rotated back. A rotation
//! is its own inverse.
//!
//! A tile has the scales of [`KvType::Q8_0`], followed by its elements in the same order, in planes of 512 elements each. A plane begins
//! with 256 bytes of low four bits: element `i` in the low half of byte `i`, element `256 + i` in the high half. With five bits, 64 more
//! bytes follow: the fifth bit of element `64 b + i` is bit `b` of byte `i`. With six bits, 128 more follow: the fifth and sixth bits of
//! element `128 b + i` are bits `2 b` and `2 b + 1` of byte `i`. Elements count from 0; the middle of their range represents 0.
//!
//! Kernels multiply tiles of [`KvType::Q8_0`], to which these are widened: bytes with one scale, and the scale unchanged.

use super::{KvLayout, KvSide, KvType, MAX_HEAD_DIM, Q8_DIMS, TILE_TOKENS};
use half::f16;

/// Elements of a plane: two rows of a tile of the smallest head.
const PLANE: usize = 512;

/// Values tried for the largest element of a block, as shares of the end of the range. A slightly narrower range may fit the
/// other elements better.
const RANGES: [f32; 3] = [1.0, 0.9, 0.8];

impl KvType {
    /// Bits of an element, of the types that kernels multiply as [`KvType::Q8_0`].
    pub(crate) const fn narrow_bits(self) -> Option<usize> {
        match self {
            KvType::Q6_0 => Some(6),
            KvType::Q5_0 => Some(5),
            KvType::Q4_0 => Some(4),
            KvType::F32 | KvType::F16 | KvType::BF16 | KvType::Q8_0 => None,
        }
    }

    /// The type of the tiles that kernels multiply.
    pub(crate) const fn kernel_type(self) -> KvType {
        match self.narrow_bits() {
            Some(_) => KvType::Q8_0,
            None => self,
        }
    }
}

/// Rotates a row of one head in place, block by block. The rotation is the orthonormal Hadamard matrix of the largest power of
/// two that divides the row's length.
pub(crate) fn rotate(row: &mut [f32]) {
    let n = 1 << row.len().trailing_zeros();
    let factor = 1.0 / (n as f32).sqrt();
    for block in row.chunks_exact_mut(n) {
        let mut half = 1;
        while half < n {
            for pair in block.chunks_exact_mut(2 * half) {
                let (first, second) = pair.split_at_mut(half);
                for (a, b) in first.iter_mut().zip(second) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        block.iter_mut().for_each(|x| *x *= factor);
    }
}

/// Widens a tile of `bits` an element, with `scale_bytes` of scales, to one of [`KvType::Q8_0`].
pub(crate) fn widen(bits: usize, scale_bytes: usize, tile: &[u8], out: &mut [u8]) {
    let (scales, planes) = tile.split_at(scale_bytes);
    let (out_scales, out) = out.split_at_mut(scale_bytes);
    out_scales.copy_from_slice(scales);
    let planes = planes.chunks_exact(plane_bytes(bits));
    for (plane, out) in planes.zip(out.chunks_exact_mut(PLANE)) {
        match bits {
            4 => widen_plane::<4>(plane, out),
            5 => widen_plane::<5>(plane, out),
            _ => widen_plane::<6>(plane, out),
        }
    }
}

const fn plane_bytes(bits: usize) -> usize {
    PLANE * bits / 8
}

fn widen_plane<const BITS: usize>(plane: &[u8], out: &mut [u8]) {
    let (low, high) = plane.split_at(PLANE / 2);
    let (first, second) = out.split_at_mut(PLANE / 2);
    for ((low, a), b) in low.iter().zip(first).zip(second) {
        (*a, *b) = (low & 15, low >> 4);
    }
    let n_high = BITS - 4;
    if n_high > 0 {
        let mask = (1 << n_high) - 1;
        for (i, out) in out.chunks_exact_mut(PLANE * n_high / 8).enumerate() {
            for (out, high) in out.iter_mut().zip(high) {
                *out |= (high >> (i * n_high) & mask) << 4;
            }
        }
    }
    for out in out {
        *out = out.wrapping_sub(1 << (BITS - 1));
    }
}

/// Position of the bits of a tile's element: byte, shift and count, for the low four bits and for the upper ones.
fn places(bits: usize, index: usize) -> [(usize, usize, usize); 2] {
    let (first, at) = (index / PLANE * plane_bytes(bits), index % PLANE);
    let n_high = bits - 4;
    let n_bytes = PLANE * n_high / 8;
    let (high, shift) = match at.checked_div(n_bytes) {
        Some(part) => (at % n_bytes, part * n_high),
        // No bits, of any byte.
        None => (0, 0),
    };
    let half = PLANE / 2;
    let high = match n_high {
        0 => first,
        _ => first + half + high,
    };
    [(first + at % half, at / half * 4, 4), (high, shift, n_high)]
}

fn put(bits: usize, elems: &mut [u8], index: usize, mut value: u8) {
    for (byte, shift, n) in places(bits, index) {
        let mask = (1 << n) - 1;
        elems[byte] = elems[byte] & !(mask << shift) | (value & mask) << shift;
        value >>= n;
    }
}

fn get(bits: usize, elems: &[u8], index: usize) -> u8 {
    let [(low, shift, n_low), (high, high_shift, n_high)] = places(bits, index);
    let part = |byte: usize, shift: usize, n: usize| elems[byte] >> shift & ((1 << n) - 1);
    part(low, shift, n_low) | part(high, high_shift, n_high) << n_low
}

/// Stores a row of one head in its slot of a tile.
pub(super) fn store_row(
    layout: &KvLayout,
    (side, bits): (KvSide, usize),
    x: &[f32],
    slot: usize,
    tile: &mut [u8],
) {
    let mut row = [0.0f32; MAX_HEAD_DIM];
    let row = &mut row[..x.len()];
    row.copy_from_slice(x);
    rotate(row);
    let (scales, elems) = tile.split_at_mut(layout.scale_bytes());
    let mut values = [0u8; Q8_DIMS];
    for (block, numbers) in row.chunks(Q8_DIMS).enumerate() {
        let scale = round_block(numbers, bits, &mut values);
        let index = layout.scale_index(side, slot, block);
        scales[2 * index..2 * index + 2].copy_from_slice(&scale.to_le_bytes());
        for (i, value) in values[..numbers.len()].iter().enumerate() {
            let index = layout.elem_index(side, slot, block * Q8_DIMS + i);
            put(bits, elems, index, *value);
        }
    }
}

/// Reads a row of one head back, as it was before it was rotated.
pub(super) fn read_row(
    layout: &KvLayout,
    (side, bits): (KvSide, usize),
    tile: &[u8],
    slot: usize,
    out: &mut [f32],
) {
    let (scales, elems) = tile.split_at(layout.scale_bytes());
    let zero = 1i16 << (bits - 1);
    for (dim, out) in out.iter_mut().enumerate() {
        let value = get(bits, elems, layout.elem_index(side, slot, dim));
        let at = 2 * layout.scale_index(side, slot, dim / Q8_DIMS);
        let scale = f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32();
        *out = f32::from(i16::from(value) - zero) * scale;
    }
    rotate(out);
}

/// Rounds the numbers of a block to `bits`; returns the scale. Tries a few ranges, each with the scale that fits its values
/// best, and keeps the one with the least sum of squared errors.
fn round_block(numbers: &[f32], bits: usize, out: &mut [u8; Q8_DIMS]) -> f16 {
    let zero = (1i32 << (bits - 1)) as f32;
    let largest = numbers.iter().fold(
        0.0f32,
        |largest, x| {
            if x.abs() > largest.abs() { *x } else { largest }
        },
    );
    let mut best = (f32::INFINITY, f16::ZERO);
    out.fill(zero as u8);
    for range in RANGES {
        // The largest becomes the end of the range, which has one value more below 0 than above.
        let step = -largest * range / zero;
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        let mut values = [0.0f32; Q8_DIMS];
        let (mut products, mut squares) = (0.0f32, 0.0f32);
        for (value, x) in values.iter_mut().zip(numbers) {
            *value = (x * inverse).round_ties_even().clamp(-zero, zero - 1.0);
            products += x * *value;
            squares += *value * *value;
        }
        let scale = if squares > 0.0 {
            products / squares
        } else {
            0.0
        };
        let limit = f16::MAX.to_f32();
        let scale = f16::from_f32(scale.clamp(-limit, limit));
        let scale_f32 = scale.to_f32();
        let errors = values.iter().zip(numbers);
        let error: f32 = errors
            .map(|(value, x)| (x - value * scale_f32).powi(2))
            .sum();
        if error < best.0 {
            best = (error, scale);
            for (out, value) in out.iter_mut().zip(values) {
                *out = (value + zero) as u8;
            }
        }
    }
    best.1
}

impl KvLayout {
    /// Where an element is among those of its tile.
    pub(super) fn elem_index(&self, side: KvSide, slot: usize, dim: usize) -> usize {
        match side {
            KvSide::K => dim * TILE_TOKENS + slot,
            KvSide::V => slot * self.padded_dim() + dim,
        }
    }

    /// Where the scale of a block of dimensions is among those of its tile.
    pub(super) fn scale_index(&self, side: KvSide, slot: usize, block: usize) -> usize {
        match side {
            KvSide::K => block * TILE_TOKENS + slot,
            KvSide::V => slot * self.scale_blocks() + block,
        }
    }

    /// The layout of the tiles that kernels multiply.
    pub(crate) fn widened(&self) -> KvLayout {
        KvLayout {
            dtype: self.dtype.kernel_type(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_is_orthonormal_and_its_own_inverse() {
        for n in [32, 64, 96, 128, 160, 256, 576] {
            let before: Vec<f32> = (0..n)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0)
                .collect();
            let mut row = before.clone();
            rotate(&mut row);
            let norm = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            assert!((norm(&row) / norm(&before) - 1.0).abs() < 1e-6, "{n}");
            // One large dimension is spread over its block.
            let mut spike = vec![0.0; n];
            spike[1] = 8.0;
            rotate(&mut spike);
            let block = 1 << n.trailing_zeros();
            let expected = 8.0 / (block as f32).sqrt();
            assert!(
                spike[..block]
                    .iter()
                    .all(|x| (x.abs() - expected).abs() < 1e-5)
            );
            rotate(&mut row);
            for (found, expected) in row.iter().zip(&before) {
                assert!(
                    (found - expected).abs() < 1e-4,
                    "{n}: {found} for {expected}"
                );
            }
        }
    }

    /// A dimension far larger than the others takes the range of its block, unless a rotation spreads it over all.
    #[test]
    fn rotated_rows_bear_a_large_dimension() {
        let mut row: Vec<f32> = (0..128)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 30.0)
            .collect();
        row[40] = 30.0;
        let rounded = |row: &[f32]| -> Vec<f32> {
            let block = |numbers: &[f32]| {
                let mut values = [0; Q8_DIMS];
                let scale = round_block(numbers, 4, &mut values).to_f32();
                values.map(|value| (i32::from(value) - 8) as f32 * scale)
            };
            row.chunks(Q8_DIMS).flat_map(block).collect()
        };
        // Loss in the other dimensions of its block, which queries meet as well.
        let loss = |found: &[f32]| -> f32 {
            let others = (32..64).filter(|dim| *dim != 40);
            others.map(|dim| (found[dim] - row[dim]).powi(2)).sum()
        };
        let mut turned = row.clone();
        rotate(&mut turned);
        let mut turned = rounded(&turned);
        rotate(&mut turned);
        let (with, without) = (loss(&turned), loss(&rounded(&row)));
        assert!(4.0 * with < without, "{with} rotated, {without} not");
    }

    /// Stored bits come back, whatever the bytes held before, from the planes and from widened tiles.
    #[test]
    fn bits_are_found_where_they_were_put() {
        for bits in [4, 5, 6] {
            let n_elems = 2 * PLANE;
            let mut elems = vec![0xa5; 2 * plane_bytes(bits)];
            let value = |i: usize| (i * 37 % 101 % (1 << bits)) as u8;
            for i in (0..n_elems).rev() {
                put(bits, &mut elems, i, value(i));
            }
            let mut wide = vec![0; n_elems];
            widen(bits, 0, &elems, &mut wide);
            for (i, wide) in wide.iter().enumerate() {
                assert_eq!(get(bits, &elems, i), value(i), "{bits} bits, element {i}");
                let zero = 1 << (bits - 1);
                assert_eq!(i16::from(wide.cast_signed()), i16::from(value(i)) - zero);
            }
        }
    }

    #[test]
    fn blocks_are_rounded_to_the_range_that_fits() {
        // For a block of normal numbers 4 bits keep all but 1 % of the energy; each further bit quarters the loss.
        let numbers: Vec<f32> = (0..32 * 64)
            .map(|i| {
                let uniform = |k: usize| ((i * 12 + k) * 7919 % 10_007) as f32 / 10_007.0;
                (0..12).map(uniform).sum::<f32>() - 6.0
            })
            .collect();
        let loss = |bits: usize| {
            let (mut errors, mut energy) = (0.0, 0.0);
            for numbers in numbers.chunks(Q8_DIMS) {
                let mut values = [0; Q8_DIMS];
                let scale = round_block(numbers, bits, &mut values).to_f32();
                for (x, value) in numbers.iter().zip(values) {
                    let zero = 1i32 << (bits - 1);
                    let found = (i32::from(value) - zero) as f32 * scale;
                    errors += (x - found).powi(2);
                    energy += x * x;
                }
            }
            errors / energy
        };
        for (bits, most) in [(4, 0.01), (5, 0.0025), (6, 0.0007)] {
            assert!(loss(bits) < most, "{bits}: {}", loss(bits));
        }
        for numbers in [[0.0; 32], [1e-30; 32], [f32::INFINITY; 32], [f32::NAN; 32]] {
            let mut values = [0; Q8_DIMS];
            assert!(round_block(&numbers, 4, &mut values).is_finite());
        }
    }
}
