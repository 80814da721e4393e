//! Attention with 256-bit vectors: eight positions of K or eight dimensions of V at a time.
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

/// Elements of a vector.
const LANES: usize = 8;

/// Bytes of an element of type `T`.
const fn elem_bytes(t: usize) -> usize {
    KvType::ALL[t].elem_bytes()
}

/// Eight elements from `at`, widened; in [`Q8_0`] times `scales`.
///
/// # Safety
/// `at` is readable for eight elements of type `T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<const T: usize>(at: *const u8, scales: __m256) -> __m256 {
    // SAFETY: unaligned loads of eight elements, which the caller vouches for.
    unsafe {
        match T {
            F16 => _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
            BF16 => {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
            }
            Q8_0 => {
                let ints = _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()));
                _mm256_mul_ps(_mm256_cvtepi32_ps(ints), scales)
            }
            _ => _mm256_loadu_ps(at.cast()),
        }
    }
}

/// The scales of eight positions for one block of dimensions of a K tile.
///
/// # Safety
/// `at` is readable for eight f16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load_scales(at: *const u8) -> __m256 {
    // SAFETY: as the caller vouches.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
}

/// The scale at `at`, in all lanes.
///
/// # Safety
/// `at` is readable for one f16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn broadcast_scale(at: *const u8) -> __m256 {
    // SAFETY: as the caller vouches.
    let bits = unsafe { at.cast::<u16>().read_unaligned() };
    _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))))
}

/// Scores of `R` rows against one tile: for each dimension, two vectors of positions and `R`
/// broadcast queries. Asks for the same place of the tile `ahead`.
///
/// # Safety
/// `q` holds `R` rows of `padded_dim`, the tile is whole, `scores` has `R` rows, [`SPAN_TOKENS`]
/// apart, with room for sixteen elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn qk_tile<const T: usize, const R: usize>(
    shape: &TileShape,
    q: *const f32,
    tile: *const u8,
    ahead: *const u8,
    scores: *mut f32,
) {
    let half_row = LANES * elem_bytes(T);
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    let mut scales = [_mm256_setzero_ps(); 2];
    for dim in 0..shape.head_dim {
        if T == Q8_0 && dim.is_multiple_of(Q8_DIMS) {
            for (half, scales) in scales.iter_mut().enumerate() {
                let index = dim / Q8_DIMS * TILE_TOKENS + half * LANES;
                // SAFETY: the scales of this block of dimensions lie before the tile's elements.
                *scales = unsafe { load_scales(tile.add(2 * index)) };
            }
        }
        let offset = shape.scale_bytes + dim * 2 * half_row;
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(offset).cast());
        // SAFETY: `dim < head_dim`, so the row lies in the tile.
        let keys = unsafe {
            [
                load::<T>(tile.add(offset), scales[0]),
                load::<T>(tile.add(offset + half_row), scales[1]),
            ]
        };
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: row `r`, dimension `dim` of the queries.
            let q = _mm256_set1_ps(unsafe { *q.add(r * shape.padded_dim + dim) });
            sums[0] = _mm256_fmadd_ps(q, keys[0], sums[0]);
            sums[1] = _mm256_fmadd_ps(q, keys[1], sums[1]);
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        // SAFETY: sixteen scores of row `r`.
        unsafe {
            _mm256_storeu_ps(scores.add(r * SPAN_TOKENS), sums[0]);
            _mm256_storeu_ps(scores.add(r * SPAN_TOKENS + LANES), sums[1]);
        }
    }
}

/// # Safety
/// The task's sizes hold ([`QkTask::assert_sizes`]).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn qk<const T: usize>(task: QkTask<'_>) {
    let all_scores = task.scores.as_mut_ptr();
    let shape = task.shape;
    for (index, tile) in task.strip.tiles().iter().enumerate() {
        let tile = tile.as_ptr();
        let mut ahead = tile_start(&task.ahead, index);
        let mut row = 0;
        while row < task.n_rows {
            let n = (task.n_rows - row).min(4);
            // SAFETY: rows `row..row + n` of queries and scores exist, and the tile's columns.
            unsafe {
                let q = task.q.as_ptr().add(row * shape.padded_dim);
                let scores = all_scores.add(row * SPAN_TOKENS + index * TILE_TOKENS);
                match n {
                    4 => qk_tile::<T, 4>(shape, q, tile, ahead, scores),
                    3 => qk_tile::<T, 3>(shape, q, tile, ahead, scores),
                    2 => qk_tile::<T, 2>(shape, q, tile, ahead, scores),
                    _ => qk_tile::<T, 1>(shape, q, tile, ahead, scores),
                }
            }
            row += n;
            // Later rows prefetch the present tile again rather than the next tile twice.
            ahead = tile;
        }
    }
}

