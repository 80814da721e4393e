//! Plain numbers times one token.
//!
//! Rounded sums depend on their order: columns of a chunk one after the other, then chunks one after the other, as in the tile. So a lane
//! is a chunk of a row. Where rows are whole fours of chunks, sixteen lanes are four chunks of four rows; else they are one chunk of sixteen
//! rows, each read in order. Rows of plain numbers are often a multiple of 4 KiB long: lines of sixteen rows then meet in one set of a cache
//! of eight or twelve ways and drive each other out before they are used, those of four rows stay.

use super::float::{BF16, BF16_PAIRS, F16, F32, STEP_BYTES, elem_bytes, lines_a_vector, widen};
use super::streams::{Fetch, STREAMS, each_four_rows, quarters_of};
use super::tile_bf16::dot_pairs;
use super::transpose::load_lines_of;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{PANEL_ROWS, RowsArgs};
use std::arch::x86_64::*;

/// How far ahead of its use a line of a row is fetched, the fastest of those tried. Rows are many streams, and often a power of two bytes
/// apart: their lines go to the second cache, since in the nearest they would evict each other.
const AHEAD_BYTES: usize = 1024;

/// The same for pairs of bf16, which are AMD's alone (see [`crate::Level::preferred`]), where [`Fetch::second`] is not: a few lines ahead,
/// past the second cache. On Zen 5 that reads 41 GB/s where the other way reads 37 (two threads, best of five in turn); on Zen 4 the other
/// way reads 26 to 28 where this reads 19 (rows of 640 columns).
const PAIRS_AHEAD_BYTES: usize = 256;

/// Chunks of each of four rows that are multiplied at a time where rows are whole multiples of as many.
const BLOCK_CHUNKS: usize = PANEL_ROWS / STREAMS;

/// Words of 4 bytes of activations that a chunk is multiplied with: 256 numbers, or pairs of bf16.
const CHUNK_WORDS: usize = 256;

const fn layout(format: u8) -> PanelLayout {
    if format == BF16_PAIRS {
        PanelLayout::Bf16
    } else {
        PanelLayout::F32
    }
}

/// Multiplies with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`]; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    // SAFETY: forwarded, for rows below `n`.
    unsafe {
        if args
            .k
            .is_multiple_of(BLOCK_CHUNKS * layout(FORMAT).chunk_k())
        {
            return blocks::<FORMAT>(args);
        }
        for row in (0..args.n).step_by(PANEL_ROWS) {
            panel::<FORMAT>(args, row, PANEL_ROWS.min(args.n - row));
        }
    }
}

/// Activations of [`BLOCK_CHUNKS`] chunks, word by word: what a vector of lanes is multiplied with is 16 bytes, four times.
#[derive(Clone)]
#[repr(align(64))]
struct BlockWords([[i32; BLOCK_CHUNKS]; CHUNK_WORDS]);

/// Rows of whole [`BLOCK_CHUNKS`] of chunks.
///
/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn blocks<const FORMAT: u8>(args: &RowsArgs) {
    let chunk_k = layout(FORMAT).chunk_k();
    const { assert!(layout(FORMAT).chunk_k() * x_bytes(FORMAT) == 4 * CHUNK_WORDS) };
    let chunk_bytes = chunk_k * elem_bytes(FORMAT);
    let mut words =
        vec![BlockWords([[0; BLOCK_CHUNKS]; CHUNK_WORDS]); args.k / (BLOCK_CHUNKS * chunk_k)];
    for (block, words) in words.iter_mut().enumerate() {
        let x = args
            .x
            .wrapping_add(block * size_of::<BlockWords>())
            .cast::<i32>();
        for (c, words) in words.0.iter_mut().enumerate() {
            for (chunk, word) in words.iter_mut().enumerate() {
                // SAFETY: forwarded: the token has `k` columns.
                *word = unsafe { x.add(chunk * CHUNK_WORDS + c).read_unaligned() };
            }
        }
    }
    // SAFETY: forwarded: what is read is within four rows.
    unsafe {
        each_four_rows(args, true, Fetch::of_this_cpu(), |mut rows, mut acc| {
            for x in &words {
                let sums = block_sums::<FORMAT>(rows, chunk_bytes, x);
                for sum in sums {
                    acc = _mm_add_ps(acc, sum);
                }
                rows = rows.map(|row| row.wrapping_add(BLOCK_CHUNKS * chunk_bytes));
            }
            acc
        });
    }
}

/// The sums of four chunks of each of four rows: by chunk, a lane for each row. What lies behind in each row is fetched meanwhile, in the
/// order of memory: a machine reads four streams faster than sixteen.
///
/// # Safety
/// The rows have as many bytes; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn block_sums<const FORMAT: u8>(
    rows: [*const u8; STREAMS],
    chunk_bytes: usize,
    words: &BlockWords,
) -> [__m128; BLOCK_CHUNKS] {
    let start = |lane: usize| {
        let (row, chunk) = (lane / BLOCK_CHUNKS, lane % BLOCK_CHUNKS);
        rows[row].wrapping_add(chunk * chunk_bytes)
    };
    let columns = STEP_BYTES / elem_bytes(FORMAT);
    let step_words = columns * x_bytes(FORMAT) / 4;
    let mut sum = _mm512_setzero_ps();
    for step in 0..chunk_bytes / STEP_BYTES {
        // As many lines as a step uses.
        for row in rows {
            let behind = row.wrapping_add(BLOCK_CHUNKS * (chunk_bytes + step * STEP_BYTES));
            for line in 0..BLOCK_CHUNKS {
                _mm_prefetch::<_MM_HINT_T1>(behind.wrapping_add(line * STEP_BYTES).cast());
            }
        }
        // SAFETY: forwarded: whole steps are within the chunks, and as many words belong to them.
        unsafe {
            let lines = load_lines_of(|lane| start(lane).wrapping_add(step * STEP_BYTES));
            let words = words.0.as_ptr().add(step * step_words);
            let x = |c: usize| _mm512_broadcast_i32x4(_mm_load_si128(words.add(c).cast()));
            sum = add_step::<FORMAT, true>(sum, lines, x, columns);
        }
    }
    let [mut a, mut b, mut c, mut d] = quarters_of(sum);
    _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
    [a, b, c, d]
}

