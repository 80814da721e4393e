//! Plain numbers with a lane for each column: f32, f16 and bf16 as f32.
//!
//! A row of such weights is already a run of vectors, so one token reads it once, in order, and transposes nothing. Eight sums of a
//! row are added up at the end of each chunk, always in the same tree. So one token and a thousand get the same bits.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::PanelLayout;
use crate::matmul::ahead::Ahead;
use crate::matmul::panel::{
    DirectArgs, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, PackArgs, RowsArgs, TileArgs, tile_tokens,
};
use crate::x86::float_formats::{BF16, F16, F32, elem_bytes, functions_of_format};
use crate::x86::streams::{Fetch, STREAMS, each_four_rows, fetched};
use std::arch::x86_64::*;

/// Rows summed side by side, which [`sums_of_four`] adds up.
const ROWS: usize = STREAMS;

/// Most tokens of a register tile: twelve sums, a vector of each token's activations and one of weights fill the registers.
const TOKENS: usize = 3;

/// Columns of a vector: a unit of the layout.
const VECTOR: usize = LAYOUT.unit_k();
const LAYOUT: PanelLayout = PanelLayout::F32Eights;

functions_of_format!(
    pack_f32 direct_f32 rows_f32 F32 "avx2,fma,f16c";
    pack_f16 direct_f16 rows_f16 F16 "avx2,fma,f16c";
    pack_bf16 direct_bf16 rows_bf16 BF16 "avx2,fma,f16c";
);

/// The weights of the next eight columns.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn weights<const FORMAT: u8>(at: *const u8) -> __m256 {
    // SAFETY: forwarded.
    unsafe {
        match FORMAT {
            F32 => _mm256_loadu_ps(at.cast()),
            F16 => _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
            _ => {
                let v = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v))
            }
        }
    }
}

/// The last columns of a row, fewer than a vector, padded with zeros.
#[repr(align(32))]
struct LastColumns([u8; VECTOR * size_of::<f32>()]);

impl LastColumns {
    /// # Safety
    /// `n_bytes`, fewer than a vector, are readable.
    #[inline]
    unsafe fn new(at: *const u8, n_bytes: usize) -> LastColumns {
        let mut tail = LastColumns([0; VECTOR * size_of::<f32>()]);
        // SAFETY: forwarded.
        unsafe { std::ptr::copy_nonoverlapping(at, tail.0.as_mut_ptr(), n_bytes) };
        tail
    }
}

/// The sum of the lanes of each of four vectors. A vector's sum does not depend on its place.
#[inline]
#[target_feature(enable = "avx2")]
fn sums_of_four([a, b, c, d]: [__m256; ROWS]) -> __m128 {
    let pair = |a, b| _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let (ab, cd) = (pair(a, b), pair(c, d));
    let (ab, cd) = (_mm256_castps_pd(ab), _mm256_castps_pd(cd));
    let (low, high) = (_mm256_unpacklo_pd(ab, cd), _mm256_unpackhi_pd(ab, cd));
    let sums = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
    _mm_add_ps(
        _mm256_castps256_ps128(sums),
        _mm256_extractf128_ps::<1>(sums),
    )
}

/// Multiplies with one token, four rows side by side.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    // SAFETY: forwarded.
    unsafe {
        fetched!(SECOND => rows_fetched::<FORMAT, SECOND>(args));
    }
}

