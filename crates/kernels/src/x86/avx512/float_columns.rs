//! Plain numbers with a lane for each column: f32, f16 and bf16 as f32, and bf16 in pairs.
//!
//! A row of such weights is already a run of vectors, so one token reads it once, in order, and transposes nothing. Sixteen sums of
//! a row are added up at the end of each chunk, always in the same tree. So one token and a thousand get the same bits.

use crate::matmul::PanelLayout;
use crate::matmul::ahead::Ahead;
use crate::matmul::panel::{
    DirectArgs, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, PackArgs, RowsArgs, TileArgs, tile_tokens,
};
use crate::x86::float_formats::{BF16, F16, F32, elem_bytes, functions_of_format};
use crate::x86::streams::{Fetch, STREAMS, each_four_rows, fetched};
use std::arch::asm;
use std::arch::x86_64::*;

/// Multiplied as pairs, by AVX512-BF16.
const BF16_PAIRS: u8 = 3;

/// Rows summed side by side, which [`sums_of_four`] adds up.
const ROWS: usize = STREAMS;

/// Most tokens of a register tile: 24 sums, 4 vectors of weights and one of activations fit the registers.
const TOKENS: usize = 6;

functions_of_format!(
    pack_f32 direct_f32 rows_f32 F32 "avx512f,avx512bw,avx512dq,avx512vl";
    pack_f16 direct_f16 rows_f16 F16 "avx512f,avx512bw,avx512dq,avx512vl";
    pack_bf16 direct_bf16 rows_bf16 BF16 "avx512f,avx512bw,avx512dq,avx512vl";
    pack_bf16_pairs direct_bf16_pairs rows_bf16_pairs BF16_PAIRS "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16";
);

/// The tile of [`PanelLayout::F32Columns`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn tile_f32(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile::<F32>(args) }
}

/// The tile of [`PanelLayout::Bf16Columns`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(crate) unsafe fn tile_bf16(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile::<BF16_PAIRS>(args) }
}

const fn layout(format: u8) -> PanelLayout {
    match format {
        BF16_PAIRS => PanelLayout::Bf16Columns,
        _ => PanelLayout::F32Columns,
    }
}

/// Columns of a vector: a unit of the layout.
const fn vector_k(format: u8) -> usize {
    layout(format).unit_k()
}

/// Bytes of an activation.
const fn x_bytes(format: u8) -> usize {
    if format == BF16_PAIRS { 2 } else { 4 }
}

/// The weights of the next `columns` columns, at most a vector of them, padded with zeros.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn weights<const FORMAT: u8>(at: *const u8, columns: usize) -> __m512i {
    let is_whole = columns >= vector_k(FORMAT);
    // SAFETY: forwarded: lanes beyond the columns are not read.
    unsafe {
        match FORMAT {
            F32 | BF16_PAIRS => x_vector::<FORMAT>(at, columns),
            _ => {
                let v = if is_whole {
                    _mm256_loadu_si256(at.cast())
                } else {
                    _mm256_maskz_loadu_epi16((1 << columns) - 1, at.cast())
                };
                if FORMAT == F16 {
                    _mm512_castps_si512(_mm512_cvtph_ps(v))
                } else {
                    _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(v))
                }
            }
        }
    }
}

/// The activations of the next `columns` columns, at most a vector of them, padded with zeros.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn x_vector<const FORMAT: u8>(at: *const u8, columns: usize) -> __m512i {
    // SAFETY: forwarded: lanes beyond the columns are not read.
    unsafe {
        if columns >= vector_k(FORMAT) {
            _mm512_loadu_si512(at.cast())
        } else if FORMAT == BF16_PAIRS {
            _mm512_maskz_loadu_epi16((1 << columns) - 1, at.cast())
        } else {
            _mm512_maskz_loadu_epi32((1 << columns) - 1, at.cast())
        }
    }
}

/// `sum` plus the products of a vector.
///
/// # Safety
/// Bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn add_products<const FORMAT: u8>(sum: __m512, w: __m512i, x: __m512i) -> __m512 {
    if FORMAT == BF16_PAIRS {
        // SAFETY: forwarded.
        unsafe { dot_pairs(sum, w, x) }
    } else {
        _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(x), sum)
    }
}

