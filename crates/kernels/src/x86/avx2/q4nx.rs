//! Q4NX: tiles that already hold sixteen neighbouring rows side by side, column by column.

use super::lines::{HALF_LINE, store, store_ps};
use crate::matmul::Layout;
use crate::matmul::panel::{LINE_BYTES, PackArgs};
use std::arch::x86_64::*;

/// Groups of 32 columns in a tile.
const GROUPS: usize = 8;
/// Bytes of a group's bf16 scales, one for each of 32 rows.
const GROUP_BYTES: usize = 64;
/// Where a tile's offsets start.
const OFFSETS: usize = 512;
/// Where a tile's nibbles start, and bytes of those of 16 rows.
const NIBBLES: usize = 1024;
const HALF_BYTES: usize = 2048;
/// Cache lines of a panel's share of a group.
const LINES_A_GROUP: usize = 5120 / 2 / GROUPS / LINE_BYTES;

/// Packs the additive reading, `w = s·q + m`.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn q4nx(args: &PackArgs) {
    // SAFETY: forwarded.
    unsafe { pack(args, false) }
}

/// Packs the subtractive reading, `w = s·(q − z)`, as `s·q + (−s·z)`; the product of two bf16 numbers is
/// exact in f32.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn q4nx_sub(args: &PackArgs) {
    // SAFETY: forwarded.
    unsafe { pack(args, true) }
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack(args: &PackArgs, is_zero_point: bool) {
    let source = &args.source;
    let mut ahead = source.ahead;
    for b in 0..source.k / 32 {
        ahead.fetch(LINES_A_GROUP);
        for half in 0..2 {
            // SAFETY: the chunk's tiles and the panel's unit `b` exist; the panel's rows start at 0 or 16 of the tile.
            unsafe {
                let tile = source.base.add(b / GROUPS * source.stride);
                let unit = args
                    .panel
                    .add(b * Layout::Block32Min.unit_bytes() + half * HALF_LINE);
                let at = b % GROUPS * GROUP_BYTES + 2 * (source.tile_row + 8 * half);
                let d = load_bf16(tile.add(at));
                let offset = load_bf16(tile.add(OFFSETS + at));
                let negated = _mm256_sub_ps(_mm256_set1_ps(-0.0), _mm256_mul_ps(d, offset));
                store_ps(unit.add(8 * LINE_BYTES), d);
                store_ps(
                    unit.add(9 * LINE_BYTES),
                    if is_zero_point { negated } else { offset },
                );
                let rows = tile.add(NIBBLES + source.tile_row / 16 * HALF_BYTES);
                let columns = rows.add(b % GROUPS * 32 * 8);
                for i in 0..8 {
                    let four = _mm256_loadu_si256(columns.add(32 * i).cast());
                    store(unit.add(i * LINE_BYTES), spread(four, half));
                }
            }
        }
    }
}

/// Eight rows' nibbles of four columns of 8 bytes, as bytes: 4 columns a lane.
#[inline]
#[target_feature(enable = "avx2")]
fn spread(four: __m256i, half: usize) -> __m256i {
    let h = half as i32;
    // The half's 4 bytes of each column, in both lanes.
    let order = _mm256_setr_epi32(h, 2 + h, 4 + h, 6 + h, h, 2 + h, 4 + h, 6 + h);
    let bytes = _mm256_permutevar8x32_epi32(four, order);
    // A byte holds two rows; the second lane has the half's last four.
    let to_rows = _mm256_setr_epi8(
        0, 4, 8, 12, 0, 4, 8, 12, 1, 5, 9, 13, 1, 5, 9, 13, //
        2, 6, 10, 14, 2, 6, 10, 14, 3, 7, 11, 15, 3, 7, 11, 15,
    );
    let shifts = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    let v = _mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, to_rows), shifts);
    _mm256_and_si256(v, _mm256_set1_epi8(0x0F))
}

/// # Safety
/// Sixteen readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_bf16(from: *const u8) -> __m256 {
    // SAFETY: forwarded.
    let v = unsafe { _mm_loadu_si128(from.cast()) };
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(v)))
}
