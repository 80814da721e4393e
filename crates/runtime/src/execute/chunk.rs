//! Input of a pass: rows of tokens by sequence, and the buffers for their values.

use std::ops::Range;
use std::sync::Arc;

use millrace_graph::AllGather;
use millrace_model::ImageSight;

use super::plan::Register;
use crate::Error;
use crate::image::planes::{PlaneRows, Positions};
use crate::image::{self, Image, ImageRows};
use crate::lora::AdaptedRows;
use crate::ranks::Communicator;
use crate::sequences::SeqId;

/// A sequence's share of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct RunSpan {
    pub(crate) seq: SeqId,
    /// Rows of the chunk.
    pub(crate) rows: std::ops::Range<usize>,
    /// Position of the first row.
    pub(crate) first_pos: usize,
    /// Whether the tokens were computed before and only their states are missing. Such a span comes before others of its sequence.
    pub(crate) is_replay: bool,
    /// Whether the states before the first row are to be copied to the sequence's slot for snapshots.
    pub(crate) takes_snapshot: bool,
}

/// The rows one pass computes: at most `max_chunk` tokens of any number of sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) tokens: Vec<u32>,
    /// The images that some rows are of, in order.
    pub(crate) images: Vec<ImageRows>,
    /// Rows of images that see each other: in layers with a window, and in the others.
    blocks: [Vec<Range<usize>>; 2],
    /// The tokens with something of the vocabulary in place of images' rows.
    pub(super) ids: Vec<u32>,
    /// Positions for RoPE; spans hold the positions in the cache.
    pub(crate) positions: Vec<u32>,
    /// Rows that have a position on each of three axes.
    pub(super) planes: Vec<PlaneRows>,
    pub(crate) spans: Vec<RunSpan>,
    /// Rows with adapters, ascending.
    pub(crate) adapted: Vec<AdaptedRows>,
    /// Rows whose logits are needed, ascending.
    pub(crate) logit_rows: Vec<usize>,
    /// Whether every hidden state is to be captured.
    pub(crate) hidden: bool,
    /// Whether the head's input is to be captured.
    pub(crate) head_input: bool,
    /// A row for each token, if the graph takes one.
    pub(crate) given: Vec<f32>,
}

impl Chunk {
    /// Empties it, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.images.clear();
        self.blocks.iter_mut().for_each(Vec::clear);
        self.ids.clear();
        self.positions.clear();
        self.planes.clear();
        self.spans.clear();
        self.adapted.clear();
        self.logit_rows.clear();
        self.hidden = false;
        self.head_input = false;
        self.given.clear();
    }

    /// Appends tokens in which no image is cut, and which [`image::check`] has passed.
    pub(crate) fn push_tokens(&mut self, tokens: &[u32], images: &[Arc<Image>]) {
        let row = self.tokens.len();
        for placed in image::placed(tokens, images, row) {
            let [in_windows, in_others] = &mut self.blocks;
            if placed.sight() != ImageSight::Before {
                in_windows.push(placed.rows.clone());
            }
            if placed.sight() == ImageSight::All {
                in_others.push(placed.rows.clone());
            }
            self.images.push(placed);
        }
        self.tokens.extend_from_slice(tokens);
        let ids = tokens.iter().map(|token| image::in_vocabulary(*token));
        self.ids.extend(ids);
    }

    /// Rows that see each other in a layer with such a window.
    pub(super) fn blocks(&self, window: Option<usize>) -> &[Range<usize>] {
        &self.blocks[usize::from(window.is_none())]
    }

    /// Says the positions of the tokens that were pushed last, which are those from `first_pos` on.
    pub(crate) fn push_positions(&mut self, first_pos: usize) {
        let n = self.tokens.len() - self.positions.len();
        let positions = first_pos..first_pos + n;
        self.positions
            .extend(positions.map(|position| position as u32));
    }

    /// The same in a model whose positions have three axes; `before` are the tokens of the sequence before the chunk.
    pub(crate) fn push_places(&mut self, before: &[u32], first_pos: usize) {
        let row = self.positions.len();
        // A sequence's spans follow each other.
        let first_row = row - (first_pos - before.len());
        let mut positions = Positions::behind(before);
        for token in &self.tokens[first_row..row] {
            positions.take(*token);
        }
        let (times, planes) = (&mut self.positions, &mut self.planes);
        positions.place(&self.tokens[row..], row, times, planes);
    }
}

/// Receives the results of a pass.
pub(crate) trait PassSink {
    /// Rows `[m, d_model]` of hidden state `index` (see [`Graph::hidden`](millrace_graph::Graph::hidden)).
    fn hidden(&mut self, index: usize, rows: &[f32]);
    /// Rows `[m, d_model]` of the head's input.
    fn head_input(&mut self, rows: &[f32]);
    /// Some of the wanted logit rows `[_, vocab]`, of `width` elements; calls come in the order of the
    /// rows.
    fn logits(&mut self, rows: &[f32], width: usize);
}

/// Scratch buffers, each `max_chunk` rows of the widest value it ever holds.
pub(super) struct PassBuffers(pub(super) Vec<Vec<f32>>);

impl PassBuffers {
    pub(super) fn rows(&self, register: Register, m: usize) -> &[f32] {
        &self.0[register.buffer][..m * register.width]
    }

    pub(super) fn rows_mut(&mut self, register: Register, m: usize) -> &mut [f32] {
        &mut self.0[register.buffer][..m * register.width]
    }

    /// Writes `out` while the other buffers can be read. A plan never reads a step's own output.
    pub(super) fn write(
        &mut self,
        out: Register,
        m: usize,
        f: impl FnOnce(&PassBuffers, &mut [f32]),
    ) {
        let mut taken = std::mem::take(&mut self.0[out.buffer]);
        f(self, &mut taken[..m * out.width]);
        self.0[out.buffer] = taken;
    }

    /// Puts a value of `m` rows together of the parts that ranks have.
    pub(super) fn gather_ranks(
        &mut self,
        ranks: &mut Communicator,
        op: &AllGather,
        (x, out, m): (Register, Register, usize),
    ) -> Result<(), Error> {
        let mut gathered = Ok(());
        self.write(out, m, |buffers, out| {
            gathered = ranks.gather(op, m, buffers.rows(x, m), out);
        });
        Ok(gathered?)
    }

    /// Keeps only `rows` (ascending) of a value, moved to the front.
    pub(super) fn gather(&mut self, register: Register, rows: &[usize]) {
        let width = register.width;
        for (to, &from) in rows.iter().enumerate() {
            self.0[register.buffer].copy_within(from * width..(from + 1) * width, to * width);
        }
    }
}
