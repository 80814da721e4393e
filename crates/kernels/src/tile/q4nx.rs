//! Q4NX blocks on a core: multiplied with a vector without being expanded, or expanded to bf16.
//!
//! A block is 32 rows by 256 columns in 5,120 bytes (`millrace_quant`'s `q4nx`, additive): scale and
//! offset in bf16 for each row and group of 32 columns, then levels of 4 bits, `w = scale·q + offset`.
//!
//! - [`q4nx_matvec`]: for each group, t = Σ q·x in f32 in the order of columns and rounded to bf16,
//!   then y += scale·t and y += offset·s, where s is the group's sum of x ([`q4nx_sums`], rounded to bf16).
//!   That is the order and the rounding of MLIR-AIR's `q4_k.h`, which the Gemma paper's FusedDQP
//!   (§3.2.1) describes in sub-blocks of 16 × 8. All products are exact in f32, so fused
//!   multiply-adds give the same bits as separate ones.
//! - [`q4nx_expand`]: `bf16(scale·q + offset)`, the sum in f32, as B of a product A · Wᵀ. Levels of 16 rows are
//!   side by side in a block, and so are the columns of B, so nothing is transposed.

use super::{BLOCK, BLOCK_ELEMENTS};
use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::level::Level;
use half::bf16;
use std::ops::Range;

/// Bytes of a block.
pub const Q4NX_BYTES: usize = 5120;
/// Rows of a block.
pub const Q4NX_ROWS: usize = 32;
/// Columns of a block.
pub const Q4NX_COLS: usize = 256;
/// Columns that share a scale and an offset.
pub const Q4NX_GROUP: usize = 32;

/// Where offsets begin.
const OFFSETS: usize = 512;
/// Where levels begin.
const LEVELS: usize = 1024;
/// Rows whose levels of a column are side by side.
const HALF: usize = 16;
/// Bytes of the levels of [`HALF`] rows in a column.
const COLUMN_BYTES: usize = HALF / 2;

/// A block.
pub type Q4nxBlock = [u8; Q4NX_BYTES];

/// Sums of groups of 32 neighbours, in f32 in order, each rounded to bf16.
///
/// # Panics
/// If there are not as many sums as groups.
pub fn q4nx_sums(x: &[bf16], sums: &mut [bf16]) {
    assert_eq!(x.len(), sums.len() * Q4NX_GROUP, "elements of x");
    for (x, sum) in x.chunks_exact(Q4NX_GROUP).zip(sums) {
        *sum = round(x.iter().fold(0.0_f32, |sum, x| sum + x.to_f32()));
    }
}

/// `y += W · x` of a block and 256 elements of x, in the order that this file's head tells.
///
/// # Panics
/// If `x` has not 256 elements, `sums` 8 and `y` 32.
pub fn q4nx_matvec(cpu: &Cpu, w: &Q4nxBlock, x: &[bf16], sums: &[bf16], y: &mut [f32]) {
    let found = (x.len(), sums.len(), y.len());
    let expected = (Q4NX_COLS, Q4NX_COLS / Q4NX_GROUP, Q4NX_ROWS);
    assert_eq!(found, expected, "lengths of x, its sums and y");
    match cpu.level() {
        // SAFETY: a `Cpu` proves its level.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 => unsafe { matvec_avx512(w, x, sums, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { matvec_avx2(w, x, sums, y) },
        _ => matvec(w, x, sums, y),
    }
    super::portable::canonical(y);
}

/// Columns of a block as bf16, as the matrix unit takes B `[k, n]` of A · Wᵀ, rows of W being columns of B:
/// `[32/8 rows][columns/8][8 columns][8 rows]`, which is `[32/8 rows][columns][8 rows]`.
///
/// # Panics
/// If the columns are not multiples of 8 within the block, or `out` does not have 32 elements for each.
pub fn q4nx_expand(cpu: &Cpu, w: &Q4nxBlock, columns: Range<usize>, out: &mut [bf16]) {
    let in_blocks = columns.start.is_multiple_of(BLOCK) && columns.len().is_multiple_of(BLOCK);
    assert!(in_blocks && columns.end <= Q4NX_COLS, "columns {columns:?}");
    assert_eq!(out.len(), columns.len() * Q4NX_ROWS, "elements of B");
    match cpu.level() {
        // SAFETY: a `Cpu` proves its level.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 => unsafe { expand_avx512(w, columns, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { expand_avx2(w, columns, out) },
        _ => expand(w, columns, out),
    }
}

