//! Attention with 128-bit vectors: sixteen positions of K or sixteen dimensions of V at a time, in four vectors.
//!
//! Cache elements are widened to f32 as they are loaded (every widening is exact). So the types
//! share one loop each for scores and sums, chosen by the constant `T`.

use super::lines::map;
use crate::attention::{NO_SCORE, PvTask, QkTask, SPAN_TOKENS, TileShape, TileStrip};
use crate::kv::{KvType, Q8_DIMS, TILE_TOKENS};
use crate::matmul::ahead::prefetch;
use std::arch::aarch64::*;
use std::ops::Range;

const F32: usize = KvType::F32 as usize;
const F16: usize = KvType::F16 as usize;
const BF16: usize = KvType::BF16 as usize;
const Q8_0: usize = KvType::Q8_0 as usize;

/// Vectors of sixteen elements.
const VECTORS: usize = 4;

/// Elements of a vector.
const LANES: usize = 4;

/// Sixteen f32.
type Sixteen = [float32x4_t; VECTORS];

/// Bytes of an element of type `T`.
const fn elem_bytes(t: usize) -> usize {
    KvType::ALL[t].elem_bytes()
}

#[inline(always)]
fn splat(x: f32) -> Sixteen {
    // SAFETY: every AArch64 has the instruction.
    [unsafe { vdupq_n_f32(x) }; VECTORS]
}

/// # Safety
/// `at` is readable for sixteen numbers.
#[inline(always)]
unsafe fn load_f32(at: *const f32) -> Sixteen {
    // SAFETY: forwarded.
    map([0, 1, 2, 3], |v| unsafe { vld1q_f32(at.add(LANES * v)) })
}

/// # Safety
/// `at` is writable for sixteen numbers.
#[inline(always)]
unsafe fn store_f32(at: *mut f32, x: Sixteen) {
    for (v, x) in x.into_iter().enumerate() {
        // SAFETY: forwarded.
        unsafe { vst1q_f32(at.add(LANES * v), x) };
    }
}

/// # Safety
/// `at` is readable for sixteen f16.
#[inline(always)]
unsafe fn load_f16(at: *const u8) -> Sixteen {
    // SAFETY: forwarded.
    unsafe {
        let at: *const u16 = at.cast();
        let a = vreinterpretq_f16_u16(vld1q_u16(at));
        let b = vreinterpretq_f16_u16(vld1q_u16(at.add(8)));
        [
            vcvt_f32_f16(vget_low_f16(a)),
            vcvt_high_f32_f16(a),
            vcvt_f32_f16(vget_low_f16(b)),
            vcvt_high_f32_f16(b),
        ]
    }
}

/// Sixteen elements from `at`, widened; in [`Q8_0`] times `scales`.
///
/// # Safety
/// `at` is readable for sixteen elements of type `T`.
#[inline(always)]
unsafe fn load<const T: usize>(at: *const u8, scales: Sixteen) -> Sixteen {
    // SAFETY: unaligned loads of sixteen elements, which the caller vouches for.
    unsafe {
        match T {
            F16 => load_f16(at),
            BF16 => {
                let halves = [vld1q_u16(at.cast()), vld1q_u16(at.add(16).cast())];
                let words = [
                    vshll_n_u16::<16>(vget_low_u16(halves[0])),
                    vshll_high_n_u16::<16>(halves[0]),
                    vshll_n_u16::<16>(vget_low_u16(halves[1])),
                    vshll_high_n_u16::<16>(halves[1]),
                ];
                map(words, |v| vreinterpretq_f32_u32(v))
            }
            Q8_0 => {
                let bytes = vld1q_s8(at.cast());
                let halves = [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)];
                let words = [
                    vmovl_s16(vget_low_s16(halves[0])),
                    vmovl_high_s16(halves[0]),
                    vmovl_s16(vget_low_s16(halves[1])),
                    vmovl_high_s16(halves[1]),
                ];
                map([0, 1, 2, 3], |v| {
                    vmulq_f32(vcvtq_f32_s32(words[v]), scales[v])
                })
            }
            _ => load_f32(at.cast()),
        }
    }
}

/// The scale at `at`, in all lanes.
///
/// # Safety
/// `at` is readable for one f16.
#[inline(always)]
unsafe fn broadcast_scale(at: *const u8) -> Sixteen {
    // SAFETY: as the caller vouches.
    unsafe {
        let bits = vdup_n_u16(at.cast::<u16>().read_unaligned());
        [vcvt_f32_f16(vreinterpret_f16_u16(bits)); VECTORS]
    }
}

