//! Attention kernels without SIMD instructions, in the same shape as those with.

use super::{NO_SCORE, PvTask, QkTask, SPAN_TOKENS, TileShape};
use crate::kv::{Q8_DIMS, TILE_TOKENS};
use half::{bf16, f16};
use std::ops::Range;

/// Reads the `i`-th little-endian f32.
fn f32_at(bytes: &[u8], i: usize) -> f32 {
    f32::from_le_bytes([
        bytes[4 * i],
        bytes[4 * i + 1],
        bytes[4 * i + 2],
        bytes[4 * i + 3],
    ])
}

/// Reads the `i`-th little-endian half.
fn u16_at(bytes: &[u8], i: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

/// Scores against tiles of f32.
pub(super) fn qk(task: QkTask<'_>) {
    let shape = task.shape;
    for (tile, keys) in task.strip.tiles().iter().zip((0..).step_by(TILE_TOKENS)) {
        for row in 0..task.n_rows {
            let q = &task.q[row * shape.padded_dim..][..shape.head_dim];
            let mut sums = [0.0f32; TILE_TOKENS];
            for (dim, &q) in q.iter().enumerate() {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum += q * f32_at(tile, dim * TILE_TOKENS + lane);
                }
            }
            task.scores[row * SPAN_TOKENS + keys..][..TILE_TOKENS].copy_from_slice(&sums);
        }
    }
}

/// Weighted sums over tiles of f32.
pub(super) fn pv(task: PvTask<'_>) {
    let shape = task.shape;
    for key in task.keys {
        let tile = task.strip.tiles[key / TILE_TOKENS];
        let first = key % TILE_TOKENS * shape.padded_dim;
        for row in 0..task.n_rows {
            let weight = task.weights[row * SPAN_TOKENS + key];
            let sums = &mut task.sums[row * shape.padded_dim..][..shape.head_dim];
            for (dim, sum) in sums.iter_mut().enumerate() {
                *sum += weight * f32_at(tile, first + dim);
            }
        }
    }
}

pub(super) fn softmax(scores: &mut [f32], valid: Range<usize>) -> (f32, f32) {
    let seen = &scores[valid.clone()];
    if seen.is_empty() {
        scores.fill(0.0);
        return (NO_SCORE, 0.0);
    }
    let max = seen.iter().copied().fold(NO_SCORE, f32::max);
    let mut lanes = [0.0f32; TILE_TOKENS];
    for (i, score) in scores.iter_mut().enumerate() {
        *score = if valid.contains(&i) {
            (*score - max).exp2()
        } else {
            0.0
        };
        lanes[i % TILE_TOKENS] += *score;
    }
    (max, lanes.iter().sum())
}

pub(super) fn unpack_f32(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    for (i, out) in out[..shape.tile_elems()].iter_mut().enumerate() {
        *out = f32_at(tile, i);
    }
}

pub(super) fn unpack_f16(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    for (i, out) in out[..shape.tile_elems()].iter_mut().enumerate() {
        *out = f16::from_bits(u16_at(tile, i)).to_f32();
    }
}

pub(super) fn unpack_bf16(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    for (i, out) in out[..shape.tile_elems()].iter_mut().enumerate() {
        *out = bf16::from_bits(u16_at(tile, i)).to_f32();
    }
}

pub(super) fn unpack_q8_k(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let (scales, elems) = tile.split_at(shape.scale_bytes);
    for (i, out) in out[..TILE_TOKENS * shape.head_dim].iter_mut().enumerate() {
        let (dim, slot) = (i / TILE_TOKENS, i % TILE_TOKENS);
        let scale = f16::from_bits(u16_at(scales, dim / Q8_DIMS * TILE_TOKENS + slot));
        *out = f32::from(elems[i].cast_signed()) * scale.to_f32();
    }
}

pub(super) fn unpack_q8_v(shape: &TileShape, tile: &[u8], out: &mut [f32]) {
    let (scales, elems) = tile.split_at(shape.scale_bytes);
    for (i, out) in out[..shape.tile_elems()].iter_mut().enumerate() {
        let (slot, dim) = (i / shape.padded_dim, i % shape.padded_dim);
        let scale = f16::from_bits(u16_at(scales, slot * shape.scale_blocks + dim / Q8_DIMS));
        *out = f32::from(elems[i].cast_signed()) * scale.to_f32();
    }
}