/// Start of tile `index`, or null where the strip has none.
fn tile_start(strip: &TileStrip<'_>, index: usize) -> *const u8 {
    strip
        .tiles()
        .get(index)
        .map_or(std::ptr::null(), |tile| tile.as_ptr())
}

/// Adds positions `keys` of a strip to sixteen dimensions, from `dim` on, of `R` rows.
///
/// # Safety
/// The tiles are whole, `keys` lies in them, `weights` has `R` rows [`SPAN_TOKENS`] apart with
/// `keys.end` elements, `sums` has `R` rows of `padded_dim`, and `dim + 16 <= padded_dim`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pv_block<const T: usize, const R: usize>(
    task: &PvTask<'_>,
    weights: *const f32,
    dim: usize,
    sums: *mut f32,
) {
    let shape = task.shape;
    let row_bytes = shape.padded_dim * elem_bytes(T);
    let mut acc = [[_mm256_setzero_ps(); 2]; R];
    for (r, acc) in acc.iter_mut().enumerate() {
        // SAFETY: sixteen sums of row `r` from `dim` on.
        unsafe {
            let sums = sums.add(r * shape.padded_dim + dim);
            *acc = [_mm256_loadu_ps(sums), _mm256_loadu_ps(sums.add(LANES))];
        }
    }
    for key in task.keys.clone() {
        let (index, slot) = (key / TILE_TOKENS, key % TILE_TOKENS);
        let tile = task.strip.tiles[index].as_ptr();
        let offset = shape.scale_bytes + slot * row_bytes + dim * elem_bytes(T);
        let next = tile_start(&task.ahead, index).wrapping_add(offset).cast();
        _mm_prefetch::<_MM_HINT_T0>(next);
        // SAFETY: sixteen dimensions of slot `slot`, and their scale.
        let values = unsafe {
            let mut scale = _mm256_setzero_ps();
            if T == Q8_0 {
                let block = slot * shape.scale_blocks + dim / Q8_DIMS;
                scale = broadcast_scale(tile.add(2 * block));
            }
            let at = tile.add(offset);
            [
                load::<T>(at, scale),
                load::<T>(at.add(LANES * elem_bytes(T)), scale),
            ]
        };
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the weight of position `key` for row `r`.
            let weight = _mm256_set1_ps(unsafe { *weights.add(r * SPAN_TOKENS + key) });
            acc[0] = _mm256_fmadd_ps(weight, values[0], acc[0]);
            acc[1] = _mm256_fmadd_ps(weight, values[1], acc[1]);
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        // SAFETY: where the sums were loaded from.
        unsafe {
            let sums = sums.add(r * shape.padded_dim + dim);
            _mm256_storeu_ps(sums, acc[0]);
            _mm256_storeu_ps(sums.add(LANES), acc[1]);
        }
    }
}

/// # Safety
/// The task's sizes hold ([`PvTask::assert_sizes`]).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pv<const T: usize>(task: PvTask<'_>) {
    let all_sums = task.sums.as_mut_ptr();
    let padded_dim = task.shape.padded_dim;
    let mut row = 0;
    while row < task.n_rows {
        let n = (task.n_rows - row).min(4);
        for dim in (0..padded_dim).step_by(16) {
            // SAFETY: rows `row..row + n` of weights and sums exist; `padded_dim` is a multiple of
            // sixteen.
            unsafe {
                let weights = task.weights.as_ptr().add(row * SPAN_TOKENS);
                let sums = all_sums.add(row * padded_dim);
                match n {
                    4 => pv_block::<T, 4>(&task, weights, dim, sums),
                    3 => pv_block::<T, 3>(&task, weights, dim, sums),
                    2 => pv_block::<T, 2>(&task, weights, dim, sums),
                    _ => pv_block::<T, 1>(&task, weights, dim, sums),
                }
            }
        }
        row += n;
    }
}

/// # Safety
/// `tile` and `out` hold a tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack_k<const T: usize>(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let tile = tile.as_ptr();
    for index in (0..shape.head_dim * TILE_TOKENS).step_by(LANES) {
        // SAFETY: eight positions of one dimension, and their scales.
        unsafe {
            let mut scales = _mm256_setzero_ps();
            if T == Q8_0 {
                let (dim, slot) = (index / TILE_TOKENS, index % TILE_TOKENS);
                scales = load_scales(tile.add(2 * (dim / Q8_DIMS * TILE_TOKENS + slot)));
            }
            let keys = load::<T>(tile.add(shape.scale_bytes + index * elem_bytes(T)), scales);
            _mm256_storeu_ps(out.as_mut_ptr().add(index), keys);
        }
    }
}

