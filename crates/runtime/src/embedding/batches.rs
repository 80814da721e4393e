//! Many texts at once: those of like length share a pass.

use super::{Embedder, Embedding, Pooling};
use crate::Error;
use crate::engine::{BatchItem, Engine, ItemRows, LogitsFor, StepSink};
use crate::sequences::SeqId;

impl Embedder {
    /// Embeddings of the tokens of texts, each as from [`embed`](Embedder::embed). `done` gets the index of a text and
    /// its embedding, the longest text first.
    ///
    /// # Errors
    /// Before any work: a text without tokens, or with more than the context holds. The errors of a step, and of `done`.
    pub fn embed_all(
        &self,
        engine: &mut dyn Engine,
        texts: &[Vec<u32>],
        pooling: Pooling,
        done: &mut dyn FnMut(usize, Vec<f32>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.pool_all(engine, texts, pooling, &mut |index, embedding| {
            done(index, embedding.finish()?)
        })
    }

    /// The same with the pooled rows, before they are scaled to length 1.
    ///
    /// # Errors
    /// As [`embed_all`](Embedder::embed_all).
    pub fn pool_all(
        &self,
        engine: &mut dyn Engine,
        texts: &[Vec<u32>],
        pooling: Pooling,
        done: &mut dyn FnMut(usize, Embedding) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for text in texts {
            engine.check_context(text.len(), 0)?;
            if text.is_empty() {
                return Err(Error::EmptyPrompt);
            }
        }
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(texts[*index].len()));
        let limits = engine.limits();
        let mut rest = &order[..];
        while !rest.is_empty() {
            let n = fitting(rest, texts, (limits.max_sequences, limits.max_chunk));
            let (batch, later) = rest.split_at(n);
            for (index, embedding) in batch
                .iter()
                .zip(self.together(engine, batch, texts, pooling)?)
            {
                done(*index, embedding)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// The embeddings of a batch, in one step.
    fn together(
        &self,
        engine: &mut dyn Engine,
        batch: &[usize],
        texts: &[Vec<u32>],
        pooling: Pooling,
    ) -> Result<Vec<Embedding>, Error> {
        let mut seqs: Vec<SeqId> = Vec::with_capacity(batch.len());
        let mut sink = LastStates {
            embedder: self,
            embeddings: batch.iter().map(|_| self.begin(pooling)).collect(),
        };
        let mut compute = |engine: &mut dyn Engine, seqs: &mut Vec<SeqId>| -> Result<(), Error> {
            for _ in batch {
                seqs.push(engine.create()?);
            }
            let items = batch.iter().zip(&*seqs).map(|(index, seq)| BatchItem {
                hidden: true,
                ..BatchItem::new(*seq, &texts[*index], LogitsFor::None)
            });
            let items: Vec<BatchItem<'_>> = items.collect();
            engine.step(&items, &mut sink)
        };
        let computed = compute(engine, &mut seqs);
        for seq in seqs {
            engine.release(seq)?;
        }
        computed?;
        Ok(sink.embeddings)
    }
}

/// How many of the first texts share a pass: at least one, and no more tokens than fit a pass.
fn fitting(order: &[usize], texts: &[Vec<u32>], (max_texts, max_tokens): (usize, usize)) -> usize {
    let mut n_tokens = 0usize;
    let fits = |index: &&usize| {
        n_tokens = n_tokens.saturating_add(texts[**index].len());
        n_tokens <= max_tokens
    };
    order
        .iter()
        .take_while(fits)
        .count()
        .clamp(1, max_texts.max(1))
}

/// Pools rows of the last hidden state of several texts.
struct LastStates<'a> {
    embedder: &'a Embedder,
    embeddings: Vec<Embedding>,
}

impl StepSink for LastStates<'_> {
    fn logits(&mut self, _: ItemRows<'_>) {}

    fn hidden(&mut self, index: usize, rows: ItemRows<'_>) {
        if index == self.embedder.state() {
            self.embedder
                .push(&mut self.embeddings[rows.item], rows.data);
        }
    }
}
