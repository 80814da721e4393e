//! Relevance of a text to a question: one number for a pair, from a head over the pooled hidden state.
//!
//! An encoder with a classifier reads both texts at once and scores them with it (Nogueira and Cho 2019). A Qwen 3 trained
//! as a judge answers a question about the pair; its score is the share of "yes" against "no".

use millrace_format::Checkpoint;
use millrace_graph::{Activation, Linear, Op, WeightId, exact};
use millrace_model::config::{ClassifierConfig, EncoderPooling};
use millrace_model::ranking::{self, ClassifierNames, GGUF_OUT, JUDGE_MARKS, OUTPUT_LABELS};
use millrace_quant::decode_rows;
use millrace_text::{EncodeOptions, Tokenizer};

use crate::embedding::{Embedder, FinalNorm, Pooling};
use crate::{Error, LoadedModel};

/// A matrix `[n, k]` and a bias.
#[derive(Clone, Debug, PartialEq)]
struct Layer {
    weight: Vec<f32>,
    bias: Vec<f32>,
    k: usize,
}

/// A layer before a classifier.
#[derive(Clone, Debug)]
struct Dense {
    layer: Layer,
    /// tanh if none.
    activation: Option<Activation>,
    norm: Option<FinalNorm>,
}

impl Dense {
    fn apply(&self, row: &[f64]) -> Vec<f64> {
        let sums = self.layer.apply(row).into_iter();
        let active: Vec<f64> = match self.activation {
            Some(activation) => sums.map(|x| activation.apply(x, exact)).collect(),
            None => sums.map(f64::tanh).collect(),
        };
        match &self.norm {
            Some(norm) => {
                let mut out = vec![0.0; active.len()];
                norm.apply(&active, &mut out);
                out
            }
            None => active,
        }
    }
}

/// Scores a pooled row.
#[derive(Clone, Debug)]
enum Head {
    /// A classifier of one label, after a layer if there is one.
    Classifier { dense: Option<Dense>, out: Layer },
    /// Rows of the language model's head.
    YesNo(Layer),
}

/// Ranks texts.
#[derive(Clone, Debug)]
pub struct Ranker {
    head: Head,
    pooling: Pooling,
}

/// The default instruction.
pub const RANK_INSTRUCTION: &str = ranking::INSTRUCTION;

impl Ranker {
    /// Creates the ranker of this model.
    ///
    /// # Errors
    /// [`Error::BadOption`] for a model without a head that scores pairs, and for a Qwen 3 without a mark as a judge
    /// ([`JUDGE_MARKS`]); the errors of reading its weights.
    pub fn of(model: &LoadedModel) -> Result<Ranker, Error> {
        let config = &model.model().config;
        if config.encoder.is_some() {
            let head = classifier(model)?;
            let pooling = classifier_pooling(model)?;
            return Ok(Ranker { head, pooling });
        }
        let tokenizer = model.tokenizer()?;
        let can_judge = config.family == "qwen3" && single(&tokenizer, "<|im_start|>").is_some();
        let words = [single(&tokenizer, "yes"), single(&tokenizer, "no")];
        let (true, [Some(yes), Some(no)]) = (can_judge, words) else {
            return Err(unlike(model));
        };
        // A chat model answers yes or no as well, and its scores would mean nothing.
        if !ranking::is_judge(model.checkpoint())? {
            return Err(unmarked(model));
        }
        let layer = match rows_of_file(model)? {
            Some(layer) => layer,
            None => rows_of_head(model, [yes, no])?,
        };
        Ok(Ranker {
            head: Head::YesNo(layer),
            pooling: Pooling::Last,
        })
    }

    /// Which token's row it scores.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Whether pairs are judged by an instruction.
    pub fn takes_instruction(&self) -> bool {
        matches!(self.head, Head::YesNo(_))
    }

    /// The tokens of a pair. `instruction` is for models that are given a criterion.
    pub fn prompt(
        &self,
        tokenizer: &Tokenizer,
        (query, document): (&str, &str),
        instruction: Option<&str>,
    ) -> Vec<u32> {
        let encode = |text: &str, add_special, parse_special| {
            let options = EncodeOptions {
                add_special,
                parse_special,
            };
            tokenizer.encode(text, options)
        };
        match &self.head {
            Head::YesNo(_) => {
                let instruction = instruction.unwrap_or(RANK_INSTRUCTION);
                let [before, pair, behind] = ranking::judge_text(instruction, query, document);
                // Texts of users contain no tokens of the template.
                let parts = [
                    encode(&before, false, true),
                    encode(&pair, false, false),
                    encode(&behind, false, true),
                ];
                parts.concat()
            }
            Head::Classifier { .. } => {
                let mut tokens = encode(query, true, false);
                let behind = encode(document, true, false);
                let (first, last) = (tokens.first().copied(), tokens.last().copied());
                // RoBERTa's kin have two separators between texts, BERT's one.
                let is_double = first.is_some_and(|id| tokenizer.token_text(id) == "<s>");
                tokens.extend(last.filter(|_| is_double));
                tokens.extend(behind.into_iter().skip(usize::from(first.is_some())));
                tokens
            }
        }
    }