/// # Safety
/// `tile` and `out` hold a tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack_v<const T: usize>(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let tile = tile.as_ptr();
    for index in (0..shape.tile_elems()).step_by(LANES) {
        // SAFETY: eight dimensions of one slot, and their scale.
        unsafe {
            let mut scale = _mm256_setzero_ps();
            if T == Q8_0 {
                let (slot, dim) = (index / shape.padded_dim, index % shape.padded_dim);
                scale = broadcast_scale(tile.add(2 * (slot * shape.scale_blocks + dim / Q8_DIMS)));
            }
            let values = load::<T>(tile.add(shape.scale_bytes + index * elem_bytes(T)), scale);
            _mm256_storeu_ps(out.as_mut_ptr().add(index), values);
        }
    }
}

/// All bits set in the lanes of the vector at `base` that lie in `valid`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes_in(valid: &Range<usize>, base: usize) -> __m256 {
    let lane = _mm256_add_epi32(
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        _mm256_set1_epi32(base as i32),
    );
    let from = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(valid.start as i32 - 1));
    let to = _mm256_cmpgt_epi32(_mm256_set1_epi32(valid.end as i32), lane);
    _mm256_castsi256_ps(_mm256_and_si256(from, to))
}

/// `2^x` for `x <= 0`, relative error below 2e-7; 0 where that is not a normal number.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn exp2(x: __m256) -> __m256 {
    use crate::elementwise::EXP2_POLY;
    let normal = _mm256_cmp_ps::<_CMP_GE_OQ>(x, _mm256_set1_ps(-126.0));
    let whole = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
    let part = _mm256_sub_ps(x, whole);
    let mut poly = _mm256_set1_ps(EXP2_POLY[5]);
    for coefficient in EXP2_POLY[..5].iter().rev() {
        poly = _mm256_fmadd_ps(poly, part, _mm256_set1_ps(*coefficient));
    }
    let poly = _mm256_fmadd_ps(poly, part, _mm256_set1_ps(1.0));
    // Adding to the exponent field multiplies by a power of two while the result is normal.
    let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(whole));
    let scaled = _mm256_add_epi32(_mm256_castps_si256(poly), exponent);
    _mm256_and_ps(_mm256_castsi256_ps(scaled), normal)
}

/// Sum of the lanes, always in the same order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn reduce_add(x: __m256) -> f32 {
    let quad = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
    _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
}

/// Largest lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn reduce_max(x: __m256) -> f32 {
    let quad = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
}

/// See [`crate::attention::Leaves::softmax`].
///
/// # Safety
/// None beyond the CPU's features.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn softmax(scores: &mut [f32], valid: Range<usize>) -> (f32, f32) {
    let (vectors, _) = scores.as_chunks_mut::<LANES>();
    let mut max = _mm256_set1_ps(NO_SCORE);
    for (i, vector) in vectors.iter().enumerate() {
        // SAFETY: a load of the eight elements of `vector`.
        let score = unsafe { _mm256_loadu_ps(vector.as_ptr()) };
        let seen = _mm256_blendv_ps(max, score, lanes_in(&valid, LANES * i));
        max = _mm256_max_ps(seen, max);
    }
    let max = reduce_max(max);
    let mut sum = _mm256_setzero_ps();
    for (i, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: a load of the eight elements of `vector`.
        let score = unsafe { _mm256_loadu_ps(vector.as_ptr()) };
        let weight = exp2(_mm256_sub_ps(score, _mm256_set1_ps(max)));
        let weight = _mm256_and_ps(weight, lanes_in(&valid, LANES * i));
        sum = _mm256_add_ps(sum, weight);
        // SAFETY: a store to the eight elements of `vector`.
        unsafe { _mm256_storeu_ps(vector.as_mut_ptr(), weight) };
    }
    (max, reduce_add(sum))
}

/// The entries of the kernel table for one type.
macro_rules! kernels {
    ($t:ident, $qk:ident, $pv:ident, $unpack_k:ident, $unpack_v:ident) => {
        /// # Safety
        /// The CPU has the features; the task's sizes hold.
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $qk(task: QkTask<'_>) {
            // SAFETY: the caller's promise.
            unsafe { qk::<$t>(task) }
        }
        /// # Safety
        /// The CPU has the features; the task's sizes hold.
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $pv(task: PvTask<'_>) {
            // SAFETY: the caller's promise.
            unsafe { pv::<$t>(task) }
        }
        /// # Safety
        /// The CPU has the features; `tile` and `out` hold a tile.
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $unpack_k(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
            // SAFETY: the caller's promise.
            unsafe { unpack_k::<$t>(shape, tile, out) }
        }
        /// # Safety
        /// The CPU has the features; `tile` and `out` hold a tile.
        #[target_feature(enable = "avx2,fma,f16c")]
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
