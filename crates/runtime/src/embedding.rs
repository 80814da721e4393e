//! Embeddings: one vector for a text, pooled from what the model makes of its tokens.
//!
//! The rows pooled are the last block's output after the final norm: what the head reads, what transformers
//! calls `last_hidden_state`, and what llama.cpp pools. An engine hands the output over where an item asks
//! for [`hidden`](crate::BatchItem::hidden) states; [`Embedder`] applies the norm.

use millrace_graph::{LayerNorm, Op, RmsNorm, WeightId};

use crate::engine::{BatchItem, Engine, ItemRows, LogitsFor, StepSink};
use crate::execute::decode_vector;
use crate::{Error, LoadedModel};

/// How the rows of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The last token's, which has seen all others.
    Last,
}

impl Pooling {
    /// What a model's file says: `<architecture>.pooling_type` of a GGUF file, as llama.cpp numbers it.
    ///
    /// # Errors
    /// [`Error::Format`] if the values have the wrong type; [`Error::BadOption`] for a way that is not
    /// one of these.
    pub fn of(model: &LoadedModel) -> Result<Option<Pooling>, Error> {
        let Some(metadata) = model.checkpoint().gguf() else {
            return Ok(None);
        };
        let Some(architecture) = metadata.get_str("general.architecture")? else {
            return Ok(None);
        };
        match metadata.get_u32(&format!("{architecture}.pooling_type"))? {
            None | Some(0) => Ok(None),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(3) => Ok(Some(Pooling::Last)),
            Some(other) => Err(Error::BadOption {
                option: "pooling_type of the model's file",
                found: other.to_string(),
                expected: "0 (none), 1 (mean) or 3 (last token)",
            }),
        }
    }
}

/// The final norm of a model.
#[derive(Clone, Debug)]
pub struct Embedder {
    /// `[d_model]`, the offset added.
    weight: Vec<f32>,
    /// `[d_model]`.
    bias: Vec<f32>,
    /// Whether the mean is taken away first, as LayerNorm does.
    centered: bool,
    eps: f32,
    state: usize,
}

impl Embedder {
    /// Of this model.
    ///
    /// # Errors
    /// [`Error::BadOption`] for a graph whose head does not read the norm of its last hidden state.
    pub fn new(model: &LoadedModel) -> Result<Embedder, Error> {
        let graph = &model.model().graph;
        let unlike = || Error::BadOption {
            option: "the model's last step before its head",
            found: "another".to_owned(),
            expected: "a norm of the last block's output",
        };
        let mut nodes = graph.nodes.iter();
        let norm = nodes.find(|node| Some(node.output) == graph.head_input);
        let norm = norm.ok_or_else(unlike)?;
        let (state, last) = graph
            .hidden
            .iter()
            .enumerate()
            .next_back()
            .ok_or_else(unlike)?;
        let d_model = model.model().config.d_model;
        let (weight, bias, eps, group, offset) = match norm.op {
            Op::RmsNorm(RmsNorm {
                weight,
                eps,
                offset,
                group,
            }) => (Some(weight), None, eps, group, offset),
            Op::LayerNorm(LayerNorm {
                weight,
                bias,
                eps,
                group,
            }) => (weight, bias, eps, group, 0.0),
            _ => return Err(unlike()),
        };
        if norm.inputs != [*last] || group != d_model {
            return Err(unlike());
        }
        let vector = |id: Option<WeightId>, neutral: f32| match id {
            Some(id) => decode_vector(model, id),
            None => Ok(vec![neutral; d_model]),
        };
        let mut weight = vector(weight, 1.0)?;
        weight.iter_mut().for_each(|weight| *weight += offset);
        Ok(Embedder {
            weight,
            bias: vector(bias, 0.0)?,
            centered: matches!(norm.op, Op::LayerNorm(_)),
            eps,
            state,
        })
    }

    /// Which hidden state it takes: the last.
    pub fn state(&self) -> usize {
        self.state
    }

