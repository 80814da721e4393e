//! Common code of the codebook formats (IQ1_*, IQ2_*, IQ3_*): points of several levels, signs beside them.

mod points;

use crate::search::points::Points;

/// The levels of IQ1_S and IQ1_M.
const TERNARY: [i8; 3] = [-1, 0, 1];
/// The levels of IQ2_*.
const THREE: [i8; 3] = [8, 25, 43];

/// The points of IQ1_S and IQ1_M: levels of both signs.
pub static IQ1_S: [[i8; 8]; 2048] = unpack(points::IQ1_S, TERNARY);
/// The points of IQ2_XXS: magnitudes.
pub static IQ2_XXS: [[i8; 8]; 256] = unpack(points::IQ2_XXS, THREE);
/// The points of IQ2_XS: magnitudes.
pub static IQ2_XS: [[i8; 8]; 512] = unpack(points::IQ2_XS, THREE);
/// The points of IQ2_S: magnitudes.
pub static IQ2_S: [[i8; 8]; 1024] = unpack(points::IQ2_S, THREE);
/// The points of IQ3_XXS: magnitudes.
pub static IQ3_XXS: [[i8; 4]; 256] = unpack(points::IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
/// The points of IQ3_S: magnitudes.
pub static IQ3_S: [[i8; 4]; 512] = unpack(points::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15]);

/// The points that a text of gaps encodes; a text of another number of points does not compile.
const fn unpack<const N: usize, const POINTS: usize, const LEVELS: usize>(
    gaps: &str,
    levels: [i8; LEVELS],
) -> [[i8; N]; POINTS] {
    let gaps = gaps.as_bytes();
    let mut points = [[0; N]; POINTS];
    let (mut number, mut n, mut at) = (0, 0, 0);
    while at < gaps.len() {
        number += digit(gaps[at]);
        if gaps[at] != b'/' {
            let (mut rest, mut i) = (number, 0);
            while i < N {
                points[n][i] = levels[rest % LEVELS];
                rest /= LEVELS;
                i += 1;
            }
            n += 1;
        }
        at += 1;
    }
    assert!(n == POINTS, "a codebook has another number of points");
    points
}

/// The value of a digit of base 64; `/` is 63 with more to follow.
const fn digit(c: u8) -> usize {
    (match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    }) as usize
}

/// The sign bits of eight numbers, by a byte of signs.
static SIGN_BITS: [[u32; 8]; 256] = {
    let mut bits = [[0; 8]; 256];
    let mut i = 0;
    while i < 256 * 8 {
        bits[i / 8][i % 8] = ((i / 8) as u32 >> (i % 8) & 1) << 31;
        i += 1;
    }
    bits
};

/// `scale · point`, negated where a bit of `signs` is set.
#[inline(always)]
pub(super) fn signed<const N: usize>(scale: f32, point: &[i8; N], signs: u8, out: &mut [f32]) {
    let signs = &SIGN_BITS[usize::from(signs)];
    for ((out, level), sign) in out.iter_mut().zip(point).zip(signs) {
        *out = f32::from_bits((scale * f32::from(*level)).to_bits() ^ sign);
    }
}

