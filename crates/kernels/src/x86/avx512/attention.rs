//! Attention with 512-bit vectors: sixteen positions of K or sixteen dimensions of V at a time.
//!
//! Cache elements are widened to f32 as they are loaded (every widening is exact). So the types
//! share one loop each for scores and sums, chosen by the constant `T`.

use crate::attention::{NO_SCORE, PvTask, QkTask, SPAN_TOKENS, TileShape, TileStrip};
use crate::kv::{KvType, Q8_DIMS, TILE_TOKENS};
use std::arch::x86_64::*;
use std::ops::Range;

const F32: usize = KvType::F32 as usize;
const F16: usize = KvType::F16 as usize;
const BF16: usize = KvType::BF16 as usize;
const Q8_0: usize = KvType::Q8_0 as usize;

/// Bytes of an element of type `T`.
const fn elem_bytes(t: usize) -> usize {
    KvType::ALL[t].elem_bytes()
}

/// Sixteen elements from `at`, widened; in [`Q8_0`] times `scales`.
///
/// # Safety
/// `at` is readable for sixteen elements of type `T`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn load<const T: usize>(at: *const u8, scales: __m512) -> __m512 {
    // SAFETY: unaligned loads of sixteen elements, which the caller vouches for.
    unsafe {
        match T {
            F16 => _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())),
            BF16 => {
                let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
            }
            Q8_0 => {
                let ints = _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()));
                _mm512_mul_ps(_mm512_cvtepi32_ps(ints), scales)
            }
            _ => _mm512_loadu_ps(at.cast()),
        }
    }
}

/// The scales of sixteen positions for one block of dimensions of a K tile.
///
/// # Safety
/// `at` is readable for sixteen f16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn load_scales(at: *const u8) -> __m512 {
    // SAFETY: as the caller vouches.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

/// The scale at `at`, in all lanes.
///
/// # Safety
/// `at` is readable for one f16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn broadcast_scale(at: *const u8) -> __m512 {
    // SAFETY: as the caller vouches.
    let bits = unsafe { at.cast::<u16>().read_unaligned() };
    _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))))
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Strips are fetched into the second-level cache: several of them would crowd the first-level cache,
/// and more requests to memory can wait there. Measured 7 % faster than the first level at depth 4096.
const AHEAD_INTO: i32 = _MM_HINT_T1;

