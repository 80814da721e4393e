//! Heads of any width for kernels that take multiples of 8, and what a pass over a picture takes.

use millrace_model::VisionConfig;

use super::encode::CHUNK_ROWS;
use crate::kv::PAGE_TOKENS;

/// Attention's kernels take heads of a multiple of this.
const HEAD_UNIT: usize = 8;

/// Elements of a head as attention takes it.
pub(super) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(HEAD_UNIT)
}

/// Copies heads from rows in which they have `from.1` elements into rows in which they have `to.1`: as many as both have.
pub(super) fn copy_heads(from: (&[f32], usize), to: (&mut [f32], usize)) {
    let n = from.1.min(to.1);
    let heads = from.0.chunks_exact(from.1);
    for (from, to) in heads.zip(to.0.chunks_exact_mut(to.1)) {
        to[..n].copy_from_slice(&from[..n]);
    }
}

/// Bytes of a pass's values.
pub(super) fn work_bytes(config: &VisionConfig) -> u64 {
    let n = config.n_patches().next_multiple_of(PAGE_TOKENS);
    let width = config.n_heads * padded(config.head_dim());
    let pixels = 2 * config.n_patches() * config.patch_elems();
    let rows = n * (2 * config.d_model + 4 * width);
    let widest = config.d_ff.max(width);
    let chunks = 2 * CHUNK_ROWS * (2 * width + widest);
    (size_of::<f32>() * (pixels + rows + chunks)) as u64
}