/// Eight signs of which seven are stored: the number of negative ones is even.
#[inline(always)]
pub(super) fn even_signs(stored: u32) -> u8 {
    let seven = (stored & 0x7F) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// The signs of elements, one bit each.
pub(super) fn signs_of(q: &[f32]) -> u8 {
    q.iter()
        .enumerate()
        .fold(0, |bits, (i, v)| bits | u8::from(*v < 0.0) << i)
}

/// Scales of IQ2_*: `(scale + ½)/4`.
pub(super) const QUARTERS: [f32; 16] = ascending(0.25, 0.125);
/// Scales of IQ1_*: `2·scale + 1`.
pub(super) const ODD: [f32; 8] = ascending(2.0, 1.0);

/// Levels that the search of IQ2_* tries to give the largest magnitude: the lowest, which suits equal numbers, and those
/// around 43, the highest.
pub(super) const ENDS: [(f32, f32, u8); 2] = [(8.0, 12.0, 2), (22.0, 62.0, 21)];
/// The same of IQ1_*, whose highest level is 1⅛.
pub(super) const TERNARY_ENDS: [(f32, f32, u8); 1] = [(0.9, 3.0, 22)];

/// The number that IQ1_* add to the levels of a point, or subtract.
pub(super) const DELTA: f32 = 0.125;

/// `first + i · step`
const fn ascending<const N: usize>(step: f32, first: f32) -> [f32; N] {
    let mut scales = [0.0; N];
    let mut i = 0;
    while i < N {
        scales[i] = first + i as f32 * step;
        i += 1;
    }
    scales
}

/// Sixteen 4-bit scales, the low nibbles first.
pub(super) fn put_scales(scales: &[usize; 16], packed: &mut [u8]) {
    for (pair, byte) in scales.as_chunks::<2>().0.iter().zip(packed) {
        *byte = (pair[0] | pair[1] << 4) as u8;
    }
}

/// Levels of IQ1_* nearest to `x · inverse`: `RUN` elements share the choice of adding or subtracting [`DELTA`].
pub(super) fn shifted<const RUN: usize, const SUB: usize>(
    points: &Points<8>,
    x: &[f32; SUB],
    w: &[f32; SUB],
    inverse: f32,
) -> [f32; SUB] {
    let mut q = [0.0; SUB];
    let runs = x.as_chunks::<RUN>().0.iter().zip(w.as_chunks::<RUN>().0);
    for ((x, w), q) in runs.zip(q.as_chunks_mut::<RUN>().0) {
        let mut least = f32::INFINITY;
        for delta in [DELTA, -DELTA] {
            let (mut levels, mut error) = ([0.0; RUN], 0.0);
            for first in (0..RUN).step_by(8) {
                let v = std::array::from_fn(|i| x[first + i] * inverse - delta);
                let w = std::array::from_fn(|i| w[first + i]);
                let point = points.nearest(&v, &w);
                for i in 0..8 {
                    levels[first + i] = point[i] + delta;
                    error += w[i] * (point[i] - v[i]).powi(2);
                }
            }
            if error < least {
                (*q, least) = (levels, error);
            }
        }
    }
    q
}

/// The index of a point that [`shifted`] gave, and whether [`DELTA`] was subtracted.
pub(super) fn unshifted(points: &Points<8>, q: &[f32; 8]) -> (usize, bool) {
    // A level plus ⅛ has a fraction of ⅛ upwards of a whole number, one minus ⅛ downwards.
    let is_negative = (q[0] + 1.5) % 1.0 < 0.5;
    let delta = if is_negative { -DELTA } else { DELTA };
    (points.index_of(&q.map(|level| level - delta)), is_negative)
}

/// The index of the point whose levels are the magnitudes of `q`.
pub(super) fn index_of<const N: usize>(points: &Points<N>, q: &[f32]) -> usize {
    points.index_of(&std::array::from_fn(|i| q[i].abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a of all levels, as the package `gguf` has them.
    fn digest<const N: usize>(points: &[[i8; N]]) -> u64 {
        points
            .as_flattened()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |h, v| {
                (h ^ u64::from(*v as u8)).wrapping_mul(0x100_0000_01b3)
            })
    }

    #[test]
    fn every_point_is_that_of_the_reference() {
        let found = [
            digest(&IQ1_S),
            digest(&IQ2_XXS),
            digest(&IQ2_XS),
            digest(&IQ2_S),
            digest(&IQ3_XXS),
            digest(&IQ3_S),
        ];
        assert_eq!(found.map(|h| format!("{h:016x}")), DIGESTS);
    }

    /// Printed by `tools/make_quant_codebooks.py --digests`.
    const DIGESTS: [&str; 6] = [
        "6703ed863501ae2e",
        "bb4ee025b5ac6e8e",
        "c9b1ee61e79909bd",
        "123edd38a3b62b90",
        "dfa5dc83d6a155d5",
        "fa37020c25b44829",
    ];

    /// The table `ksigns_iq2xs` of ggml-common.h begins with these.
    #[test]
    fn the_eighth_sign_makes_their_number_even() {
        let first: Vec<u8> = (0..8).map(even_signs).collect();
        assert_eq!(first, [0, 0x81, 0x82, 3, 0x84, 5, 6, 0x87]);
        assert_eq!(even_signs(127), 0xFF);
        assert!((0..128).all(|stored| even_signs(stored).count_ones().is_multiple_of(2)));
    }
}
