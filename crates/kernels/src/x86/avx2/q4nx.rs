//! Q4NX: tiles that already hold sixteen neighbouring rows side by side, column by column.

use super::direct::through_panel;
use super::lines::{HALF_LINE, HALF_ROWS, store, store_ps};
use super::tile_i8x32::tile_four_min;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PackArgs, PanelSource, X32};
use std::arch::x86_64::*;

/// Groups of 32 columns in a tile.
const GROUPS: usize = 8;
/// Bytes of a group's bf16 scales, one for each of 32 rows.
const GROUP_BYTES: usize = 64;
/// Where a tile's offsets start.
const OFFSETS: usize = 512;
/// Where a tile's nibbles start, and the bytes of 16 rows of them.
const NIBBLES: usize = 1024;
const HALF_BYTES: usize = 2048;
/// Cache lines of a panel's share of a group.
const LINES_A_GROUP: usize = 5120 / 2 / GROUPS / LINE_BYTES;

macro_rules! functions_of_reading {
    ($($pack:ident $direct:ident $is_zero_point:literal $what:literal;)*) => {$(
        #[doc = concat!("Packs ", $what, ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$is_zero_point>(args) }
        }

        #[doc = concat!("Multiplies ", $what, ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct_row::<$is_zero_point>(args),
                    _ => through_panel(args, PanelLayout::Block32Min, $pack, tile_four_min),
                }
            }
        }
    )*};
}
functions_of_reading!(
    q4nx direct_q4nx false "the additive reading, `w = s·q + m`";
    q4nx_sub direct_q4nx_sub true "the subtractive reading, `w = s·(q − z)`, as `s·q + (−s·z)`";
);

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack<const IS_ZERO_POINT: bool>(args: &PackArgs) {
    let source = &args.source;
    let mut ahead = source.ahead;
    for b in 0..source.k / 32 {
        ahead.fetch(LINES_A_GROUP);
        for half in 0..2 {
            // SAFETY: the chunk's tiles and the panel's unit `b` exist.
            unsafe {
                let at = b * PanelLayout::Block32Min.unit_bytes() + half * HALF_LINE;
                let unit = args.panel.add(at);
                let (d, min) = scales::<IS_ZERO_POINT>(source, b, half);
                store_ps(unit.add(8 * LINE_BYTES), d);
                store_ps(unit.add(9 * LINE_BYTES), min);
                let columns = columns(source, b);
                for i in 0..8 {
                    let four = _mm256_loadu_si256(columns.add(32 * i).cast());
                    store(unit.add(i * LINE_BYTES), spread(four, half));
                }
            }
        }
    }
}

/// One token: multiplies at once the values that [`pack`] would store. A group's sums stay in i16: 8 · 2 · 15 · 127 is below 2¹⁵.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn direct_row<const IS_ZERO_POINT: bool>(args: &DirectArgs) {
    let source = &args.source;
    let mut ahead = source.ahead;
    // SAFETY: the chunk's tiles exist, and as many records; the accumulators are two vectors.
    unsafe {
        let at = |half: usize| args.acc.add(half * HALF_ROWS);
        let mut acc = [_mm256_load_ps(at(0)), _mm256_load_ps(at(1))];
        for b in 0..source.k / 32 {
            ahead.fetch(LINES_A_GROUP);
            let x = &*args.x.cast::<X32>().add(b);
            let columns = columns(source, b);
            let mut dot = [_mm256_setzero_si256(); 2];
            for i in 0..8 {
                let four = _mm256_loadu_si256(columns.add(32 * i).cast());
                let q = x.q.as_ptr().add(4 * i).cast::<i32>().read_unaligned();
                let q = _mm256_set1_epi32(q);
                for (half, dot) in dot.iter_mut().enumerate() {
                    *dot = _mm256_add_epi16(*dot, _mm256_maddubs_epi16(spread(four, half), q));
                }
            }
            for (half, acc) in acc.iter_mut().enumerate() {
                let (d, min) = scales::<IS_ZERO_POINT>(source, b, half);
                let products = _mm256_madd_epi16(dot[half], _mm256_set1_epi16(1));
                let scale = _mm256_mul_ps(d, _mm256_set1_ps(x.d));
                *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale, *acc);
                *acc = _mm256_fmadd_ps(min, _mm256_set1_ps(x.scaled_sum), *acc);
            }
        }
        for (half, acc) in acc.into_iter().enumerate() {
            _mm256_store_ps(at(half), acc);
        }
    }
}

/// Scales and minimums of eight rows in group `b` of 32 columns; the product of two bf16 numbers is exact in f32.
///
/// # Safety
/// The source's tiles reach the group; its rows start at 0 or 16 of the tile.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn scales<const IS_ZERO_POINT: bool>(
    source: &PanelSource,
    b: usize,
    half: usize,
) -> (__m256, __m256) {
    // SAFETY: within the tile.
    unsafe {
        let tile = source.base.add(b / GROUPS * source.stride);
        let at = b % GROUPS * GROUP_BYTES + 2 * (source.tile_row + HALF_ROWS * half);
        let d = load_bf16(tile.add(at));
        let offset = load_bf16(tile.add(OFFSETS + at));
        if IS_ZERO_POINT {
            let negated = _mm256_sub_ps(_mm256_set1_ps(-0.0), _mm256_mul_ps(d, offset));
            (d, negated)
        } else {
            (d, offset)
        }
    }
}

/// The nibbles of sixteen rows in group `b`, 8 bytes a column.
///
/// # Safety
/// As [`scales`].
#[inline]
unsafe fn columns(source: &PanelSource, b: usize) -> *const u8 {
    // SAFETY: within the tile.
    unsafe {
        let tile = source.base.add(b / GROUPS * source.stride);
        let rows = tile.add(NIBBLES + source.tile_row / 16 * HALF_BYTES);
        rows.add(b % GROUPS * 32 * 8)
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