/// Scores of `R` rows against one tile: for each dimension, sixteen positions and `R` queries. Asks for the same place of the tile
/// `ahead`.
///
/// # Safety
/// `q` holds `R` rows of `padded_dim`, the tile is whole, `scores` has `R` rows, [`SPAN_TOKENS`]
/// apart, with room for sixteen elements.
#[inline(always)]
unsafe fn qk_tile<const T: usize, const R: usize>(
    shape: &TileShape,
    q: *const f32,
    tile: *const u8,
    ahead: *const u8,
    scores: *mut f32,
) {
    let mut sums = [splat(0.0); R];
    let mut scales = splat(0.0);
    for dim in 0..shape.head_dim {
        if T == Q8_0 && dim.is_multiple_of(Q8_DIMS) {
            // SAFETY: the scales of this block of dimensions lie before the tile's elements.
            scales = unsafe { load_f16(tile.add(2 * (dim / Q8_DIMS * TILE_TOKENS))) };
        }
        let offset = shape.scale_bytes + dim * TILE_TOKENS * elem_bytes(T);
        prefetch::<true>(ahead.wrapping_add(offset));
        // SAFETY: `dim < head_dim`, so the row lies in the tile.
        let keys = unsafe { load::<T>(tile.add(offset), scales) };
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: row `r`, dimension `dim` of the queries.
            let q = unsafe { *q.add(r * shape.padded_dim + dim) };
            multiply_add(sums, keys, q);
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        // SAFETY: sixteen scores of row `r`.
        unsafe { store_f32(scores.add(r * SPAN_TOKENS), sums) };
    }
}

/// `sums += x · factor`.
#[inline(always)]
fn multiply_add(sums: &mut Sixteen, x: Sixteen, factor: f32) {
    for (sum, x) in sums.iter_mut().zip(x) {
        // SAFETY: every AArch64 has the instruction.
        *sum = unsafe { vfmaq_n_f32(*sum, x, factor) };
    }
}

/// # Safety
/// The task's sizes hold ([`QkTask::assert_sizes`]).
#[inline(always)]
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
#[inline(always)]
unsafe fn pv_block<const T: usize, const R: usize>(
    task: &PvTask<'_>,
    weights: *const f32,
    dim: usize,
    sums: *mut f32,
) {
    let shape = task.shape;
    let row_bytes = shape.padded_dim * elem_bytes(T);
    let mut acc = [splat(0.0); R];
    for (r, acc) in acc.iter_mut().enumerate() {
        // SAFETY: sixteen sums of row `r` from `dim` on.
        *acc = unsafe { load_f32(sums.add(r * shape.padded_dim + dim)) };
    }
    for key in task.keys.clone() {
        let (index, slot) = (key / TILE_TOKENS, key % TILE_TOKENS);
        let tile = task.strip.tiles[index].as_ptr();
        let offset = shape.scale_bytes + slot * row_bytes + dim * elem_bytes(T);
        prefetch::<true>(tile_start(&task.ahead, index).wrapping_add(offset));
        // SAFETY: sixteen dimensions of slot `slot`, and their scale.
        let values = unsafe {
            let mut scale = splat(0.0);
            if T == Q8_0 {
                let block = slot * shape.scale_blocks + dim / Q8_DIMS;
                scale = broadcast_scale(tile.add(2 * block));
            }
            load::<T>(tile.add(offset), scale)
        };
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the weight of position `key` for row `r`.
            let weight = unsafe { *weights.add(r * SPAN_TOKENS + key) };
            multiply_add(acc, values, weight);
        }
    }
    for (r, acc) in acc.into_iter().enumerate() {
        // SAFETY: where the sums were loaded from.
        unsafe { store_f32(sums.add(r * shape.padded_dim + dim), acc) };
    }
}

/// # Safety
/// The task's sizes hold ([`PvTask::assert_sizes`]).
#[inline(always)]
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
#[inline(always)]
unsafe fn unpack_k<const T: usize>(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let tile = tile.as_ptr();
    for dim in 0..shape.head_dim {
        // SAFETY: sixteen positions of one dimension, and their scales.
        unsafe {
            let mut scales = splat(0.0);
            if T == Q8_0 {
                scales = load_f16(tile.add(2 * (dim / Q8_DIMS * TILE_TOKENS)));
            }
            let index = dim * TILE_TOKENS;
            let keys = load::<T>(tile.add(shape.scale_bytes + index * elem_bytes(T)), scales);
            store_f32(out.as_mut_ptr().add(index), keys);
        }
    }
}