/// `sum` plus the products of two bf16 pairs a lane.
///
/// The instruction itself: its intrinsic becomes a call wherever a closure or a function between lacks the feature.
///
/// # Safety
/// The CPU has AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn dot_pairs(mut sum: __m512, w: __m512i, x: __m512i) -> __m512 {
    // SAFETY: the caller's CPU has the instruction; it touches only its registers.
    unsafe {
        asm!(
            "vdpbf16ps {sum}, {w}, {x}",
            sum = inout(zmm_reg) sum,
            w = in(zmm_reg) w,
            x = in(zmm_reg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// The sum of the lanes of each of four vectors. A vector's sum does not depend on its place.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn sums_of_four([a, b, c, d]: [__m512; ROWS]) -> __m128 {
    let pair = |a, b| _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    let (ab, cd) = (pair(a, b), pair(c, d));
    let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    let (low, high) = (_mm512_unpacklo_pd(ab, cd), _mm512_unpackhi_pd(ab, cd));
    let sums = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    let sums = _mm256_add_ps(
        _mm512_castps512_ps256(sums),
        _mm512_extractf32x8_ps::<1>(sums),
    );
    _mm_add_ps(
        _mm256_castps256_ps128(sums),
        _mm256_extractf128_ps::<1>(sums),
    )
}

/// Multiplies with one token, four rows side by side.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`]; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    // SAFETY: forwarded.
    unsafe {
        fetched!(SECOND => rows_fetched::<FORMAT, SECOND>(args));
    }
}

/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn rows_fetched<const FORMAT: u8, const SECOND: bool>(args: &RowsArgs) {
    let chunk_k = layout(FORMAT).chunk_k();
    // SAFETY: forwarded: columns below `k` of four rows and the token.
    unsafe {
        each_four_rows::<SECOND>(args, true, |rows, mut acc| {
            for first in (0..args.k).step_by(chunk_k) {
                let rows = rows.map(|row| row.add(first * elem_bytes(FORMAT)));
                let x = args.x.add(first * x_bytes(FORMAT));
                let sums = row_sums::<FORMAT, SECOND>(rows, x, chunk_k.min(args.k - first));
                acc = _mm_add_ps(acc, sums);
            }
            acc
        });
    }
}

/// The sums of a chunk of `k` columns of four rows; meanwhile prefetches the bytes after it.
///
/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn row_sums<const FORMAT: u8, const SECOND: bool>(
    rows: [*const u8; ROWS],
    x: *const u8,
    k: usize,
) -> __m128 {
    let step_bytes = vector_k(FORMAT) * elem_bytes(FORMAT);
    let mut sums = [_mm512_setzero_ps(); ROWS];
    // A closure would be a call for every vector.
    macro_rules! add_vector {
        ($c:expr, $columns:expr) => {
            let x = x_vector::<FORMAT>(x.add($c * x_bytes(FORMAT)), $columns);
            for r in 0..ROWS {
                let at = rows[r].add($c * elem_bytes(FORMAT));
                Fetch::<SECOND>::after(at, step_bytes);
                let w = weights::<FORMAT>(at, $columns);
                sums[r] = add_products::<FORMAT>(sums[r], w, x);
            }
        };
    }
    let whole = k / vector_k(FORMAT) * vector_k(FORMAT);
    // SAFETY: forwarded.
    unsafe {
        for c in (0..whole).step_by(vector_k(FORMAT)) {
            add_vector!(c, vector_k(FORMAT));
        }
        if whole < k {
            add_vector!(whole, k - whole);
        }
    }
    sums_of_four(sums)
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    let source = &args.source;
    let mut ahead = source.ahead;
    for (unit, c) in (0..source.k).step_by(vector_k(FORMAT)).enumerate() {
        ahead.fetch(PANEL_ROWS * vector_k(FORMAT) * elem_bytes(FORMAT) / LINE_BYTES);
        for row in 0..PANEL_ROWS {
            // SAFETY: columns below `k` of sixteen rows; the panel has a line for each row of a unit.
            unsafe {
                let at = source
                    .base
                    .add(row * source.stride + c * elem_bytes(FORMAT));
                let v = weights::<FORMAT>(at, source.k - c);
                let line = args.panel.add((unit * PANEL_ROWS + row) * LINE_BYTES);
                _mm512_store_si512(line.cast(), v);
            }
        }
    }
}

/// # Safety
/// As [`crate::matmul::panel::TileFn`], for panels of f32 or bf16 pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<const FORMAT: u8>(args: &TileArgs) {
    let mut t = 0;
    let mut nothing = Ahead::NONE;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        for p in 0..args.n_panels {
            // SAFETY: forwarded: `tokens` tokens from `t`, and rows of a panel as lines.
            unsafe {
                let block = RowBlock {
                    w: args.panels.add(p * args.panel_stride),
                    row_stride: LINE_BYTES,
                    unit_stride: PANEL_ROWS * LINE_BYTES,
                    k: args.k,
                    x: args.x.add(t * args.x_stride),
                    x_stride: args.x_stride,
                    acc: args.acc.add(t * GROUP_ROWS + p * PANEL_ROWS),
                };
                of_tokens::<FORMAT>(&block, tokens, (&mut nothing, 0));
            }
        }
        t += tokens;
    }
}

