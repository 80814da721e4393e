//! Embeddings: one vector for a text, pooled from the model's hidden states of its tokens.
//!
//! The rows pooled are the last block's output after the final norm. The head reads the same rows,
//! transformers calls them `last_hidden_state`, and llama.cpp pools them. An engine returns that output
//! where an item requests [`hidden`](crate::BatchItem::hidden) states; [`Embedder`] applies the norm.

mod batches;
mod prompts;

use millrace_graph::{LayerNorm, Op, RmsNorm, ValueId, WeightId};
use millrace_model::config::EncoderPooling;
use millrace_model::ranking::POOLING_RANK;
use millrace_model::sentence::DenseLayer;
use serde_json::Value;
use std::sync::Arc;

pub use prompts::EmbeddingPrompts;

use crate::engine::{BatchItem, Engine, ItemRows, LogitsFor, StepSink};
use crate::execute::decode_vector;
use crate::{Error, LoadedModel};

/// How the rows of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first token's row; in an encoder it has seen all other tokens.
    First,
    /// The last token's row, which has seen all other tokens.
    Last,
}

impl Pooling {
    /// The pooling that a model's files specify. In a GGUF file it is `<architecture>.pooling_type`, numbered
    /// as in llama.cpp. In a folder it is `1_Pooling/config.json`, as sentence-transformers writes it, or a key of the
    /// model's own.
    ///
    /// # Errors
    /// [`Error::Format`] if the values have the wrong type; [`Error::BadOption`] for any other
    /// pooling.
    pub fn of(model: &LoadedModel) -> Result<Option<Pooling>, Error> {
        if let Some(config) = model
            .checkpoint()
            .hf()
            .and_then(|files| files.pooling.as_ref())
        {
            return Pooling::of_folder(config).map(Some);
        }
        let Some(metadata) = model.checkpoint().gguf() else {
            let encoder = model.model().config.encoder.as_ref();
            let pooling = encoder.and_then(|encoder| encoder.pooling);
            return Ok(pooling.map(Pooling::of_encoder));
        };
        let Some(architecture) = metadata.get_str("general.architecture")? else {
            return Ok(None);
        };
        match metadata.get_u32(&format!("{architecture}.pooling_type"))? {
            None | Some(0) => Ok(None),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(2) => Ok(Some(Pooling::First)),
            // For a ranking head, which reads the last token in models that only look back.
            Some(POOLING_RANK) => match model.model().config.encoder {
                Some(_) => Ok(Some(Pooling::First)),
                None => Ok(Some(Pooling::Last)),
            },
            Some(3) => Ok(Some(Pooling::Last)),
            Some(other) => Err(Error::BadOption {
                option: "pooling_type of the model's file",
                found: other.to_string(),
                expected: "0 (none), 1 (mean), 2 (first token), 3 (last token) or 4 (ranking)",
            }),
        }
    }

    fn of_encoder(pooling: EncoderPooling) -> Pooling {
        match pooling {
            EncoderPooling::Mean => Pooling::Mean,
            EncoderPooling::First => Pooling::First,
            EncoderPooling::Last => Pooling::Last,
        }
    }

    /// The one way that a `1_Pooling/config.json` switches on.
    fn of_folder(config: &Value) -> Result<Pooling, Error> {
        match EncoderPooling::of_folder(config) {
            Ok(pooling) => Ok(Pooling::of_encoder(pooling)),
            Err(found) => Err(Error::BadOption {
                option: "the way of pooling in 1_Pooling/config.json",
                found,
                expected: "one of pooling_mode_mean_tokens, pooling_mode_cls_token, pooling_mode_lasttoken",
            }),
        }
    }
}

/// Computes embeddings from a model's last hidden state.
#[derive(Clone, Debug)]
pub struct Embedder {
    d_model: usize,
    /// The final norm; an encoder, and a decoder with norms behind its blocks, end without one.
    norm: Option<FinalNorm>,
    state: usize,
    /// Layers after the pooled row.
    dense: Arc<[DenseLayer]>,
}