/// Scores of `R` rows against `N` tiles: for each dimension, `N` vectors of positions and `R`
/// broadcast queries. Asks for the same places of the tiles `ahead`.
///
/// # Safety
/// `q` holds `R` rows of `padded_dim`, the tiles are whole, `scores` has `R` rows, [`SPAN_TOKENS`]
/// apart, with room for `16 N` elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn qk_block<const T: usize, const R: usize, const N: usize>(
    shape: &TileShape,
    q: *const f32,
    (tiles, ahead): ([*const u8; N], [*const u8; N]),
    scores: *mut f32,
) {
    let row_bytes = TILE_TOKENS * elem_bytes(T);
    // Rows of a tile that share a cache line.
    let line_rows = (LINE / row_bytes).max(1);
    let mut sums = [[_mm512_setzero_ps(); N]; R];
    let mut scales = [_mm512_setzero_ps(); N];
    for line_dim in (0..shape.head_dim).step_by(line_rows) {
        if T == Q8_0 && line_dim.is_multiple_of(Q8_DIMS) {
            for (scales, tile) in scales.iter_mut().zip(tiles) {
                // SAFETY: the scales of this block of dimensions lie before the tile's elements.
                *scales = unsafe { load_scales(tile.add(line_dim / Q8_DIMS * TILE_TOKENS * 2)) };
            }
        }
        for ahead in ahead {
            let at = ahead.wrapping_add(shape.scale_bytes + line_dim * row_bytes);
            _mm_prefetch::<AHEAD_INTO>(at.cast());
        }
        for dim in line_dim..line_dim + line_rows {
            let mut keys = [_mm512_setzero_ps(); N];
            for ((keys, tile), scales) in keys.iter_mut().zip(tiles).zip(scales) {
                let offset = shape.scale_bytes + dim * row_bytes;
                // SAFETY: `dim < head_dim`, so the row lies in the tile.
                *keys = unsafe { load::<T>(tile.add(offset), scales) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row `r`, dimension `dim` of the queries.
                let q = _mm512_set1_ps(unsafe { *q.add(r * shape.padded_dim + dim) });
                for (sum, keys) in sums.iter_mut().zip(keys) {
                    *sum = _mm512_fmadd_ps(q, keys, *sum);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (n, sum) in sums.iter().enumerate() {
            // SAFETY: row `r`, tile `n` of the scores.
            unsafe { _mm512_storeu_ps(scores.add(r * SPAN_TOKENS + n * TILE_TOKENS), *sum) };
        }
    }
}

/// Scores of `R` rows against all tiles of a strip.
///
/// # Safety
/// As [`qk_block`], for `n_tiles` tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn qk_rows<const T: usize, const R: usize>(
    task: &QkTask<'_>,
    q: *const f32,
    ahead: &[*const u8; 4],
    scores: *mut f32,
) {
    let tiles = task.strip.tiles.map(<[u8]>::as_ptr);
    if task.strip.n_tiles == 4 {
        // SAFETY: the caller's promise, for four tiles.
        unsafe { qk_block::<T, R, 4>(task.shape, q, (tiles, *ahead), scores) };
        return;
    }
    for n in 0..task.strip.n_tiles {
        // SAFETY: the caller's promise, for tile `n`.
        unsafe {
            let scores = scores.add(n * TILE_TOKENS);
            qk_block::<T, R, 1>(task.shape, q, ([tiles[n]], [ahead[n]]), scores);
        }
    }
}

/// # Safety
/// The task's sizes hold ([`QkTask::assert_sizes`]).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn qk<const T: usize>(task: QkTask<'_>) {
    let all_scores = task.scores.as_mut_ptr();
    let mut ahead = tiles_ahead(&task.strip, &task.ahead);
    let mut row = 0;
    while row < task.n_rows {
        let n = (task.n_rows - row).min(4);
        // SAFETY: rows `row..row + n` of queries and scores exist.
        unsafe {
            let q = task.q.as_ptr().add(row * task.shape.padded_dim);
            let scores = all_scores.add(row * SPAN_TOKENS);
            match n {
                4 => qk_rows::<T, 4>(&task, q, &ahead, scores),
                3 => qk_rows::<T, 3>(&task, q, &ahead, scores),
                2 => qk_rows::<T, 2>(&task, q, &ahead, scores),
                _ => qk_rows::<T, 1>(&task, q, &ahead, scores),
            }
        }
        row += n;
        ahead = tiles_ahead(&task.strip, &TileStrip::default());
    }
}

/// Where to prefetch from while tile `i` of `strip` is used: tile `i` of `ahead`, or, if there is
/// none, the tile itself. That costs less than an address without a page.
fn tiles_ahead(strip: &TileStrip<'_>, ahead: &TileStrip<'_>) -> [*const u8; 4] {
    std::array::from_fn(|i| {
        ahead
            .tiles()
            .get(i)
            .or(strip.tiles().get(i))
            .map_or(std::ptr::null(), |tile| tile.as_ptr())
    })
}

/// Adds positions `keys` of a strip to `16 N` dimensions, from `dim` on, of `R` rows.
///
/// # Safety
/// The tiles are whole, `keys` lies in them, `weights` has `R` rows [`SPAN_TOKENS`] apart with
/// `keys.end` elements, `sums` has `R` rows of `padded_dim`, and `dim + 16 N <= padded_dim`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pv_block<const T: usize, const R: usize, const N: usize>(
    task: &PvTask<'_>,
    weights: *const f32,
    dim: usize,
    ahead: &[*const u8; 4],
    sums: *mut f32,
) {
    let shape = task.shape;
    let row_bytes = shape.padded_dim * elem_bytes(T);
    let first = shape.scale_bytes + dim * elem_bytes(T);
    let mut acc = [[_mm512_setzero_ps(); N]; R];
    for (r, acc) in acc.iter_mut().enumerate() {
        for (n, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `16 N` sums of row `r` from `dim` on.
            *acc = unsafe { _mm512_loadu_ps(sums.add(r * shape.padded_dim + dim + 16 * n)) };
        }
    }
    for key in task.keys.clone() {
        let (index, slot) = (key / TILE_TOKENS, key % TILE_TOKENS);
        // SAFETY: `keys` lies in the strip's tiles.
        let (tile, ahead) = unsafe {
            (
                task.strip.tiles.get_unchecked(index).as_ptr(),
                *ahead.get_unchecked(index),
            )
        };
        let row = first + slot * row_bytes;
        for line in (0..16 * N * elem_bytes(T)).step_by(LINE) {
            _mm_prefetch::<AHEAD_INTO>(ahead.wrapping_add(row + line).cast());
        }
        let mut values = [_mm512_setzero_ps(); N];
        for (n, values) in values.iter_mut().enumerate() {
            let mut scale = _mm512_setzero_ps();
            if T == Q8_0 {
                let block = slot * shape.scale_blocks + (dim + 16 * n) / Q8_DIMS;
                // SAFETY: the scale of these dimensions in slot `slot`.
                scale = unsafe { broadcast_scale(tile.add(2 * block)) };
            }
            // SAFETY: sixteen dimensions of slot `slot`.
            *values = unsafe { load::<T>(tile.add(row + 16 * n * elem_bytes(T)), scale) };
        }
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the weight of position `key` for row `r`.
            let weight = _mm512_set1_ps(unsafe { *weights.add(r * SPAN_TOKENS + key) });
            for (acc, values) in acc.iter_mut().zip(values) {
                *acc = _mm512_fmadd_ps(weight, values, *acc);
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        for (n, acc) in acc.iter().enumerate() {
            // SAFETY: where the sums were loaded from.
            unsafe { _mm512_storeu_ps(sums.add(r * shape.padded_dim + dim + 16 * n), *acc) };
        }
    }
}

/// Adds a strip to all dimensions of `R` rows.
///
/// # Safety
/// As [`pv_block`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pv_rows<const T: usize, const R: usize>(
    task: &PvTask<'_>,
    weights: *const f32,
    ahead: &[*const u8; 4],
    sums: *mut f32,
) {
    let mut dim = 0;
    while dim < task.shape.padded_dim {
        // SAFETY: the caller's promise; blocks end within `padded_dim`, a multiple of 16.
        dim += unsafe {
            match task.shape.padded_dim - dim {
                64.. => {
                    pv_block::<T, R, 4>(task, weights, dim, ahead, sums);
                    64
                }
                32.. => {
                    pv_block::<T, R, 2>(task, weights, dim, ahead, sums);
                    32
                }
                _ => {
                    pv_block::<T, R, 1>(task, weights, dim, ahead, sums);
                    16
                }
            }
        };
    }
}

/// # Safety
/// The task's sizes hold ([`PvTask::assert_sizes`]).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pv<const T: usize>(task: PvTask<'_>) {
    let all_sums = task.sums.as_mut_ptr();
    let mut ahead = tiles_ahead(&task.strip, &task.ahead);
    let mut row = 0;
    while row < task.n_rows {
        let n = (task.n_rows - row).min(4);
        // SAFETY: rows `row..row + n` of weights and sums exist.
        unsafe {
            let weights = task.weights.as_ptr().add(row * SPAN_TOKENS);
            let sums = all_sums.add(row * task.shape.padded_dim);
            match n {
                4 => pv_rows::<T, 4>(&task, weights, &ahead, sums),
                3 => pv_rows::<T, 3>(&task, weights, &ahead, sums),
                2 => pv_rows::<T, 2>(&task, weights, &ahead, sums),
                _ => pv_rows::<T, 1>(&task, weights, &ahead, sums),
            }
        }
        row += n;
        ahead = tiles_ahead(&task.strip, &TileStrip::default());
    }
}

