//! Attention's two products on a cache of bf16, in tiles.
//!
//! Scaled queries and weights are rounded to bf16; keys and values are the cache's elements, sums f32. Any number of rows uses tiles, so a
//! row's bits do not depend on the rows beside it. A score is summed by groups of 32 dimensions, an output by tiles of 16 positions.
//! Positions that a row does not see add zero. (A sum below the smallest normal number becomes zero.)
//!
//! B's tile has a line for two rows of the product: for keys two dimensions of sixteen positions, for values two positions of
//! sixteen dimensions. `unpack_k` and `unpack_v` produce this layout, 32 · `padded_dim` bytes a tile of the cache.

use super::unit::{
    SUMS_00, SUMS_01, SUMS_10, SUMS_11, Shapes, TILE_ROW_BYTES, TILE_ROWS, TOKENS_0, TOKENS_1,
    TileUnit, WEIGHTS_0, WEIGHTS_1,
};
use crate::attention::{PvTask, QkTask, SPAN_TOKENS, TileShape};
use crate::kv::TILE_TOKENS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Bytes of a line: a pair of bf16 for each of sixteen columns.
const LINE: usize = TILE_ROW_BYTES;

/// Pairs of a group of dimensions.
const GROUP_PAIRS: usize = TILE_ROW_BYTES / 4;

/// Pairs of positions in a tile of the cache.
const TILE_PAIRS: usize = TILE_TOKENS / 2;

/// Bytes from a row's scores, or weights, to the next one's.
const SCORES_STRIDE: usize = SPAN_TOKENS * size_of::<f32>();

/// Sixteen numbers rounded to the nearest bf16, ties to even.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn round(v: __m512) -> __m256i {
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
    let rounded = _mm512_mask_blend_epi32(is_nan, _mm512_add_epi32(bits, half), quiet);
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded))
}

/// Pairs of the numbers of two vectors of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn pairs(even: __m256i, odd: __m256i) -> __m512i {
    let odd = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(odd));
    _mm512_or_si512(_mm512_cvtepu16_epi32(even), odd)
}

/// Rounds queries, `[n_rows, padded_dim]`, in place: a row's bf16 numbers lie at its beginning, zeros beyond `head_dim`.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn queries(shape: &TileShape, q: &mut [f32]) {
    for row in q.chunks_exact_mut(shape.padded_dim) {
        row[shape.head_dim..].fill(0.0);
        let at = row.as_mut_ptr();
        for i in 0..shape.padded_dim / 16 {
            // SAFETY: sixteen numbers of the row; the bytes written lie before the next ones that are read.
            unsafe {
                let rounded = round(_mm512_loadu_ps(at.add(16 * i)));
                _mm256_storeu_si256(at.cast::<u8>().add(32 * i).cast(), rounded);
            }
        }
    }
}

/// Rounds weights in place: the bf16 numbers of sixteen positions lie at the beginning of their 64 bytes.
///
/// # Safety
/// As [`queries`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn weights(weights: &mut [f32]) {
    for sixteen in weights.chunks_exact_mut(TILE_TOKENS) {
        let at = sixteen.as_mut_ptr();
        // SAFETY: sixteen numbers.
        unsafe { _mm256_storeu_si256(at.cast(), round(_mm512_loadu_ps(at))) };
    }
}

/// Lines of a tile of keys: line `p` has dimensions `2p` and `2p + 1` of its positions.
///
/// # Safety
/// As [`queries`]; `tile` and `out` hold a tile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn unpack_k(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let row = |dim: usize| {
        if dim >= shape.head_dim {
            return _mm256_setzero_si256();
        }
        // SAFETY: sixteen positions of a dimension that the tile has.
        unsafe { _mm256_loadu_si256(tile.as_ptr().add(dim * TILE_TOKENS * 2).cast()) }
    };
    for pair in 0..shape.padded_dim / 2 {
        let line = pairs(row(2 * pair), row(2 * pair + 1));
        // SAFETY: `padded_dim / 2` lines are half a tile of f32.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast::<u8>().add(pair * LINE).cast(), line) };
    }
}

/// Lines of a tile of values: line `p · padded_dim / 16 + b` has positions `2p` and `2p + 1` of dimensions `16b` to `16b + 15`.
///
/// # Safety
/// As [`unpack_k`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn unpack_v(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let n_blocks = shape.padded_dim / 16;
    for pair in 0..TILE_PAIRS {
        for block in 0..n_blocks {
            // SAFETY: sixteen dimensions of two positions of the tile; as many lines as above.
            unsafe {
                let row = |slot: usize| {
                    let at = (slot * shape.padded_dim + 16 * block) * 2;
                    _mm256_loadu_si256(tile.as_ptr().add(at).cast())
                };
                let line = out.as_mut_ptr().cast::<u8>();
                let line = line.add((pair * n_blocks + block) * LINE);
                _mm512_storeu_si512(line.cast(), pairs(row(2 * pair), row(2 * pair + 1)));
            }
        }
    }
}