/// The final norm of a model.
#[derive(Clone, Debug)]
pub(crate) struct FinalNorm {
    /// `[d_model]`, the offset added.
    pub(crate) weight: Vec<f32>,
    /// `[d_model]`.
    pub(crate) bias: Vec<f32>,
    /// Whether the mean is subtracted first, as LayerNorm does.
    pub(crate) centered: bool,
    pub(crate) eps: f32,
}

impl FinalNorm {
    /// The norm that turns the hidden state `last` into a model's head input; none if another op does.
    fn of(model: &LoadedModel, last: ValueId) -> Result<Option<FinalNorm>, Error> {
        let graph = &model.model().graph;
        let d_model = model.model().config.d_model;
        let mut nodes = graph.nodes.iter();
        let node = nodes.find(|node| Some(node.output) == graph.head_input);
        let Some(node) = node.filter(|node| node.inputs == [last]) else {
            return Ok(None);
        };
        let (weight, bias, eps, group, offset) = match node.op {
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
            _ => return Ok(None),
        };
        if group != d_model {
            return Ok(None);
        }
        let vector = |id: Option<WeightId>, neutral: f32| match id {
            Some(id) => decode_vector(model, id),
            None => Ok(vec![neutral; d_model]),
        };
        let mut weight = vector(weight, 1.0)?;
        weight.iter_mut().for_each(|weight| *weight += offset);
        Ok(Some(FinalNorm {
            weight,
            bias: vector(bias, 0.0)?,
            centered: matches!(node.op, Op::LayerNorm(_)),
            eps,
        }))
    }
}

impl Embedder {
    /// Creates the embedder of this model.
    ///
    /// # Errors
    /// [`Error::BadOption`] for a graph whose head reads neither its last hidden state nor the norm of it.
    pub fn new(model: &LoadedModel) -> Result<Embedder, Error> {
        let graph = &model.model().graph;
        let unlike = || Error::BadOption {
            option: "the model's last step before its head",
            found: "another".to_owned(),
            expected: "a norm of the last block's output, or none",
        };
        let d_model = model.model().config.d_model;
        let last = graph.hidden.last().ok_or_else(unlike)?;
        let has_no_norm = graph.head_input == Some(*last);
        let norm = match has_no_norm {
            true => None,
            false => Some(FinalNorm::of(model, *last)?.ok_or_else(unlike)?),
        };
        Ok(Embedder {
            d_model,
            norm,
            state: graph.hidden.len() - 1,
            dense: DenseLayer::all_of(model.checkpoint(), d_model)?.into(),
        })
    }

    /// Index of the hidden state it reads: the last.
    pub fn state(&self) -> usize {
        self.state
    }

    /// Elements of an embedding: the model's width, or the width of the last dense layer after it.
    pub fn width(&self) -> usize {
        self.dense.last().map_or(self.d_model, |layer| layer.n)
    }

    /// Begins an embedding.
    pub fn begin(&self, pooling: Pooling) -> Embedding {
        Embedding {
            pooling,
            sum: vec![0.0; self.d_model],
            n_tokens: 0,
            dense: Arc::clone(&self.dense),
        }
    }

    /// Takes the next tokens' rows of hidden state [`state`](Embedder::state), `[n, d_model]`.
    pub fn push(&self, embedding: &mut Embedding, rows: &[f32]) {
        let mut normed = vec![0.0; self.d_model];
        for row in rows.chunks_exact(self.d_model) {
            embedding.n_tokens += 1;
            match &self.norm {
                Some(norm) => norm.apply(row, &mut normed),
                None => normed
                    .iter_mut()
                    .zip(row)
                    .for_each(|(y, x)| *y = f64::from(*x)),
            }
            embedding.take(&normed);
        }
    }
}

impl FinalNorm {
    pub(crate) fn apply<X: Copy + Into<f64>>(&self, row: &[X], out: &mut [f64]) {
        let n = row.len() as f64;
        let numbers = row.iter().map(|x| -> f64 { (*x).into() });
        let mean = match self.centered {
            true => numbers.clone().sum::<f64>() / n,
            false => 0.0,
        };
        let squares: f64 = numbers.clone().map(|x| (x - mean).powi(2)).sum();
        let factor = 1.0 / (squares / n + f64::from(self.eps)).sqrt();
        let affine = self.weight.iter().zip(&self.bias);
        for ((out, x), (weight, bias)) in out.iter_mut().zip(numbers).zip(affine) {
            *out = (x - mean) * factor * f64::from(*weight) + f64::from(*bias);
        }
    }
}

