//! Products ready to run, and the groups of rows they are cut into.

use super::activations::ActivationView;
use super::ahead::Ahead;
use super::experts::RowUse;
use super::panel::{
    DIRECT_TOKENS, DirectFn, GROUP_PANELS, GROUP_ROWS, Input, PANEL_ROWS, PanelLayout, PanelSource,
    RowsFn,
};
use super::{Multiplication, WeightMatrix};
use crate::pool::DisjointMut;
use crate::table::MatmulKernel;
use millrace_quant::DType;
use std::ops::Range;

/// Columns of a chunk that integer kernels multiply directly: no panel has to fit a cache.
const DIRECT_CHUNK_K: usize = 2048;

/// How far ahead of their use weights are fetched, a little more than memory latency times bandwidth.
const AHEAD_BYTES: usize = 16 * 1024;

/// As [`AHEAD_BYTES`], for superblocks times one token, which are mostly read row by row. They go to the nearest cache, which
/// holds a piece or two.
const ROWS_AHEAD_BYTES: usize = 8 * 1024;

/// Most tokens for which plain numbers are multiplied in place, if their panels would be copies. For so few, the copy takes
/// more time than it saves. On a Zen 4, panels of f32 cost 30 % of a product with 12 tokens, 6 % with 66.
const COPIES_DIRECT_TOKENS: usize = 48;

/// Most tokens that are multiplied without panels.
fn direct_tokens(dtype: DType, layout: PanelLayout) -> usize {
    match (dtype, layout) {
        (DType::F32, PanelLayout::F32Columns | PanelLayout::F32Eights)
        | (DType::BF16, PanelLayout::Bf16Columns) => COPIES_DIRECT_TOKENS,
        _ => DIRECT_TOKENS,
    }
}

/// A product ready to run.
pub(super) struct MatmulJob<'a> {
    pub(super) kernel: &'static MatmulKernel,
    pub(super) weight: WeightMatrix<'a>,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: DisjointMut<'a, f32>,
    pub(super) x: ActivationView,
    /// Tokens.
    pub(super) m: usize,
    /// The row of the result of each token; `None`: they follow one another.
    pub(super) out_rows: Option<&'a [RowUse]>,
    /// Number of its first group among the groups of all jobs.
    pub(super) first_group: usize,
    /// Set when so few tokens are multiplied directly.
    pub(super) direct: Option<DirectFn>,
    /// Set when there is one token and a rows function.
    pub(super) rows: Option<RowsFn>,
    /// Columns of a chunk.
    pub(super) chunk_k: usize,
    /// Bytes of a row of blocks: a matrix row, or a row of tiles.
    pub(super) row_bytes: usize,
    /// Bytes of a chunk of such a row.
    pub(super) chunk_bytes: usize,
    /// Bytes of sixteen rows of a chunk.
    pub(super) piece_bytes: usize,
    /// Pieces between the one at work and the one being fetched.
    pub(super) pieces_ahead: usize,
}

/// Operands of a job, and where its result goes.
pub(super) struct JobOperands<'a> {
    pub(super) weight: WeightMatrix<'a>,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: DisjointMut<'a, f32>,
    pub(super) out_rows: Option<&'a [RowUse]>,
    pub(super) x: ActivationView,
    pub(super) m: usize,
}

impl<'a> JobOperands<'a> {
    /// Operands of a product whose result is `[m, n]`.
    pub(super) fn of(
        product: &'a mut Multiplication<'_>,
        x: ActivationView,
        m: usize,
    ) -> JobOperands<'a> {
        JobOperands {
            weight: product.weight,
            bias: product.bias,
            out: DisjointMut::new(product.out),
            out_rows: None,
            x,
            m,
        }
    }
}