/// # Safety
/// `tile` and `out` hold a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn unpack_k<const T: usize>(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let tile = tile.as_ptr();
    for dim in 0..shape.head_dim {
        // SAFETY: sixteen positions of dimension `dim`, and their scales.
        unsafe {
            let mut scales = _mm512_setzero_ps();
            if T == Q8_0 {
                scales = load_scales(tile.add(dim / Q8_DIMS * TILE_TOKENS * 2));
            }
            let offset = shape.scale_bytes + dim * TILE_TOKENS * elem_bytes(T);
            let keys = load::<T>(tile.add(offset), scales);
            _mm512_storeu_ps(out.as_mut_ptr().add(dim * TILE_TOKENS), keys);
        }
    }
}

/// # Safety
/// `tile` and `out` hold a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn unpack_v<const T: usize>(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let tile = tile.as_ptr();
    for slot in 0..TILE_TOKENS {
        for dim in (0..shape.padded_dim).step_by(16) {
            let index = slot * shape.padded_dim + dim;
            // SAFETY: sixteen dimensions of slot `slot`, and their scale.
            unsafe {
                let mut scale = _mm512_setzero_ps();
                if T == Q8_0 {
                    let block = slot * shape.scale_blocks + dim / Q8_DIMS;
                    scale = broadcast_scale(tile.add(2 * block));
                }
                let offset = shape.scale_bytes + index * elem_bytes(T);
                let values = load::<T>(tile.add(offset), scale);
                _mm512_storeu_ps(out.as_mut_ptr().add(index), values);
            }
        }
    }
}

