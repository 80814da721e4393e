//! From a chunk's rows to the items of a step.

use super::SpanSource;
use crate::engine::{BatchItem, ItemRows, StepSink};
use crate::execute::{Chunk, PassSink};

/// Tells the step's sink which item and tokens a chunk's rows belong to.
pub(super) struct ChunkSink<'a> {
    pub(super) chunk: &'a Chunk,
    pub(super) sources: &'a [SpanSource],
    pub(super) batch: &'a [BatchItem<'a>],
    /// Rows of logits handed over so far.
    pub(super) n_rows: usize,
    pub(super) sink: &'a mut dyn StepSink,
}

impl ChunkSink<'_> {
    /// Passes each item that requests a value its rows, out of those of the whole chunk.
    fn hand_over(
        &mut self,
        rows: &[f32],
        asks: impl Fn(&BatchItem<'_>) -> bool,
        take: impl Fn(&mut dyn StepSink, ItemRows<'_>),
    ) {
        let width = rows.len() / self.chunk.tokens.len();
        for (span, source) in self.chunk.spans.iter().zip(self.sources) {
            if source.is_replay || !asks(&self.batch[source.item]) {
                continue;
            }
            let rows = ItemRows {
                item: source.item,
                first_token: source.first_token,
                data: &rows[span.rows.start * width..span.rows.end * width],
            };
            take(self.sink, rows);
        }
    }
}

impl PassSink for ChunkSink<'_> {
    fn hidden(&mut self, index: usize, rows: &[f32]) {
        self.hand_over(
            rows,
            |item| item.hidden,
            |sink, rows| sink.hidden(index, rows),
        );
    }

    fn head_input(&mut self, rows: &[f32]) {
        self.hand_over(
            rows,
            |item| item.head_input,
            |sink, rows| sink.head_input(rows),
        );
    }

    fn logits(&mut self, rows: &[f32], width: usize) {
        // A span's requested rows are one range: all of it, or its last row.
        let mut rest = rows;
        for (span, source) in self.chunk.spans.iter().zip(self.sources) {
            let wanted = &self.chunk.logit_rows[self.n_rows..];
            let n_rows = wanted.iter().take(rest.len() / width);
            let n_rows = n_rows.take_while(|row| span.rows.contains(row)).count();
            if n_rows == 0 {
                continue;
            }
            let (data, after) = rest.split_at(n_rows * width);
            self.sink.logits(ItemRows {
                item: source.item,
                first_token: source.first_token + (wanted[0] - span.rows.start),
                data,
            });
            self.n_rows += n_rows;
            rest = after;
        }
    }
}
