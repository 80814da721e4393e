//! Attention over the paged cache: causal, except for blocks whose rows see each other; grouped
//! query heads, sliding windows, ragged batches.
//!
//! The work is cut into *units*: a block of neighbouring tokens of one run with all query heads
//! that share one KV head. So each key and value is read and converted once for all of them. A unit
//! walks the cache in *spans* of 256 positions. A span yields, for each query row, the maximum
//! score, the sum of exponentials and the weighted sum of values. Spans are merged in ascending
//! order with the rescaling of an online softmax.
//!
//! # Batch invariance
//!
//! Spans begin at absolute positions (multiples of 256), and three orders are fixed. A score is one chain of fused multiply-adds over
//! ascending dimensions. An output dimension is one chain over ascending positions. Sums of exponentials are kept by lanes of absolute
//! position, and a masked position contributes an exact zero. (With bf16 tiles, [`crate::Level::Amx`] on a cache of bf16, sums run over
//! groups of 32 dimensions and of 16 positions instead, for any number of rows.) These orders depend neither on the grouping of tokens into
//! units nor on the number of threads that compute spans.

mod leaves;
mod plan;
mod scalar;
mod scratch;
mod softmax;
mod span;
#[cfg(test)]
mod tests;

pub use scratch::AttentionScratch;
pub use softmax::softmax;

pub(crate) use leaves::{Leaves, PairLeaves, PvTask, QkTask, TileShape, TileStrip};

use crate::cpu::Cpu;
use crate::elementwise::ElementwiseKernels;
use crate::error::Error;
use crate::kv::{KvLayout, KvRun};
use crate::pool::DisjointMut;
use std::ops::Range;

/// Positions of a span. Sized so that a block's scores stay in the second-level cache and a span's
/// keys and values are a few microseconds of memory traffic.
pub(crate) const SPAN_TOKENS: usize = 256;

/// Positions that kernels process at a time: four tiles.
pub(crate) const STRIP_TOKENS: usize = 64;

/// Query rows of a unit, at most: enough to make converting a tile negligible.
pub(crate) const UNIT_ROWS: usize = 64;

/// The maximum of no scores at all. Finite, so that differences with it are not NaN, and below any
/// score, so that its weight is exactly zero.
pub(crate) const NO_SCORE: f32 = -1e30;

/// Shape of one layer's attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads, a multiple of `n_kv_heads`; heads `i * n_heads / n_kv_heads` onwards share KV
    /// head `i`.
    pub n_heads: usize,
    /// KV heads.
    pub n_kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// Factor on the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Positions a token sees, itself included; `None` for all.
    pub window: Option<usize>,
    /// Whether windows are chunks, which begin at multiples of their length: a token sees the tokens of its chunk up to
    /// and including itself.
    pub chunked: bool,
    /// With `Some(c)`, a scaled score `s` becomes `c · tanh(s / c)`.
    pub softcap: Option<f32>,
}

impl AttentionShape {
    /// Checks the shape, and that it fits the cache's layout.
    ///
    /// # Errors
    /// [`Error::Geometry`] naming the number that does not fit.
    pub fn check(&self, layout: &KvLayout) -> Result<(), Error> {
        layout.check()?;
        let geometry = |what, found, needs: String| Err(Error::Geometry { what, found, needs });
        if self.n_kv_heads != layout.n_kv_heads {
            let needs = format!("the cache's {}", layout.n_kv_heads);
            return geometry("n_kv_heads", self.n_kv_heads, needs);
        }
        if self.head_dim != layout.head_dim {
            return geometry(
                "head_dim",
                self.head_dim,
                format!("the cache's {}", layout.head_dim),
            );
        }
        if self.n_heads == 0 || !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let needs = format!("a multiple of n_kv_heads ({})", self.n_kv_heads);
            return geometry("n_heads", self.n_heads, needs);
        }
        if self.window == Some(0) || self.chunked && self.window.is_none() {
            return geometry("window", 0, "at least one position".to_owned());
        }
        Ok(())
    }

    /// Query heads that share a KV head.
    pub(crate) fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// First position that a token at `pos` sees.
    pub(crate) fn first_seen(&self, pos: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) if self.chunked => pos - pos % window,
            Some(window) => (pos + 1).saturating_sub(window),
        }
    }
}

