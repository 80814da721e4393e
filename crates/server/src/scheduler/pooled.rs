//! Embeddings: tasks that read a text and write nothing. What passes hand over to them and others.

use std::sync::Arc;

use millrace_runtime::{Embedder, Embedding, ItemRows, Pooling, StepOutput, StepShape, StepSink};

use super::scores::ScoredRows;

/// An embedding that a task makes instead of an answer.
pub(super) struct EmbeddingTask {
    embedder: Arc<Embedder>,
    pooling: Pooling,
    /// Whether it stays as it was pooled, not of length 1.
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

    /// Begins again: the text is computed again from its first token.
    pub(super) fn restart(&mut self) {
        self.so_far = self.embedder.begin(self.pooling);
    }

    /// Takes the next tokens' rows of the last hidden state.
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

/// What a pass hands over: logits, scores of prompts, and of the hidden states the last, which alone is pooled.
pub(super) struct PassOutput {
    logits: StepOutput,
    /// By item: rows that are scored and not kept.
    scored: Vec<Option<ScoredRows>>,
    vocab_size: usize,
    last_state: usize,
    /// By item, `[n_tokens, d_model]`.
    states: Vec<Vec<f32>>,
}

impl PassOutput {
    /// Of a model of so many layers.
    pub(super) fn new(n_layers: usize) -> PassOutput {
        PassOutput {
            logits: StepOutput::default(),
            scored: Vec::new(),
            vocab_size: 0,
            last_state: n_layers,
            states: Vec::new(),
        }
    }

    /// What the next pass has to score, by item.
    pub(super) fn score(&mut self, scored: Vec<Option<ScoredRows>>) {
        self.scored = scored;
    }

    /// What was scored of an item.
    pub(super) fn take_scored(&mut self, item: usize) -> Option<ScoredRows> {
        self.scored.get_mut(item)?.take()
    }

    /// Rows of logits of an item; of one that is scored the last.
    pub(super) fn logits(&self, item: usize) -> &[f32] {
        self.logits.logits(item)
    }

    /// Rows of what enters the head, of an item that asked.
    pub(super) fn head_input(&self, item: usize) -> &[f32] {
        self.logits.head_input(item)
    }

    /// Rows of the last hidden state of an item that asked.
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
