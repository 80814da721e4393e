//! Q4NX: tiles that already hold sixteen neighbouring rows side by side, column by column.

use super::tile_i8x32::add_block;
use crate::matmul::ahead::Ahead;
use crate::matmul::panel::{LINE_BYTES, PANEL_ROWS, PanelSource, RowsArgs, X32};
use crate::x86::streams::{Fetch, fetched};
use millrace_quant::DType;
use std::arch::x86_64::*;

/// Columns of a tile.
const TILE_K: usize = 256;
/// Groups of 32 columns in a tile.
const GROUPS: usize = TILE_K / 32;
/// Bytes of a group's bf16 scales, one for each of 32 rows.
const GROUP_BYTES: usize = 64;
/// Cache lines of a panel's share of a group.
pub(super) const LINES_A_GROUP: usize = TILE_BYTES / 2 / GROUPS / LINE_BYTES;
/// Where a tile's offsets start.
const OFFSETS: usize = 512;
/// Where a tile's nibbles start.
const NIBBLES: usize = 1024;

/// Bytes of a tile.
const TILE_BYTES: usize = 5120;
/// Rows of a tile.
const TILE_ROWS: usize = 2 * PANEL_ROWS;
/// Rows of tiles that are read side by side, each from memory in order.
const STREAMS: usize = 2;
/// Prefetch distance of a stream: a tile, whose parts are read side by side.
const AHEAD_BYTES: usize = TILE_BYTES;

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
pub(super) unsafe fn scales(
    source: &PanelSource,
    b: usize,
    is_zero_point: bool,
) -> (__m512, __m512) {
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
pub(super) unsafe fn lines(source: &PanelSource, b: usize) -> [__m512i; 8] {
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

/// Multiplies with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`], for whole rows of tiles; `row_bytes` is from one to the next.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn rows(args: &RowsArgs, is_zero_point: bool) {
    // SAFETY: forwarded.
    unsafe {
        fetched!(SECOND => rows_fetched::<SECOND>(args, is_zero_point));
    }
}

/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn rows_fetched<const SECOND: bool>(args: &RowsArgs, is_zero_point: bool) {
    let tile_rows = args.n / TILE_ROWS;
    let a_stream = tile_rows.div_ceil(STREAMS);
    for i in 0..a_stream {
        // A stream that ends early repeats the last row of tiles.
        let rows: [usize; STREAMS] = std::array::from_fn(|s| (s * a_stream + i).min(tile_rows - 1));
        let mut acc = [[_mm512_setzero_ps(); 2]; STREAMS];
        // SAFETY: forwarded: rows of tiles below the last, and a record for each 32 columns.
        unsafe {
            for b in 0..args.k / 32 {
                let x = &*args.x.cast::<X32>().add(b);
                for (row, acc) in rows.iter().zip(&mut acc) {
                    let base = args.base.add(row * args.row_bytes);
                    let at = base.add(b * (TILE_BYTES / GROUPS) + AHEAD_BYTES);
                    Fetch::<SECOND>::lines(at, TILE_BYTES / GROUPS);
                    for (p, acc) in acc.iter_mut().enumerate() {
                        let source = PanelSource {
                            dtype: DType::Q4nx,
                            base,
                            stride: TILE_BYTES,
                            tile_row: p * PANEL_ROWS,
                            k: args.k,
                            ahead: Ahead::NONE,
                        };
                        let (d, min) = scales(&source, b, is_zero_point);
                        *acc = add_group(*acc, &lines(&source, b), d, min, x);
                    }
                }
            }
            for (row, acc) in rows.into_iter().zip(acc) {
                for (p, acc) in acc.into_iter().enumerate() {
                    let at = row * TILE_ROWS + p * PANEL_ROWS;
                    _mm512_storeu_ps(args.out.add(at), acc);
                }
            }
        }
    }
}

/// `acc` plus a group's products and minimums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn add_group(acc: __m512, lines: &[__m512i; 8], d: __m512, min: __m512, x: &X32) -> __m512 {
    // Two chains: a single one would take longer than unpacking.
    let mut dot = [_mm512_setzero_si512(); 2];
    for (i, line) in lines.iter().enumerate() {
        let q = i32::from_ne_bytes(std::array::from_fn(|j| x.q[4 * i + j].cast_unsigned()));
        dot[i / 4] = _mm512_dpbusd_epi32(dot[i / 4], *line, _mm512_set1_epi32(q));
    }
    let acc = add_block(acc, _mm512_add_epi32(dot[0], dot[1]), d, x);
    _mm512_fmadd_ps(min, _mm512_set1_ps(x.scaled_sum), acc)
}