    /// Elements of an embedding.
    pub fn d_model(&self) -> usize {
        self.weight.len()
    }

    /// Begins an embedding.
    pub fn begin(&self, pooling: Pooling) -> Embedding {
        Embedding {
            pooling,
            sum: vec![0.0; self.d_model()],
            n_tokens: 0,
        }
    }

    /// Takes the next tokens' rows of hidden state [`state`](Embedder::state), `[n, d_model]`.
    pub fn push(&self, embedding: &mut Embedding, rows: &[f32]) {
        for row in rows.chunks_exact(self.d_model()) {
            embedding.n_tokens += 1;
            let n = self.d_model() as f64;
            let mean = match self.centered {
                true => row.iter().map(|x| f64::from(*x)).sum::<f64>() / n,
                false => 0.0,
            };
            let squares: f64 = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum();
            let factor = 1.0 / (squares / n + f64::from(self.eps)).sqrt();
            let affine = self.weight.iter().zip(&self.bias);
            for ((sum, x), (weight, bias)) in embedding.sum.iter_mut().zip(row).zip(affine) {
                let normed = (f64::from(*x) - mean) * factor * f64::from(*weight);
                let normed = normed + f64::from(*bias);
                match embedding.pooling {
                    Pooling::Mean => *sum += normed,
                    Pooling::Last => *sum = normed,
                }
            }
        }
    }
}

impl Embedder {
    /// The embedding of a text's tokens, `[d_model]` of length 1, computed by `engine` in a sequence of its own
    /// that takes nothing from the cache, which holds no hidden states.
    ///
    /// # Errors
    /// No tokens, more than the context holds, an engine that hands no hidden states over, and those of
    /// [`Embedding::finish`].
    pub fn embed(
        &self,
        engine: &mut dyn Engine,
        tokens: &[u32],
        pooling: Pooling,
    ) -> Result<Vec<f32>, Error> {
        engine.check_context(tokens.len(), 0)?;
        let mut embedding = self.begin(pooling);
        let seq = engine.create()?;
        let max_chunk = engine.limits().max_chunk.max(1);
        let mut push = |engine: &mut dyn Engine| -> Result<(), Error> {
            for chunk in tokens.chunks(max_chunk) {
                let mut sink = LastState {
                    embedder: self,
                    embedding: &mut embedding,
                };
                let item = BatchItem {
                    hidden: true,
                    ..BatchItem::new(seq, chunk, LogitsFor::None)
                };
                engine.step(&[item], &mut sink)?;
            }
            Ok(())
        };
        let pushed = push(engine);
        engine.release(seq)?;
        pushed?;
        embedding.finish()
    }
}

/// Pools rows of the last hidden state while they are computed.
struct LastState<'a> {
    embedder: &'a Embedder,
    embedding: &'a mut Embedding,
}

impl StepSink for LastState<'_> {
    fn logits(&mut self, _: ItemRows<'_>) {}

    fn hidden(&mut self, index: usize, rows: ItemRows<'_>) {
        if index == self.embedder.state {
            self.embedder.push(self.embedding, rows.data);
        }
    }
}

/// An embedding that is being pooled.
#[derive(Clone, Debug)]
pub struct Embedding {
    pooling: Pooling,
    sum: Vec<f64>,
    n_tokens: usize,
}

impl Embedding {
    /// Tokens taken so far.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// The embedding, `[d_model]`, of Euclidean length 1, so that cosines are dot products.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] of no tokens; [`Error::NotFinite`] if it has no direction.
    pub fn finish(&self) -> Result<Vec<f32>, Error> {
        let position = self.n_tokens.checked_sub(1).ok_or(Error::EmptyPrompt)?;
        // A mean points where its sum does.
        let length = self.sum.iter().map(|x| x * x).sum::<f64>().sqrt();
        if !length.is_finite() || length == 0.0 {
            return Err(Error::NotFinite { position });
        }
        Ok(self.sum.iter().map(|x| (x / length) as f32).collect())
    }
}