/// # Safety
/// As [`crate::matmul::panel::DirectFn`]; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn direct<const FORMAT: u8>(args: &DirectArgs) {
    let source = &args.source;
    let mut ahead = source.ahead;
    let mut t = 0;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        // SAFETY: forwarded: `tokens` tokens from `t`, and rows where the file has them.
        unsafe {
            let block = RowBlock {
                w: source.base,
                row_stride: source.stride,
                unit_stride: vector_k(FORMAT) * elem_bytes(FORMAT),
                k: source.k,
                x: args.x.add(t * args.x_stride),
                x_stride: args.x_stride,
                acc: args.acc.add(t * GROUP_ROWS),
            };
            let n_lines = ROWS * vector_k(FORMAT) * elem_bytes(FORMAT) / LINE_BYTES;
            of_tokens::<FORMAT>(
                &block,
                tokens,
                (&mut ahead, if t == 0 { n_lines } else { 0 }),
            );
        }
        t += tokens;
    }
}

/// Sixteen rows and a few tokens.
struct RowBlock {
    /// First row, first column.
    w: *const u8,
    /// Bytes from a row to the next.
    row_stride: usize,
    /// Bytes from a vector of a row to its next.
    unit_stride: usize,
    /// Columns.
    k: usize,
    /// First token, first column.
    x: *const u8,
    /// Bytes from a token to the next.
    x_stride: usize,
    /// The first token's sum of the first row; tokens are [`GROUP_ROWS`] apart.
    acc: *mut f32,
}

/// Adds the products of a block, and fetches `n_lines` lines with each vector of [`ROWS`] rows.
///
/// # Safety
/// The rows and `tokens` tokens have `k` columns, accumulators are as many, `tokens` at most [`TOKENS`]; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn of_tokens<const FORMAT: u8>(block: &RowBlock, tokens: usize, ahead: (&mut Ahead, usize)) {
    let (ahead, n_lines) = ahead;
    for row in (0..PANEL_ROWS).step_by(ROWS) {
        // SAFETY: forwarded.
        unsafe {
            match tokens {
                1 => four_rows::<FORMAT, 1>(block, row, (ahead, n_lines)),
                2 => four_rows::<FORMAT, 2>(block, row, (ahead, n_lines)),
                3 => four_rows::<FORMAT, 3>(block, row, (ahead, n_lines)),
                4 => four_rows::<FORMAT, 4>(block, row, (ahead, n_lines)),
                5 => four_rows::<FORMAT, 5>(block, row, (ahead, n_lines)),
                _ => four_rows::<FORMAT, TOKENS>(block, row, (ahead, n_lines)),
            }
        }
    }
}

/// # Safety
/// As [`of_tokens`], for `T` tokens and rows from `row`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn four_rows<const FORMAT: u8, const T: usize>(
    block: &RowBlock,
    row: usize,
    (ahead, n_lines): (&mut Ahead, usize),
) {
    let mut sums = [[_mm512_setzero_ps(); ROWS]; T];
    let first = block.w.wrapping_add(row * block.row_stride);
    macro_rules! add_vector {
        ($unit:expr, $columns:expr) => {
            ahead.fetch(n_lines);
            let w: [__m512i; ROWS] = std::array::from_fn(|r| {
                let at = first.add(r * block.row_stride + $unit * block.unit_stride);
                weights::<FORMAT>(at, $columns)
            });
            let x = block.x.add($unit * vector_k(FORMAT) * x_bytes(FORMAT));
            for t in 0..T {
                let x = x_vector::<FORMAT>(x.add(t * block.x_stride), $columns);
                for r in 0..ROWS {
                    sums[t][r] = add_products::<FORMAT>(sums[t][r], w[r], x);
                }
            }
        };
    }
    let units = block.k / vector_k(FORMAT);
    // SAFETY: forwarded: that many columns from the unit's first.
    unsafe {
        for unit in 0..units {
            add_vector!(unit, vector_k(FORMAT));
        }
        if !block.k.is_multiple_of(vector_k(FORMAT)) {
            add_vector!(units, block.k % vector_k(FORMAT));
        }
    }
    for (t, sums) in sums.into_iter().enumerate() {
        // SAFETY: forwarded.
        unsafe {
            let acc = block.acc.add(t * GROUP_ROWS + row);
            _mm_store_ps(acc, _mm_add_ps(_mm_load_ps(acc), sums_of_four(sums)));
        }
    }
}