impl<'a> MatmulJob<'a> {
    pub(super) fn new(
        kernel: &'static MatmulKernel,
        operands: JobOperands<'a>,
        first_group: usize,
    ) -> MatmulJob<'a> {
        let JobOperands {
            weight,
            bias,
            out,
            out_rows,
            x,
            m,
        } = operands;
        let (dtype, layout) = (kernel.dtype, kernel.layout);
        let direct = kernel.direct;
        let direct = direct.filter(|_| m <= direct_tokens(dtype, layout));
        let is_integer = matches!(layout.input(), Input::I8x32 | Input::I8x256);
        let chunk_k = if direct.is_some() && is_integer {
            DIRECT_CHUNK_K
        } else {
            layout.chunk_k()
        };
        let to_bytes = |k: usize| k / dtype.block_elems() * dtype.block_bytes();
        let piece_bytes = to_bytes(chunk_k) * PANEL_ROWS / dtype.block_rows();
        let ahead_bytes = if m == 1 && layout.input() == Input::I8x256 {
            ROWS_AHEAD_BYTES
        } else {
            AHEAD_BYTES
        };
        MatmulJob {
            kernel,
            weight,
            bias,
            out,
            out_rows,
            x,
            m,
            first_group,
            direct,
            rows: kernel.rows.filter(|_| m == 1 && weight.k > 0),
            chunk_k,
            row_bytes: to_bytes(weight.k),
            chunk_bytes: to_bytes(chunk_k),
            piece_bytes,
            pieces_ahead: ahead_bytes.div_ceil(piece_bytes),
        }
    }

    /// The job that group `index` of all jobs' groups belongs to.
    pub(super) fn of_group<'b>(
        jobs: &'b [Option<MatmulJob<'a>>],
        index: usize,
    ) -> Option<&'b MatmulJob<'a>> {
        // Jobs come first, in the order of their groups.
        let begins =
            |job: &Option<MatmulJob<'_>>| job.as_ref().is_some_and(|job| job.first_group <= index);
        jobs[..jobs.partition_point(begins)].last()?.as_ref()
    }

    /// The row of the result of a token.
    pub(super) fn out_row(&self, token: usize) -> usize {
        self.out_rows.map_or(token, |rows| rows[token].out_row)
    }

    /// Chunks of columns.
    pub(super) fn n_chunks(&self) -> usize {
        self.weight.k.div_ceil(self.chunk_k)
    }

    /// Number after that of its last group.
    pub(super) fn end_group(&self) -> usize {
        self.first_group + self.weight.n.div_ceil(GROUP_ROWS)
    }
}

// SAFETY: the view's pointer is only read, and the data it points to is borrowed for as long as the job.
unsafe impl Sync for MatmulJob<'_> {}

/// A group of rows of one job.
pub(super) struct RowGroup<'a> {
    pub(super) job: &'a MatmulJob<'a>,
    pub(super) rows: Range<usize>,
    /// Where the panels start: the group's own rows, or the last sixteen of the matrix where fewer are
    /// left.
    pub(super) starts: [usize; GROUP_PANELS],
    pub(super) n_panels: usize,
}

impl<'a> RowGroup<'a> {
    /// Group `index` of all jobs' groups, if it exists.
    pub(super) fn find(jobs: &'a [Option<MatmulJob<'a>>], index: usize) -> Option<RowGroup<'a>> {
        let job = MatmulJob::of_group(jobs, index)?;
        let n = job.weight.n;
        let first = (index - job.first_group) * GROUP_ROWS;
        if first >= n {
            return None;
        }
        let rows = first..n.min(first + GROUP_ROWS);
        let last = n.saturating_sub(PANEL_ROWS);
        let starts = [first.min(last), (first + PANEL_ROWS).min(last)];
        let n_panels = rows.len().div_ceil(PANEL_ROWS);
        Some(RowGroup {
            job,
            rows,
            starts,
            n_panels,
        })
    }

    /// Pieces of the group: a panel of each chunk of columns, the chunk's panels one after the other.
    pub(super) fn n_pieces(&self) -> usize {
        self.job.n_chunks() * self.n_panels
    }

    /// Location of piece `index`.
    pub(super) fn piece(&self, index: usize) -> PanelSource {
        let job = self.job;
        let dtype = job.weight.dtype;
        // At most two panels: no division.
        let (chunk, panel) = if self.n_panels == 1 {
            (index, 0)
        } else {
            (index / 2, index % 2)
        };
        let start = self.starts[panel];
        let (row, tile_row, stride) = match dtype.block_rows() {
            1 => (start, 0, job.row_bytes),
            rows => (start / rows, start % rows, dtype.block_bytes()),
        };
        PanelSource {
            dtype,
            base: job.weight.bytes[row * job.row_bytes + chunk * job.chunk_bytes..].as_ptr(),
            stride,
            tile_row,
            k: job.chunk_k.min(job.weight.k - chunk * job.chunk_k),
            ahead: Ahead::NONE,
        }
    }

    /// The bytes of piece `index`, counted on into the group that follows, to be fetched.
    pub(super) fn ahead_of(&self, index: usize, next: Option<&RowGroup<'_>>) -> Ahead {
        if index < self.n_pieces() {
            return self.ahead(index);
        }
        let index = index - self.n_pieces();
        next.filter(|next| index < next.n_pieces())
            .map_or(Ahead::NONE, |next| next.ahead(index))
    }

    /// The bytes of piece `index`, to be fetched.
    pub(super) fn ahead(&self, index: usize) -> Ahead {
        let piece = self.piece(index);
        let dtype = self.job.weight.dtype;
        if dtype.block_rows() == 1 {
            // A shorter last chunk fetches a little of the next rows too.
            return Ahead::new(piece.base, piece.stride, self.job.chunk_bytes);
        }
        // The panels of a tile share its bytes: each fetches its part.
        let part = dtype.block_bytes() * PANEL_ROWS / dtype.block_rows();
        let first = piece.base.wrapping_add(piece.tile_row / PANEL_ROWS * part);
        Ahead::new(first, piece.stride, part)
    }
}