/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows_fetched<const FORMAT: u8, const SECOND: bool>(args: &RowsArgs) {
    let chunk_k = const { LAYOUT.chunk_k() };
    // SAFETY: forwarded: columns below `k` of four rows and the token.
    unsafe {
        each_four_rows::<SECOND>(args, true, |rows, mut acc| {
            for first in (0..args.k).step_by(chunk_k) {
                let rows = rows.map(|row| row.add(first * elem_bytes(FORMAT)));
                let x = args.x.cast::<f32>().add(first);
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
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn row_sums<const FORMAT: u8, const SECOND: bool>(
    rows: [*const u8; ROWS],
    x: *const f32,
    k: usize,
) -> __m128 {
    let bytes = elem_bytes(FORMAT);
    let mut sums = [_mm256_setzero_ps(); ROWS];
    // A closure would be a call for every vector.
    macro_rules! add_vector {
        ($rows:expr, $x:expr) => {
            let x = _mm256_loadu_ps($x);
            for r in 0..ROWS {
                sums[r] = _mm256_fmadd_ps(weights::<FORMAT>($rows[r]), x, sums[r]);
            }
        };
    }
    // Vectors that fill a cache line, fetched together.
    let step = LINE_BYTES / bytes;
    let whole = k / VECTOR * VECTOR;
    // SAFETY: forwarded.
    unsafe {
        let at = |c: usize| rows.map(|row| row.add(c * bytes));
        for first in (0..whole).step_by(step) {
            for row in at(first) {
                Fetch::<SECOND>::after(row, LINE_BYTES);
            }
            for c in (first..whole.min(first + step)).step_by(VECTOR) {
                add_vector!(at(c), x.add(c));
            }
        }
        if whole < k {
            let left = k - whole;
            let rows = at(whole).map(|at| LastColumns::new(at, left * bytes));
            let x = LastColumns::new(x.add(whole).cast(), left * size_of::<f32>());
            let rows = rows.each_ref().map(|tail| tail.0.as_ptr());
            add_vector!(rows, x.0.as_ptr().cast());
        }
    }
    sums_of_four(sums)
}

/// A panel has a run of vectors for each four rows. The reads of a pass therefore have no gaps, and do not compete for the same
/// sets of the nearest cache.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    let source = &args.source;
    let bytes = elem_bytes(FORMAT);
    let mut ahead = source.ahead;
    let panel = RowBlock::of_panel(args.panel, source.k);
    for (unit, c) in (0..source.k).step_by(VECTOR).enumerate() {
        ahead.fetch(PANEL_ROWS * VECTOR * bytes / LINE_BYTES);
        for row in 0..PANEL_ROWS {
            // SAFETY: columns below `k` of sixteen rows; the panel has a vector for each row of a unit.
            unsafe {
                let at = source.base.add(row * source.stride + c * bytes);
                let left = source.k - c;
                let v = if left < VECTOR {
                    weights::<FORMAT>(LastColumns::new(at, left * bytes).0.as_ptr())
                } else {
                    weights::<FORMAT>(at)
                };
                let run = panel.w.add(row / ROWS * panel.quad_stride);
                let to = run.add(unit * panel.unit_stride + row % ROWS * panel.row_stride);
                _mm256_store_ps(to.cast_mut().cast(), v);
            }
        }
    }
}

/// The tile of [`PanelLayout::F32Eights`], in the order of [`pack`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn tile(args: &TileArgs) {
    let mut nothing = Ahead::NONE;
    for p in 0..args.n_panels {
        // SAFETY: forwarded.
        unsafe {
            let tokens = BlockTokens {
                x: args.x,
                x_stride: args.x_stride,
                m: args.m,
                acc: args.acc.add(p * PANEL_ROWS),
            };
            let block = RowBlock::of_panel(args.panels.add(p * args.panel_stride), args.k);
            multiply::<F32, 0>(&block, &tokens, &mut nothing);
        }
    }
}

/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn direct<const FORMAT: u8>(args: &DirectArgs) {
    let source = &args.source;
    let mut ahead = source.ahead;
    let bytes = elem_bytes(FORMAT);
    let block = RowBlock {
        w: source.base,
        quad_stride: ROWS * source.stride,
        unit_stride: VECTOR * bytes,
        row_stride: source.stride,
        k: source.k,
        is_padded: false,
    };
    let tokens = BlockTokens {
        x: args.x,
        x_stride: args.x_stride,
        m: args.m,
        acc: args.acc,
    };
    // SAFETY: forwarded: rows where the file has them.
    unsafe {
        if FORMAT == F32 {
            multiply::<FORMAT, { ROWS * VECTOR * 4 / LINE_BYTES }>(&block, &tokens, &mut ahead);
        } else {
            multiply::<FORMAT, { ROWS * VECTOR * 2 / LINE_BYTES }>(&block, &tokens, &mut ahead);
        }
    }
}

/// Sixteen rows.
struct RowBlock {
    /// First row, first column.
    w: *const u8,
    /// Bytes from [`ROWS`] rows to the next.
    quad_stride: usize,
    /// Bytes from a vector to the next of the same row.
    unit_stride: usize,
    /// Bytes from a row to the next of the same four.
    row_stride: usize,
    /// Columns.
    k: usize,
    /// Whether rows are padded with zeros after the last column, to the end of its vector.
    is_padded: bool,
}

impl RowBlock {
    /// A panel of [`pack`].
    fn of_panel(w: *const u8, k: usize) -> RowBlock {
        let row_stride = VECTOR * size_of::<f32>();
        let unit_stride = ROWS * row_stride;
        RowBlock {
            w,
            quad_stride: k.div_ceil(VECTOR) * unit_stride,
            unit_stride,
            row_stride,
            k,
            is_padded: true,
        }
    }
}

/// The tokens that a block is multiplied by.
struct BlockTokens {
    /// First token, first column.
    x: *const u8,
    /// Bytes from a token to the next.
    x_stride: usize,
    /// BlockTokens.
    m: usize,
    /// The first token's sum of the first row; tokens are [`GROUP_ROWS`] apart.
    acc: *mut f32,
}

/// Adds the products of a block; the first pass over its rows fetches `LINES` lines with each unit of [`ROWS`] rows.
///
/// # Safety
/// The rows and tokens have the block's columns, accumulators are as many.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<const FORMAT: u8, const LINES: usize>(
    block: &RowBlock,
    tokens: &BlockTokens,
    ahead: &mut Ahead,
) {
    for quad in 0..PANEL_ROWS / ROWS {
        let mut t = 0;
        while t < tokens.m {
            let n = tile_tokens(tokens.m - t, TOKENS);
            // SAFETY: forwarded.
            unsafe {
                match (n, t) {
                    (1, 0) => four_rows::<FORMAT, 1, LINES>(block, tokens, (quad, t), ahead),
                    (2, 0) => four_rows::<FORMAT, 2, LINES>(block, tokens, (quad, t), ahead),
                    (_, 0) => four_rows::<FORMAT, TOKENS, LINES>(block, tokens, (quad, t), ahead),
                    (1, _) => four_rows::<FORMAT, 1, 0>(block, tokens, (quad, t), ahead),
                    (2, _) => four_rows::<FORMAT, 2, 0>(block, tokens, (quad, t), ahead),
                    (_, _) => four_rows::<FORMAT, TOKENS, 0>(block, tokens, (quad, t), ahead),
                }
            }
            t += n;
        }
    }
}

/// # Safety
/// As [`multiply`], for `T` tokens from `t`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn four_rows<const FORMAT: u8, const T: usize, const LINES: usize>(
    block: &RowBlock,
    tokens: &BlockTokens,
    (quad, t): (usize, usize),
    ahead: &mut Ahead,
) {
    let mut sums = [[_mm256_setzero_ps(); ROWS]; T];
    macro_rules! add_vector {
        ($w:expr, $x:expr) => {
            let x: [__m256; T] = std::array::from_fn(|i| _mm256_loadu_ps($x(i)));
            for r in 0..ROWS {
                let w = weights::<FORMAT>($w(r));
                for i in 0..T {
                    sums[i][r] = _mm256_fmadd_ps(w, x[i], sums[i][r]);
                }
            }
        };
    }
    let (units, left) = (block.k / VECTOR, block.k % VECTOR);
    let row_stride = block.row_stride;
    // SAFETY: forwarded: columns of a vector, or copies of the last ones.
    unsafe {
        let x: [*const f32; T] =
            std::array::from_fn(|i| tokens.x.add((t + i) * tokens.x_stride).cast());
        let mut w = block.w.add(quad * block.quad_stride);
        for unit in 0..units {
            if LINES > 0 {
                ahead.fetch(LINES);
            }
            add_vector!(|r: usize| w.add(r * row_stride), |i: usize| x[i]
                .add(unit * VECTOR));
            w = w.wrapping_add(block.unit_stride);
        }
        if left > 0 {
            let n_bytes = if block.is_padded { VECTOR } else { left } * elem_bytes(FORMAT);
            let w: [LastColumns; ROWS] =
                std::array::from_fn(|r| LastColumns::new(w.add(r * row_stride), n_bytes));
            let x: [LastColumns; T] = std::array::from_fn(|i| {
                LastColumns::new(x[i].add(units * VECTOR).cast(), left * size_of::<f32>())
            });
            add_vector!(|r: usize| w[r].0.as_ptr(), |i: usize| x[i]
                .0
                .as_ptr()
                .cast());
        }
        for i in 0..T {
            let acc = tokens.acc.add((t + i) * GROUP_ROWS + quad * ROWS);
            _mm_store_ps(acc, _mm_add_ps(_mm_load_ps(acc), sums_of_four(sums[i])));
        }
    }
}
