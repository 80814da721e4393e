//! Heads of any width for kernels that support multiples of 8, and the memory of a pass over an image.

use millrace_model::VisionConfig;

use super::encode::CHUNK_ROWS;
use crate::kv::PAGE_TOKENS;

/// Attention's kernels support heads of a multiple of this.
const HEAD_UNIT: usize = 8;

/// Elements of a head, padded for attention.
pub(super) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(HEAD_UNIT)
}

/// Copies heads from rows in which they have `from.1` elements into rows in which they have `to.1`: the smaller number of
/// elements of each head.
pub(super) fn copy_heads(from: (&[f32], usize), to: (&mut [f32], usize)) {
    let n = from.1.min(to.1);
    let heads = from.0.chunks_exact(from.1);
    for (from, to) in heads.zip(to.0.chunks_exact_mut(to.1)) {
        to[..n].copy_from_slice(&from[..n]);
    }
}

/// Bytes of a pass's values, over an image of `n_tokens` rows at most.
pub(super) fn work_bytes(config: &VisionConfig, n_tokens: usize) -> u64 {
    let n_tokens = n_tokens.min(config.n_tokens);
    let n_patches = match config.grid {
        Some(grid) => n_tokens * grid.merge * grid.merge,
        None => config.n_patches(),
    };
    // Each window has separate pages, the last of which may be nearly empty.
    let n = match &config.windows {
        Some(_) => n_patches * 2,
        None => n_patches.next_multiple_of(PAGE_TOKENS),
    };
    let width = config.n_heads * padded(config.head_dim());
    let pixels = 2 * n_patches * config.patch_elems();
    let rows = n * (2 * config.d_model + 4 * width);
    let widest = config.d_ff.max(width);
    // Gates and inputs within bounds, of vision encoders that have them.
    let chunks = 2 * CHUNK_ROWS * (2 * width + widest + 2 * config.d_ff);
    // Positions stretched to the image, a copy of the blocks' output, and merged patches in progress.
    let merged = config.grid.map_or(0, |grid| {
        let merged = config.d_model * grid.merge * grid.merge + config.d_text;
        let summands = (1 + config.deepstack.len()) * n_tokens * config.d_text;
        2 * n * config.d_model + summands + CHUNK_ROWS * (2 * merged + config.d_text)
    });
    (size_of::<f32>() * (pixels + rows + chunks + merged)) as u64
}