    /// The score of the pooled row `[d_model]`, which is not scaled to length 1. It is a classifier's number, or for a
    /// judge the difference of the logits of yes and no.
    pub fn score(&self, row: &[f64]) -> f32 {
        let score = match &self.head {
            Head::YesNo(layer) => {
                let logits = layer.apply(row);
                logits[0] - logits[1]
            }
            Head::Classifier { dense, out } => {
                let inner = match dense {
                    Some(dense) => dense.apply(row),
                    None => row.to_vec(),
                };
                out.apply(&inner)[0]
            }
        };
        score as f32
    }

    /// A score between 0 and 1: the share of yes, or the probability that a classifier of one label means by its number.
    pub fn relevance(score: f32) -> f32 {
        1.0 / (1.0 + (-score).exp())
    }

    /// The embedder that makes the rows to score.
    ///
    /// # Errors
    /// As [`Embedder::new`].
    pub fn embedder(&self, model: &LoadedModel) -> Result<Embedder, Error> {
        Embedder::new(model)
    }
}

impl Layer {
    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.weight.chunks_exact(self.k).zip(&self.bias);
        let dot = |row: &[f32]| -> f64 { row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum() };
        rows.map(|(row, bias)| dot(row) + f64::from(*bias))
            .collect()
    }
}

fn unlike(model: &LoadedModel) -> Error {
    Error::BadOption {
        option: "the model that shall rank",
        found: format!("{}, a {}", model.name(), model.model().config.family),
        expected: "an encoder with a classifier of one label, or a Qwen 3 reranker",
    }
}

fn unmarked(model: &LoadedModel) -> Error {
    Error::BadOption {
        option: "the model that shall rank",
        found: format!(
            "{}, a qwen3 that nothing marks as a reranker: rename its folder if it is one",
            model.name()
        ),
        expected: JUDGE_MARKS,
    }
}

/// The token that is this text alone.
fn single(tokenizer: &Tokenizer, text: &str) -> Option<u32> {
    let options = EncodeOptions {
        add_special: false,
        parse_special: true,
    };
    match tokenizer.encode(text, options)[..] {
        [id] => Some(id),
        _ => None,
    }
}

/// The rows of yes and no that llama.cpp's converter stores separately, in place of a head that is not tied.
fn rows_of_file(model: &LoadedModel) -> Result<Option<Layer>, Error> {
    let checkpoint = model.checkpoint();
    let Some(metadata) = checkpoint.gguf() else {
        return Ok(None);
    };
    let d_model = model.model().config.d_model;
    let Some(mut layer) = layer(checkpoint, GGUF_OUT, [2, d_model])? else {
        return Ok(None);
    };
    let architecture = metadata
        .get_str("general.architecture")?
        .unwrap_or_default();
    let labels = metadata.get_str_array(&format!("{architecture}.{OUTPUT_LABELS}"))?;
    match labels.unwrap_or_default() {
        [] => {}
        [yes, no] if yes == "yes" && no == "no" => {}
        [no, yes] if yes == "yes" && no == "no" => layer.weight.rotate_left(d_model),
        other => {
            return Err(Error::BadOption {
                option: "classifier.output_labels of the model's file",
                found: format!("{other:?}"),
                expected: "yes and no",
            });
        }
    }
    Ok(Some(layer))
}

/// Rows of the head, by token.
fn rows_of_head(model: &LoadedModel, tokens: [u32; 2]) -> Result<Layer, Error> {
    let graph = &model.model().graph;
    let head = graph.nodes.iter().find_map(|node| match node.op {
        Op::Linear(Linear { weight, bias: None }) if Some(node.output) == graph.logits => {
            Some(weight)
        }
        _ => None,
    });
    let id: WeightId = head.ok_or_else(|| unlike(model))?;
    let weight = &graph.weights[id.0];
    let bytes = model.weight_bytes(id);
    let mut rows = vec![0.0; 2 * weight.k];
    for (token, out) in tokens.into_iter().zip(rows.chunks_exact_mut(weight.k)) {
        let row = token as usize;
        decode_rows(weight.dtype, bytes, weight.n, weight.k, row..row + 1, out)?;
    }
    Ok(Layer {
        weight: rows,
        bias: vec![0.0; 2],
        k: weight.k,
    })
}