/// Pairs of registers of rows multiplied side by side: the first row, and the number of rows in each register.
fn blocks_of_rows(n_rows: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..n_rows).step_by(2 * TILE_ROWS).map(move |first| {
        let n_first = (n_rows - first).min(TILE_ROWS);
        let n_second = (n_rows - first - n_first).min(TILE_ROWS);
        (first, n_first, n_second)
    })
}

/// Where the four registers of sums are in memory.
struct SumOffsets {
    at: *mut u8,
    stride: usize,
    /// Bytes from the first columns to the second.
    next: usize,
    has_second_rows: bool,
    has_second_columns: bool,
}

impl SumOffsets {
    /// # Safety
    /// Shapes are set, and the sums' rows are there.
    #[inline(always)]
    unsafe fn load<U: TileUnit>(&self, unit: &mut U) {
        let below = self.at.wrapping_add(TILE_ROWS * self.stride);
        // SAFETY: forwarded.
        unsafe {
            unit.load::<SUMS_00>(self.at, self.stride);
            if self.has_second_columns {
                unit.load::<SUMS_01>(self.at.wrapping_add(self.next), self.stride);
            }
            if self.has_second_rows {
                unit.load::<SUMS_10>(below, self.stride);
                if self.has_second_columns {
                    unit.load::<SUMS_11>(below.wrapping_add(self.next), self.stride);
                }
            }
        }
    }

    /// # Safety
    /// As [`SumOffsets::load`].
    #[inline(always)]
    unsafe fn store<U: TileUnit>(&self, unit: &mut U) {
        let below = self.at.wrapping_add(TILE_ROWS * self.stride);
        // SAFETY: forwarded.
        unsafe {
            unit.store::<SUMS_00>(self.at, self.stride);
            if self.has_second_columns {
                unit.store::<SUMS_01>(self.at.wrapping_add(self.next), self.stride);
            }
            if self.has_second_rows {
                unit.store::<SUMS_10>(below, self.stride);
                if self.has_second_columns {
                    unit.store::<SUMS_11>(below.wrapping_add(self.next), self.stride);
                }
            }
        }
    }

    /// Adds the products of rows `x`, `x_stride` bytes apart, with lines of one or two tiles, `stride` bytes apart.
    ///
    /// # Safety
    /// As [`SumOffsets::load`], for the memory that is read.
    #[inline(always)]
    unsafe fn add<U: TileUnit>(
        &self,
        unit: &mut U,
        (x, x_stride): (*const u8, usize),
        (lines, stride): ([*const u8; 2], usize),
    ) {
        // SAFETY: forwarded.
        unsafe {
            unit.load::<TOKENS_0>(x, x_stride);
            unit.load::<WEIGHTS_0>(lines[0], stride);
            unit.dot_bf16::<SUMS_00, TOKENS_0, WEIGHTS_0>();
            if self.has_second_rows {
                unit.load::<TOKENS_1>(x.wrapping_add(TILE_ROWS * x_stride), x_stride);
                unit.dot_bf16::<SUMS_10, TOKENS_1, WEIGHTS_0>();
            }
            if self.has_second_columns {
                unit.load::<WEIGHTS_1>(lines[1], stride);
                unit.dot_bf16::<SUMS_01, TOKENS_0, WEIGHTS_1>();
                if self.has_second_rows {
                    unit.dot_bf16::<SUMS_11, TOKENS_1, WEIGHTS_1>();
                }
            }
        }
    }
}