/// # Safety
/// `tile` and `out` hold a tile.
#[inline(always)]
unsafe fn unpack_v<const T: usize>(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let tile = tile.as_ptr();
    for index in (0..shape.tile_elems()).step_by(16) {
        // SAFETY: sixteen dimensions of one slot, and their scale.
        unsafe {
            let mut scale = splat(0.0);
            if T == Q8_0 {
                let (slot, dim) = (index / shape.padded_dim, index % shape.padded_dim);
                scale = broadcast_scale(tile.add(2 * (slot * shape.scale_blocks + dim / Q8_DIMS)));
            }
            let values = load::<T>(tile.add(shape.scale_bytes + index * elem_bytes(T)), scale);
            store_f32(out.as_mut_ptr().add(index), values);
        }
    }
}

/// All bits set in the lanes of the vector at `base` that lie in `valid`.
#[inline(always)]
fn lanes_in(valid: &Range<usize>, base: usize) -> uint32x4_t {
    const INDEX: [u32; LANES] = [0, 1, 2, 3];
    // SAFETY: every AArch64 has these; four readable numbers.
    unsafe {
        let lane = vaddq_u32(vld1q_u32(INDEX.as_ptr()), vdupq_n_u32(base as u32));
        let from = vcgeq_u32(lane, vdupq_n_u32(valid.start as u32));
        let to = vcltq_u32(lane, vdupq_n_u32(valid.end as u32));
        vandq_u32(from, to)
    }
}

/// `2^x` for `x <= 0`, relative error below 2e-7; 0 where that is not a normal number.
#[inline(always)]
fn exp2(x: float32x4_t) -> float32x4_t {
    use crate::elementwise::EXP2_POLY;
    // SAFETY: every AArch64 has these.
    unsafe {
        let normal = vcgeq_f32(x, vdupq_n_f32(-126.0));
        let whole = vrndnq_f32(x);
        let part = vsubq_f32(x, whole);
        let mut poly = vdupq_n_f32(EXP2_POLY[5]);
        for coefficient in EXP2_POLY[..5].iter().rev() {
            poly = vfmaq_f32(vdupq_n_f32(*coefficient), poly, part);
        }
        let poly = vfmaq_f32(vdupq_n_f32(1.0), poly, part);
        // Adding to the exponent field multiplies by a power of two while the result is normal.
        let exponent = vshlq_n_s32::<23>(vcvtnq_s32_f32(whole));
        let scaled = vaddq_s32(vreinterpretq_s32_f32(poly), exponent);
        vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_s32(scaled), normal))
    }
}

/// See [`crate::attention::Leaves::softmax`].
///
/// # Safety
/// None beyond the CPU's features.
pub(crate) unsafe fn softmax(scores: &mut [f32], valid: Range<usize>) -> (f32, f32) {
    let (vectors, _) = scores.as_chunks_mut::<LANES>();
    // SAFETY: loads and stores of the four elements of `vector`.
    unsafe {
        let mut max = vdupq_n_f32(NO_SCORE);
        for (i, vector) in vectors.iter().enumerate() {
            let score = vld1q_f32(vector.as_ptr());
            // If one of two numbers is NaN, the result is the other.
            max = vmaxnmq_f32(vbslq_f32(lanes_in(&valid, LANES * i), score, max), max);
        }
        let max = vmaxnmvq_f32(max);
        let mut sum = vdupq_n_f32(0.0);
        for (i, vector) in vectors.iter_mut().enumerate() {
            let score = vld1q_f32(vector.as_ptr());
            let weight = exp2(vsubq_f32(score, vdupq_n_f32(max)));
            let seen = lanes_in(&valid, LANES * i);
            let weight = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(weight), seen));
            sum = vaddq_f32(sum, weight);
            vst1q_f32(vector.as_mut_ptr(), weight);
        }
        (max, vaddvq_f32(sum))
    }
}

/// The entries of the kernel table for one type.
macro_rules! kernels {
    ($t:ident, $qk:ident, $pv:ident, $unpack_k:ident, $unpack_v:ident) => {
        /// # Safety
        /// The task's sizes hold.
        pub(crate) unsafe fn $qk(task: QkTask<'_>) {
            // SAFETY: the caller's promise.
            unsafe { qk::<$t>(task) }
        }
        /// # Safety
        /// The task's sizes hold.
        pub(crate) unsafe fn $pv(task: PvTask<'_>) {
            // SAFETY: the caller's promise.
            unsafe { pv::<$t>(task) }
        }
        /// # Safety
        /// `tile` and `out` hold a tile.
        pub(crate) unsafe fn $unpack_k(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
            // SAFETY: the caller's promise.
            unsafe { unpack_k::<$t>(shape, tile, out) }
        }
        /// # Safety
        /// `tile` and `out` hold a tile.
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