/// Inputs of attention.
#[derive(Clone, Copy)]
pub struct AttentionInput<'a> {
    /// Queries, `[n_rows, n_heads * head_dim]` f32, row-major.
    pub q: &'a [f32],
    /// The layer's pages of K, indexed by page id; fastest when aligned to 64 bytes
    /// ([`crate::KvBuffer`]).
    pub k_pages: &'a [u8],
    /// The layer's pages of V.
    pub v_pages: &'a [u8],
    /// The sequences of the batch; their `rows` ascend and do not overlap. K and V of every
    /// position that a row sees are already in the pages ([`crate::kv_append`] comes first).
    pub runs: &'a [KvRun<'a>],
    /// Rows of the batch that see each other in both directions, such as those of an image. Each row
    /// of a block sees what a causal row would, and the rest of its block. Blocks ascend, do not
    /// overlap and lie within one run each. All of a run that began earlier may have been left out:
    /// only the end of a block matters.
    pub blocks: &'a [Range<usize>],
    /// `[n_heads]`: an extra score for each head that takes part in softmax but has no value.
    pub sinks: Option<&'a [f32]>,
    /// `[n_heads]`: the loss of each head's scores per position of distance (ALiBi).
    pub slopes: Option<&'a [f32]>,
}

impl AttentionInput<'_> {
    /// One past the last row that `row` sees, in rows of the batch.
    pub(crate) fn end_seen(&self, row: usize) -> usize {
        let after = self.blocks.partition_point(|block| block.end <= row);
        match self.blocks.get(after) {
            Some(block) if block.contains(&row) => block.end,
            _ => row + 1,
        }
    }
}

/// For each row of each run, the softmax-weighted mean of the values it sees:
/// `out[row, head] = Σ_t softmax_t(scale · q[row, head] · k[t]) v[t]`.
///
/// The positions `t` run from `pos - window + 1` to `pos`, or to the end of the row's block. The shape's soft bound of scores and the
/// heads' sinks and slopes apply, if any. `out` is `[n_rows, n_heads * head_dim]`; rows of no run are left alone. All arithmetic is f32
/// whatever the cache's type, except for a cache of bf16 at [`crate::Level::Amx`]. There scaled queries and weights are rounded to bf16,
/// and sums are f32. After the first calls of the largest size nothing is allocated.
///
/// # Panics
/// If the shape does not fit the layout ([`AttentionShape::check`]), `q` and `out` differ in length, sinks or slopes are not one for each
/// head, or runs or blocks overlap. Also if a run's pages do not cover the positions that its rows see, or lie outside the pages given.
pub fn attention(
    cpu: &Cpu,
    shape: &AttentionShape,
    layout: &KvLayout,
    input: &AttentionInput<'_>,
    scratch: &mut AttentionScratch,
    out: &mut [f32],
) {
    let leaves = Leaves::for_level(cpu.level());
    attention_by(leaves, cpu, shape, layout, input, scratch, out);
}

/// As [`attention`], with kernels that the CPU has.
fn attention_by(
    leaves: &Leaves,
    cpu: &Cpu,
    shape: &AttentionShape,
    layout: &KvLayout,
    input: &AttentionInput<'_>,
    scratch: &mut AttentionScratch,
    out: &mut [f32],
) {
    shape
        .check(layout)
        .expect("a shape that was checked when the model was loaded");
    let row_elems = shape.n_heads * shape.head_dim;
    assert_eq!(input.q.len(), out.len(), "as many elements of q as of out");
    assert!(
        out.len().is_multiple_of(row_elems),
        "{} elements in rows of {row_elems}",
        out.len()
    );
    let per_head = [input.sinks, input.slopes];
    assert!(
        per_head
            .iter()
            .flatten()
            .all(|all| all.len() == shape.n_heads),
        "a sink and a slope for each of {} heads",
        shape.n_heads
    );
    check_runs(shape, layout, input.runs, out.len() / row_elems);
    check_blocks(input);
    let elementwise = ElementwiseKernels::for_level(cpu.level());
    let walk = span::SpanWalk::new(shape, layout, input, (leaves, elementwise));
    let n_threads = cpu.pool().n_threads();
    let shared = scratch.prepare(shape, layout, input, n_threads);
    let out = DisjointMut::new(out);
    cpu.pool().run(shared.n_chunks(), &|chunk| {
        plan::run_chunk(&walk, &shared, chunk, &out)
    });
}

/// The assertions on blocks that [`attention`] documents.
fn check_blocks(input: &AttentionInput<'_>) {
    let mut next_row = 0;
    for block in input.blocks {
        let within = |run: &KvRun<'_>| run.rows.start <= block.start && block.end <= run.rows.end;
        assert!(
            block.start >= next_row && input.runs.iter().any(within),
            "rows {block:?} are no block of one run after row {next_row}"
        );
        next_row = block.end;
    }
}

/// The assertions on runs that [`attention`] documents.
fn check_runs(shape: &AttentionShape, layout: &KvLayout, runs: &[KvRun<'_>], n_rows: usize) {
    let mut next_row = 0;
    for run in runs {
        run.assert_covered(layout, n_rows);
        assert!(
            run.rows.start >= next_row,
            "rows {:?} come after row {next_row}",
            run.rows
        );
        next_row = run.rows.end;
        let seen = shape.first_seen(run.first_pos);
        assert!(
            run.pages_first_pos <= seen,
            "position {} sees {seen}, the pages start at {}",
            run.first_pos,
            run.pages_first_pos
        );
    }
}