/// # Safety
/// The CPU must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn matvec_avx2(w: &Q4nxBlock, x: &[bf16], sums: &[bf16], y: &mut [f32]) {
    matvec(w, x, sums, y);
}

/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn matvec_avx512(w: &Q4nxBlock, x: &[bf16], sums: &[bf16], y: &mut [f32]) {
    matvec(w, x, sums, y);
}

/// # Safety
/// The CPU must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn expand_avx2(w: &Q4nxBlock, columns: Range<usize>, out: &mut [bf16]) {
    expand(w, columns, out);
}

/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn expand_avx512(w: &Q4nxBlock, columns: Range<usize>, out: &mut [bf16]) {
    expand(w, columns, out);
}

/// To nearest, ties to even; not-a-number becomes canonical.
#[inline(always)]
fn round(x: f32) -> bf16 {
    bf16::from_bits(round_bits(x.to_bits()))
}

#[inline(always)]
fn round_bits(bits: u32) -> u16 {
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
    if is_nan { 0x7fc0 } else { rounded }
}

/// The scales or offsets of a group, of sixteen rows from `first`.
#[inline(always)]
fn sixteen(w: &Q4nxBlock, at: usize, group: usize, first: usize) -> [f32; HALF] {
    let start = at + (group * Q4NX_ROWS + first) * 2;
    let bytes = &w[start..start + 2 * HALF];
    std::array::from_fn(|i| f32::from_le_bytes([0, 0, bytes[2 * i], bytes[2 * i + 1]]))
}

/// Levels of the columns in sixteen rows: a byte has those of an even row and of the odd row after it.
#[inline(always)]
fn levels(w: &Q4nxBlock, half: usize) -> &[[u8; COLUMN_BYTES]] {
    let columns = w[LEVELS..].as_chunks::<COLUMN_BYTES>().0;
    &columns[half * Q4NX_COLS..][..Q4NX_COLS]
}

#[inline(always)]
fn matvec(w: &Q4nxBlock, x: &[bf16], sums: &[bf16], y: &mut [f32]) {
    for (half, y) in y.chunks_exact_mut(HALF).enumerate() {
        let levels = levels(w, half).chunks_exact(Q4NX_GROUP);
        let groups = x.chunks_exact(Q4NX_GROUP).zip(levels).zip(sums);
        for (group, ((x, levels), sum)) in groups.enumerate() {
            let (mut even, mut odd) = ([0.0_f32; COLUMN_BYTES], [0.0_f32; COLUMN_BYTES]);
            for (x, levels) in x.iter().zip(levels) {
                let x = x.to_f32();
                for row in 0..COLUMN_BYTES {
                    even[row] += f32::from(levels[row] & 15) * x;
                    odd[row] += f32::from(levels[row] >> 4) * x;
                }
            }
            let scales = sixteen(w, 0, group, half * HALF);
            let offsets = sixteen(w, OFFSETS, group, half * HALF);
            let sum = sum.to_f32();
            for row in 0..HALF {
                let level_sum = if row % 2 == 0 { even } else { odd }[row / 2];
                y[row] += scales[row] * round(level_sum).to_f32();
                y[row] += offsets[row] * sum;
            }
        }
    }
}

#[inline(always)]
fn expand(w: &Q4nxBlock, columns: Range<usize>, out: &mut [bf16]) {
    let panels = HALF * columns.len();
    for (half, out) in out.chunks_exact_mut(panels).enumerate() {
        let levels = &levels(w, half)[columns.clone()];
        let (low, high) = out.split_at_mut(panels / 2);
        let out = low
            .chunks_exact_mut(BLOCK_ELEMENTS)
            .zip(high.chunks_exact_mut(BLOCK_ELEMENTS));
        let strips = columns.clone().step_by(BLOCK);
        for ((first, levels), (low, high)) in strips.zip(levels.chunks_exact(BLOCK)).zip(out) {
            let group = first / Q4NX_GROUP;
            let scales = sixteen(w, 0, group, half * HALF);
            let offsets = sixteen(w, OFFSETS, group, half * HALF);
            for (column, levels) in levels.iter().enumerate() {
                let mut values = [bf16::ZERO; HALF];
                for row in 0..HALF {
                    let level = levels[row / 2] >> (row % 2 * 4) & 15;
                    values[row] = round(scales[row] * f32::from(level) + offsets[row]);
                }
                low[column * BLOCK..][..BLOCK].copy_from_slice(&values[..BLOCK]);
                high[column * BLOCK..][..BLOCK].copy_from_slice(&values[BLOCK..]);
            }
        }
    }
}