impl Embedder {
    /// The embedding of a text's tokens, `[d_model]` of length 1. `engine` computes it in a new sequence that
    /// takes nothing from the cache, which holds no hidden states.
    ///
    /// # Errors
    /// No tokens, more than the context holds, an engine that returns no hidden states, and the errors
    /// of [`Embedding::finish`].
    pub fn embed(
        &self,
        engine: &mut dyn Engine,
        tokens: &[u32],
        pooling: Pooling,
    ) -> Result<Vec<f32>, Error> {
        self.pool(engine, tokens, pooling)?.finish()
    }

    /// As [`embed`](Embedder::embed), up to the pooled row: [`Embedding::finish`] and [`Embedding::unscaled`] turn it into an embedding.
    ///
    /// # Errors
    /// No tokens, more than the context holds, and an engine that returns no hidden states.
    pub fn pool(
        &self,
        engine: &mut dyn Engine,
        tokens: &[u32],
        pooling: Pooling,
    ) -> Result<Embedding, Error> {
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
        Ok(embedding)
    }
}

/// The first `n_elems` elements of an embedding, scaled to length 1 again, for models trained so that these carry most
/// information (Kusupati et al. 2022). If it has no more elements, it is returned unchanged.
pub fn cut_embedding(mut embedding: Vec<f32>, n_elems: usize) -> Vec<f32> {
    if n_elems >= embedding.len() {
        return embedding;
    }
    embedding.truncate(n_elems);
    let squares: f64 = embedding.iter().map(|x| f64::from(*x).powi(2)).sum();
    let length = squares.sqrt();
    if length > 0.0 {
        embedding
            .iter_mut()
            .for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    embedding
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
    dense: Arc<[DenseLayer]>,
}

impl Embedding {
    /// Takes the next token's row.
    fn take(&mut self, row: &[f64]) {
        match self.pooling {
            Pooling::Mean => self.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x),
            Pooling::First if self.n_tokens > 1 => {}
            Pooling::First | Pooling::Last => self.sum.copy_from_slice(row),
        }
    }

    /// Tokens taken so far.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// The pooled row `[d_model]`, of any length.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] for no tokens.
    pub fn row(&self) -> Result<Vec<f64>, Error> {
        if self.n_tokens == 0 {
            return Err(Error::EmptyPrompt);
        }
        let n = match self.pooling {
            Pooling::Mean => self.n_tokens as f64,
            Pooling::First | Pooling::Last => 1.0,
        };
        Ok(self.sum.iter().map(|x| x / n).collect())
    }

    /// The embedding, [`width`](Embedder::width) elements of Euclidean length 1, so that cosines are dot products.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] for no tokens; [`Error::NotFinite`] if it has no direction.
    pub fn finish(&self) -> Result<Vec<f32>, Error> {
        let position = self.n_tokens.checked_sub(1).ok_or(Error::EmptyPrompt)?;
        let row = match self.dense.is_empty() {
            // A mean points where its sum does.
            true => self.sum.clone(),
            false => self.behind_dense()?,
        };
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        if !length.is_finite() || length == 0.0 {
            return Err(Error::NotFinite { position });
        }
        Ok(row.iter().map(|x| (x / length) as f32).collect())
    }

    /// The embedding from the model, of any length.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] for no tokens; [`Error::NotFinite`] if an element is not finite.
    pub fn unscaled(&self) -> Result<Vec<f32>, Error> {
        let row = self.behind_dense()?;
        if !row.iter().all(|x| x.is_finite()) {
            let position = self.n_tokens.saturating_sub(1);
            return Err(Error::NotFinite { position });
        }
        Ok(row.iter().map(|x| *x as f32).collect())
    }

    /// The pooled row after the dense layers.
    fn behind_dense(&self) -> Result<Vec<f64>, Error> {
        let layers = self.dense.iter();
        Ok(layers.fold(self.row()?, |row, layer| layer.apply(&row)))
    }
}