/// A panel of `n_rows` rows from `row`.
///
/// # Safety
/// As [`rows`]; the rows are below `n`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn panel<const FORMAT: u8>(args: &RowsArgs, row: usize, n_rows: usize) {
    let chunk_bytes = layout(FORMAT).chunk_k() * elem_bytes(FORMAT);
    let row_bytes = args.k * elem_bytes(FORMAT);
    // A panel of fewer rows repeats the last.
    let rows: [*const u8; PANEL_ROWS] = std::array::from_fn(|r| {
        let row = row + r.min(n_rows - 1);
        args.base.wrapping_add(row * args.row_bytes)
    });
    let past = FORMAT == BF16_PAIRS && !Fetch::of_this_cpu().second;
    let zero = _mm512_setzero_ps();
    let (mut acc, mut sum) = (zero, zero);
    let mut from = 0;
    while from < row_bytes {
        let step_bytes = STEP_BYTES.min(row_bytes - from);
        // Beyond a row's end comes the next panel's row.
        let mut ahead = if past {
            from + PAIRS_AHEAD_BYTES
        } else {
            from + AHEAD_BYTES
        };
        if ahead >= row_bytes {
            ahead = ahead - row_bytes + PANEL_ROWS * args.row_bytes;
        }
        for row in rows {
            let line = row.wrapping_add(ahead).cast();
            if past {
                _mm_prefetch::<_MM_HINT_NTA>(line);
            } else {
                _mm_prefetch::<_MM_HINT_T1>(line);
            }
        }
        // SAFETY: forwarded: these bytes of the rows exist, and as many columns of the token.
        unsafe {
            let step = |r: usize| rows[r].wrapping_add(from);
            let x = args
                .x
                .add(from / elem_bytes(FORMAT) * x_bytes(FORMAT))
                .cast::<i32>();
            let x = |c: usize| _mm512_set1_epi32(x.add(c).read_unaligned());
            let columns = step_bytes / elem_bytes(FORMAT);
            if step_bytes == STEP_BYTES {
                sum = add_step::<FORMAT, true>(sum, load_lines_of(step), x, columns);
            } else {
                let lines = load_tail(step, step_bytes);
                sum = add_step::<FORMAT, false>(sum, lines, x, columns);
            }
        }
        from += step_bytes;
        if from.is_multiple_of(chunk_bytes) || from == row_bytes {
            acc = _mm512_add_ps(acc, sum);
            sum = zero;
        }
    }
    let mask = u16::MAX >> (PANEL_ROWS - n_rows);
    // SAFETY: `out` has a number for each row.
    unsafe { _mm512_mask_storeu_ps(args.out.add(row), mask, acc) };
}

/// Bytes of an activation.
const fn x_bytes(format: u8) -> usize {
    if format == BF16_PAIRS { 2 } else { 4 }
}

/// `sum` plus the products of a step's lines, or of those that `columns` reach, with what `x` gives for each: 4 bytes of activations a lane.
///
/// # Safety
/// Bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn add_step<const FORMAT: u8, const FULL: bool>(
    mut sum: __m512,
    lines: [__m512i; 16],
    x: impl Fn(usize) -> __m512i,
    columns: usize,
) -> __m512 {
    const { assert!(matches!(FORMAT, F32 | F16 | BF16 | BF16_PAIRS)) };
    let per_vector = lines_a_vector(FORMAT);
    let n_lines = if FORMAT == BF16_PAIRS {
        columns.div_ceil(2)
    } else {
        columns
    };
    for (i, v) in lines.into_iter().enumerate() {
        for (j, v) in widen::<FORMAT>(v).into_iter().take(per_vector).enumerate() {
            let c = per_vector * i + j;
            if !FULL && c >= n_lines {
                continue;
            }
            let x = x(c);
            sum = if FORMAT == BF16_PAIRS {
                // SAFETY: forwarded.
                unsafe { dot_pairs(sum, v, x) }
            } else {
                _mm512_fmadd_ps(_mm512_castsi512_ps(v), _mm512_castsi512_ps(x), sum)
            };
        }
    }
    sum
}

/// The lines of a step of fewer bytes, zeros beyond.
///
/// # Safety
/// At the address of each of the sixteen rows are `n_bytes` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn load_tail(row: impl Fn(usize) -> *const u8, n_bytes: usize) -> [__m512i; 16] {
    let mut tail = [[0_u8; STEP_BYTES]; PANEL_ROWS];
    // SAFETY: forwarded; the copies are whole steps.
    unsafe {
        for (r, to) in tail.iter_mut().enumerate() {
            std::ptr::copy_nonoverlapping(row(r), to.as_mut_ptr(), n_bytes);
        }
        load_lines_of(|r| tail[r].as_ptr())
    }
}