/// The classifier after an encoder, with one label.
fn classifier(model: &LoadedModel) -> Result<Head, Error> {
    let checkpoint = model.checkpoint();
    let d_model = model.model().config.d_model;
    let names = ClassifierNames::find(checkpoint).ok_or_else(|| unlike(model))?;
    let out = layer(checkpoint, &names.out, [1, d_model])?.ok_or_else(|| unlike(model))?;
    if names.dense.is_none() && names.out == GGUF_OUT && model.model().config.family == "bert" {
        return Err(Error::BadOption {
            option: "the classifier of the model's file",
            found: "cls.output without cls: llama.cpp's converter drops the layer before a BERT's scores (pooler.dense)"
                .to_owned(),
            expected: "both; convert the model's folder with millrace quantize",
        });
    }
    let activation = classifier_config(model).map(|config| config.activation);
    let dense = match &names.dense {
        Some(name) => layer(checkpoint, name, [d_model, d_model])?,
        None => None,
    };
    let dense = dense.map(|layer| {
        Ok::<_, Error>(Dense {
            layer,
            activation,
            norm: norm(model, names.norm.as_deref())?,
        })
    });
    Ok(Head::Classifier {
        dense: dense.transpose()?,
        out,
    })
}

fn classifier_config(model: &LoadedModel) -> Option<ClassifierConfig> {
    model.model().config.encoder.as_ref()?.classifier
}

/// The pooling that a classifier reads.
fn classifier_pooling(model: &LoadedModel) -> Result<Pooling, Error> {
    let Some(config) = classifier_config(model) else {
        return Ok(Pooling::First);
    };
    match config.pooling {
        Some(EncoderPooling::Mean) => Ok(Pooling::Mean),
        Some(EncoderPooling::First) => Ok(Pooling::First),
        Some(EncoderPooling::Last) => Ok(Pooling::Last),
        None => Err(Error::BadOption {
            option: "the classifier of the model's file",
            found: "one that scores every token (`classifier_pooling` = late)".to_owned(),
            expected: "one that scores the first token, or the mean of all",
        }),
    }
}

/// The norm after the layer before a classifier, if there is one.
fn norm(model: &LoadedModel, name: Option<&str>) -> Result<Option<FinalNorm>, Error> {
    let checkpoint = model.checkpoint();
    let config = &model.model().config;
    let Some(name) = name else { return Ok(None) };
    let weight = checkpoint.require(&format!("{name}.weight"))?;
    let bias = checkpoint.tensor(&format!("{name}.bias"));
    Ok(Some(FinalNorm {
        weight: numbers(&weight, config.d_model)?,
        bias: match bias {
            Some(bias) => numbers(&bias, config.d_model)?,
            None => vec![0.0; config.d_model],
        },
        centered: true,
        eps: config.norm_eps,
    }))
}

/// The layer of this name, if there is one.
fn layer(checkpoint: &Checkpoint, name: &str, [n, k]: [usize; 2]) -> Result<Option<Layer>, Error> {
    let Some(weight) = checkpoint.tensor(&format!("{name}.weight")) else {
        return Ok(None);
    };
    let shape = &weight.info.shape;
    if *shape != [n, k] && !(n == 1 && *shape == [k]) {
        return Err(Error::BadOption {
            option: "the classifier of the model's file",
            found: format!("{name}.weight of {shape:?}"),
            expected: "one label, and the model's width",
        });
    }
    let bias = match checkpoint.tensor(&format!("{name}.bias")) {
        Some(bias) => numbers(&bias, n)?,
        None => vec![0.0; n],
    };
    Ok(Some(Layer {
        weight: numbers(&weight, n * k)?,
        bias,
        k,
    }))
}

fn numbers(tensor: &millrace_format::Tensor<'_>, n: usize) -> Result<Vec<f32>, Error> {
    let millrace_format::TensorType::Weights(dtype) = tensor.info.tensor_type else {
        return Err(Error::BadOption {
            option: "the classifier of the model's file",
            found: format!(
                "{} of type {}",
                tensor.info.name,
                tensor.info.tensor_type.name()
            ),
            expected: "numbers of a weight format",
        });
    };
    let shape = &tensor.info.shape;
    if shape.iter().product::<usize>() != n {
        return Err(Error::BadOption {
            option: "the classifier of the model's file",
            found: format!("{} of {shape:?}", tensor.info.name),
            expected: "the model's width",
        });
    }
    let mut out = vec![0.0; n];
    millrace_quant::decode_blocks(dtype, tensor.bytes, &mut out)?;
    Ok(out)
}
