//! Q4NX: tiles that already hold sixteen neighbouring rows side by side, column by column.

use crate::matmul::panel::{LINE_BYTES, Source};
use std::arch::x86_64::*;

/// Columns of a tile.
const TILE_K: usize = 256;
/// Groups of 32 columns in a tile.
const GROUPS: usize = TILE_K / 32;
/// Bytes of a group's bf16 scales, one for each of 32 rows.
const GROUP_BYTES: usize = 64;
/// Cache lines of a panel's share of a group.
pub(super) const LINES_A_GROUP: usize = 5120 / 2 / GROUPS / LINE_BYTES;
/// Where a tile's offsets start.
const OFFSETS: usize = 512;
/// Where a tile's nibbles start.
const NIBBLES: usize = 1024;

/// For byte `4r + c` of a line, which of the 32 bytes of four columns holds row `r`, column `c`.
const ORDER: [u8; 64] = {
    let mut order = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (row, column) = (i / 4, i % 4);
        order[i] = (column * 8 + row / 2) as u8;
        i += 1;
    }
    order
};

/// Scales and minimums of the 16 rows in group `b` of 32 columns. With a zero point `w = s·(q − z)` the minimum is −s·z, which
/// is exact in f32.
///
/// # Safety
/// The source's tiles reach the group; its rows start at 0 or 16 of the tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn scales(source: &Source, b: usize, is_zero_point: bool) -> (__m512, __m512) {
    // SAFETY: within the tile.
    unsafe {
        let tile = source.base.add(b / GROUPS * source.stride);
        let scales = tile.add(b % GROUPS * GROUP_BYTES + 2 * source.tile_row);
        let d = widen_bf16(_mm256_loadu_si256(scales.cast()));
        let offset = widen_bf16(_mm256_loadu_si256(scales.add(OFFSETS).cast()));
        if is_zero_point {
            (
                d,
                _mm512_sub_ps(_mm512_set1_ps(-0.0), _mm512_mul_ps(d, offset)),
            )
        } else {
            (d, offset)
        }
    }
}

/// The eight lines of group `b`.
///
/// # Safety
/// As [`scales`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(super) unsafe fn lines(source: &Source, b: usize) -> [__m512i; 8] {
    // Odd rows are the high nibbles.
    let shifts = _mm512_set1_epi64(0x0000_0004_0000_0000);
    let low_mask = _mm512_set1_epi8(0x0F);
    // SAFETY: 64 readable bytes; columns are within the tile.
    unsafe {
        let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
        let tile = source.base.add(b / GROUPS * source.stride);
        let half = NIBBLES + source.tile_row / 16 * TILE_K * 8;
        let columns = tile.add(half + b % GROUPS * 32 * 8);
        std::array::from_fn(|i| {
            let four = _mm256_loadu_si256(columns.add(32 * i).cast());
            let v = _mm512_permutexvar_epi8(order, _mm512_castsi256_si512(four));
            _mm512_and_si512(_mm512_srlv_epi32(v, shifts), low_mask)
        })
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn widen_bf16(v: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(v)))
}