/// Scores of rounded queries against tiles that [`unpack_k`] laid out.
///
/// # Safety
/// The unit is there; the task's sizes hold, tiles being at least 32 · `padded_dim` bytes.
pub(crate) unsafe fn qk<U: TileUnit>(task: QkTask<'_>) {
    let mut unit = U::new();
    let shape = task.shape;
    let n_pairs = shape.padded_dim / 2;
    // A shorter last group needs other shapes.
    let whole = n_pairs / GROUP_PAIRS * GROUP_PAIRS;
    let q_stride = shape.padded_dim * size_of::<f32>();
    let (queries, scores) = (task.q.as_ptr().cast::<u8>(), task.scores.as_mut_ptr());
    let tiles = task.strip.tiles.map(<[u8]>::as_ptr);
    for (first, n_first, n_second) in blocks_of_rows(task.n_rows) {
        for (from, to, group) in [(0, whole, GROUP_PAIRS), (whole, n_pairs, n_pairs - whole)] {
            if from == to {
                continue;
            }
            // SAFETY: rows, tiles and pairs of the task.
            unsafe {
                unit.set_shapes(&Shapes::new(n_first, n_second, 4 * group));
                for tile in (0..task.strip.n_tiles).step_by(2) {
                    let at = scores.add(first * SPAN_TOKENS + tile * TILE_TOKENS);
                    let has_second_columns = tile + 1 < task.strip.n_tiles;
                    let sums = SumOffsets {
                        at: at.cast(),
                        stride: SCORES_STRIDE,
                        next: TILE_TOKENS * size_of::<f32>(),
                        has_second_rows: n_second > 0,
                        has_second_columns,
                    };
                    if from > 0 {
                        sums.load(&mut unit);
                    } else {
                        unit.zero::<SUMS_00>();
                        unit.zero::<SUMS_01>();
                        if n_second > 0 {
                            unit.zero::<SUMS_10>();
                            unit.zero::<SUMS_11>();
                        }
                    }
                    for pair in (from..to).step_by(group) {
                        let q = queries.add(first * q_stride + 4 * pair);
                        let second = tile + usize::from(has_second_columns);
                        let lines = [tiles[tile], tiles[second]].map(|tile| tile.add(pair * LINE));
                        sums.add(&mut unit, (q, q_stride), (lines, LINE));
                    }
                    sums.store(&mut unit);
                }
            }
        }
    }
    // SAFETY: forwarded.
    unsafe { unit.release() };
}

/// Lines of a tile of values in which some positions may be anything.
#[repr(C, align(64))]
struct TileMask([[u32; 16]; TILE_PAIRS]);

impl TileMask {
    /// Copies a block's lines, `stride` bytes apart, with zeros for positions outside `keys`.
    ///
    /// # Safety
    /// The lines are readable.
    unsafe fn copy(lines: *const u8, stride: usize, keys: &Range<usize>) -> TileMask {
        let mut masked = TileMask([[0; 16]; TILE_PAIRS]);
        for (pair, to) in masked.0.iter_mut().enumerate() {
            let low = if keys.contains(&(2 * pair)) {
                0xffff
            } else {
                0
            };
            let high = if keys.contains(&(2 * pair + 1)) {
                0xffff_0000
            } else {
                0
            };
            // SAFETY: forwarded; a line is sixteen words.
            let line = unsafe {
                lines
                    .add(pair * stride)
                    .cast::<[u32; 16]>()
                    .read_unaligned()
            };
            *to = line.map(|word| word & (low | high));
        }
        masked
    }
}

/// Adds values that [`unpack_v`] laid out, by rounded weights.
///
/// # Safety
/// As [`qk`].
pub(crate) unsafe fn pv<U: TileUnit>(task: PvTask<'_>) {
    let mut unit = U::new();
    let shape = task.shape;
    let n_blocks = shape.padded_dim / 16;
    let stride = n_blocks * LINE;
    let (weights, sums) = (
        task.weights.as_ptr().cast::<u8>(),
        task.sums.as_mut_ptr().cast::<u8>(),
    );
    let sums_stride = shape.padded_dim * size_of::<f32>();
    let tiles = task.keys.start / TILE_TOKENS..task.keys.end.div_ceil(TILE_TOKENS);
    for (first, n_first, n_second) in blocks_of_rows(task.n_rows) {
        // SAFETY: rows, tiles and dimensions of the task.
        unsafe {
            unit.set_shapes(&Shapes::new(n_first, n_second, 4 * TILE_PAIRS));
            for block in (0..n_blocks).step_by(2) {
                let sums = SumOffsets {
                    at: sums.add(first * sums_stride + block * LINE),
                    stride: sums_stride,
                    next: LINE,
                    has_second_rows: n_second > 0,
                    has_second_columns: block + 1 < n_blocks,
                };
                sums.load(&mut unit);
                for tile in tiles.clone() {
                    let x = weights.add(first * SCORES_STRIDE + tile * LINE);
                    let second = block + usize::from(sums.has_second_columns);
                    let values = task.strip.tiles[tile].as_ptr();
                    let lines = [block, second].map(|block| values.add(block * LINE));
                    let start = tile * TILE_TOKENS;
                    let keys = task.keys.start.saturating_sub(start)
                        ..(task.keys.end - start).min(TILE_TOKENS);
                    if keys == (0..TILE_TOKENS) {
                        sums.add(&mut unit, (x, SCORES_STRIDE), (lines, stride));
                    } else {
                        let masked = lines.map(|lines| TileMask::copy(lines, stride, &keys));
                        let lines = [&masked[0], &masked[1]].map(|m| m.0.as_ptr().cast::<u8>());
                        sums.add(&mut unit, (x, SCORES_STRIDE), (lines, LINE));
                    }
                }
                sums.store(&mut unit);
            }
        }
    }
    // SAFETY: forwarded.
    unsafe { unit.release() };
}
