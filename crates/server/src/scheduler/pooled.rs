//! Embeddings: tasks that read a text and write nothing. Also the results that a pass hands to these and other tasks.

use std::sync::Arc;

use millrace_runtime::{Embedder, Embedding, ItemRows, Pooling, StepOutput, StepShape, StepSink};

use super::scores::ScoredRows;

/// An embedding that a task makes instead of an answer.
pub(super) struct EmbeddingTask {
    embedder: Arc<Embedder>,
    pooling: Pooling,
    /// Whether it stays unscaled instead of being scaled to length 1.
    as_pooled: bool,
    so_far: Embedding,
}

impl EmbeddingTask {
    pub(super) fn new(embedder: Arc<Embedder>, pooling: Pooling, as_pooled: bool) -> EmbeddingTask {
        EmbeddingTask {
            as_pooled,
            so_far: embedder.begin(pooling),
            embedder,
            pooling,
        }
    }

    /// Restarts: the text is computed again from its first token.
    pub(super) fn restart(&mut self) {
        self.so_far = self.embedder.begin(self.pooling);
    }

    /// Adds the next tokens' rows of the last hidden state.
    pub(super) fn push(&mut self, rows: &[f32]) {
        self.embedder.push(&mut self.so_far, rows);
    }

    pub(super) fn finish(&self) -> Result<Vec<f32>, String> {
        let finished = match self.as_pooled {
            true => self
                .so_far
                .row()
                .map(|row| row.iter().map(|x| *x as f32).collect()),
            false => self.so_far.finish(),
        };
        finished.map_err(|error| error.to_string())
    }
}

/// Results of a pass: logits, scores of prompts, and the last of the hidden states, which alone is pooled.
pub(super) struct PassOutput {
    logits: StepOutput,
    /// For each item: rows that are scored and not kept.
    scored: Vec<Option<ScoredRows>>,
    vocab_size: usize,
    last_state: usize,
    /// For each item, `[n_tokens, d_model]`.
    states: Vec<Vec<f32>>,
}

impl PassOutput {
    /// For a model of this many layers.
    pub(super) fn new(n_layers: usize) -> PassOutput {
        PassOutput {
            logits: StepOutput::default(),
            scored: Vec::new(),
            vocab_size: 0,
            last_state: n_layers,
            states: Vec::new(),
        }
    }

    /// Sets the rows that the next pass must score, for each item.
    pub(super) fn score(&mut self, scored: Vec<Option<ScoredRows>>) {
        self.scored = scored;
    }

    /// Takes the scores of an item.
    pub(super) fn take_scored(&mut self, item: usize) -> Option<ScoredRows> {
        self.scored.get_mut(item)?.take()
    }

    /// Rows of logits of an item; for a scored item only the last row.
    pub(super) fn logits(&self, item: usize) -> &[f32] {
        self.logits.logits(item)
    }

    /// Rows of the head's input, for an item that requested them.
    pub(super) fn head_input(&self, item: usize) -> &[f32] {
        self.logits.head_input(item)
    }

    /// Rows of the last hidden state, for an item that requested them.
    pub(super) fn state(&self, item: usize) -> &[f32] {
        &self.states[item]
    }
}

impl StepSink for PassOutput {
    fn begin(&mut self, shape: StepShape) {
        self.logits.begin(shape);
        self.vocab_size = shape.vocab_size;
        self.states.clear();
        self.states.resize(shape.n_items, Vec::new());
    }

    fn logits(&mut self, rows: ItemRows<'_>) {
        let Some(Some(scored)) = self.scored.get_mut(rows.item) else {
            return StepSink::logits(&mut self.logits, rows);
        };
        if let Some(data) = scored.take(rows.first_token, rows.data, self.vocab_size) {
            StepSink::logits(&mut self.logits, ItemRows { data, ..rows });
        }
    }

    fn hidden(&mut self, index: usize, rows: ItemRows<'_>) {
        if index == self.last_state {
            self.states[rows.item].extend_from_slice(rows.data);
        }
    }

    fn head_input(&mut self, rows: ItemRows<'_>) {
        StepSink::head_input(&mut self.logits, rows);
    }
}