/// Lanes of the vector at `base` that lie in `valid`.
#[inline]
fn lanes_in(valid: &Range<usize>, base: usize) -> __mmask16 {
    if valid.start <= base && base + 16 <= valid.end {
        return !0;
    }
    let below = |end: usize| (1u32 << end.saturating_sub(base).min(16)) - 1;
    (below(valid.end) & !below(valid.start)) as __mmask16
}

/// `2^x` for `x <= 0`, relative error below 2e-7; 0 where that is not a normal number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn exp2(x: __m512) -> __m512 {
    use crate::elementwise::EXP2_POLY;
    let normal = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_set1_ps(-126.0));
    let whole = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
    let part = _mm512_sub_ps(x, whole);
    let mut poly = _mm512_set1_ps(EXP2_POLY[5]);
    for coefficient in EXP2_POLY[..5].iter().rev() {
        poly = _mm512_fmadd_ps(poly, part, _mm512_set1_ps(*coefficient));
    }
    let poly = _mm512_fmadd_ps(poly, part, _mm512_set1_ps(1.0));
    _mm512_maskz_scalef_ps(normal, poly, whole)
}

/// See [`crate::attention::Leaves::softmax`].
///
/// # Safety
/// None beyond the CPU's features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(crate) unsafe fn softmax(scores: &mut [f32], valid: Range<usize>) -> (f32, f32) {
    let (vectors, _) = scores.as_chunks_mut::<16>();
    // Four chains: a maximum is the same in any order, a sum is not.
    let mut max = [_mm512_set1_ps(NO_SCORE); 4];
    for (i, vector) in vectors.iter().enumerate() {
        // SAFETY: a load of the sixteen elements of `vector`.
        let score = unsafe { _mm512_loadu_ps(vector.as_ptr()) };
        let max = &mut max[i % 4];
        *max = _mm512_mask_max_ps(*max, lanes_in(&valid, 16 * i), score, *max);
    }
    let [a, b, c, d] = max;
    let max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
    let mut sum = _mm512_setzero_ps();
    for (i, vector) in vectors.iter_mut().enumerate() {
        let mask = lanes_in(&valid, 16 * i);
        // SAFETY: a load of the sixteen elements of `vector`.
        let score = unsafe { _mm512_loadu_ps(vector.as_ptr()) };
        let weight = exp2(_mm512_sub_ps(score, _mm512_set1_ps(max)));
        let weight = _mm512_maskz_mov_ps(mask, weight);
        sum = _mm512_add_ps(sum, weight);
        // SAFETY: a store to the sixteen elements of `vector`.
        unsafe { _mm512_storeu_ps(vector.as_mut_ptr(), weight) };
    }
    (max, _mm512_reduce_add_ps(sum))
}

/// The entries of the kernel table for one type.
macro_rules! kernels {
    ($t:ident, $qk:ident, $pv:ident, $unpack_k:ident, $unpack_v:ident) => {
        /// # Safety
        /// The CPU has the features; the task's sizes hold.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        pub(crate) unsafe fn $qk(task: QkTask<'_>) {
            // SAFETY: the caller's promise.
            unsafe { qk::<$t>(task) }
        }
        /// # Safety
        /// The CPU has the features; the task's sizes hold.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        pub(crate) unsafe fn $pv(task: PvTask<'_>) {
            // SAFETY: the caller's promise.
            unsafe { pv::<$t>(task) }
        }
        /// # Safety
        /// The CPU has the features; `tile` and `out` hold a tile.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        pub(crate) unsafe fn $unpack_k(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
            // SAFETY: the caller's promise.
            unsafe { unpack_k::<$t>(shape, tile, out) }
        }
        /// # Safety
        /// The CPU has the features; `tile` and `out` hold a tile.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        pub(crate) unsafe fn $unpack_v(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
            // SAFETY: the caller's promise.
            unsafe { unpack_v::<$t>(shape, tile, out) }
        }
    };
}

kernels!(F32, qk_f32, pv_f32, unpack_k_f32, unpack_v_f32);
kernels!(F16, qk_f16, pv_f16, unpack_k_f16, unpack_v_f16);
kernels!(BF16, qk_bf16, pv_bf16, unpack_k_bf16, unpack_v_bf16);
kernels!(Q8_0, qk_q8_0, pv_q8_0, unpack_k_q8_0, unpack_v_q8_0);
