//! Collected results of a step.

use std::ops::Range;

use super::{ItemRows, StepShape, StepSink};

/// Collects the results of a step, by batch item. Reused between steps, it keeps its memory; each step
/// replaces its contents.
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    vocab_size: usize,
    d_model: usize,
    logits: Vec<f32>,
    /// Elements of `logits` that belong to each item.
    ranges: Vec<Range<usize>>,
    /// By item, then by hidden state: `[n_tokens, d_model]`.
    hidden: Vec<Vec<Vec<f32>>>,
    /// By item: `[n_tokens, d_model]`.
    head_input: Vec<Vec<f32>>,
}

impl StepOutput {
    /// Logits of item `item`: `[n_rows, vocab]`, row-major; `n_rows` is 0, 1 or its token count.
    pub fn logits(&self, item: usize) -> &[f32] {
        &self.logits[self.ranges[item].clone()]
    }

    /// Hidden states of item `item`, if requested: `[n_layers + 1]` of `[n_tokens, d_model]`; the
    /// first is the embeddings as they enter the first block.
    pub fn hidden(&self, item: usize) -> &[Vec<f32>] {
        &self.hidden[item]
    }

    /// The head's input for item `item`, if requested: `[n_tokens, d_model]`.
    pub fn head_input(&self, item: usize) -> &[f32] {
        &self.head_input[item]
    }

    /// Adds a row of logits to the only item of a step, all of one value.
    pub(crate) fn add_row(&mut self, width: usize, value: f32) -> &mut [f32] {
        let start = self.logits.len();
        self.logits.resize(start + width, value);
        self.ranges[0] = start..start + width;
        &mut self.logits[start..]
    }

    /// Elements of a logit row.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Elements of a hidden-state row.
    pub fn d_model(&self) -> usize {
        self.d_model
    }
}

impl StepSink for StepOutput {
    fn begin(&mut self, shape: StepShape) {
        self.vocab_size = shape.vocab_size;
        self.d_model = shape.d_model;
        self.logits.clear();
        self.ranges.clear();
        self.ranges.resize(shape.n_items, 0..0);
        self.hidden.clear();
        self.hidden.resize(shape.n_items, Vec::new());
        self.head_input.iter_mut().for_each(Vec::clear);
        self.head_input.resize(shape.n_items, Vec::new());
    }

    fn logits(&mut self, rows: ItemRows<'_>) {
        let range = &mut self.ranges[rows.item];
        if range.start == range.end {
            *range = self.logits.len()..self.logits.len();
        }
        self.logits.extend_from_slice(rows.data);
        range.end = self.logits.len();
    }

    fn hidden(&mut self, index: usize, rows: ItemRows<'_>) {
        let states = &mut self.hidden[rows.item];
        if states.len() <= index {
            states.resize(index + 1, Vec::new());
        }
        states[index].extend_from_slice(rows.data);
    }

    fn head_input(&mut self, rows: ItemRows<'_>) {
        self.head_input[rows.item].extend_from_slice(rows.data);
    }
}
