//! Contents of a checkpoint without its bytes: the graph is built and checked against this.

use std::collections::{HashMap, HashSet};

use millrace_format::{Checkpoint, Source, TensorInfo, TensorType};
use millrace_quant::DType;

use crate::Error;
use crate::arch::{Family, WeightConvention};
use crate::names::{HF_PREFIXES, TensorName};

/// Tensors by name.
pub(crate) struct Catalog<'a> {
    file: &'a str,
    layout: WeightConvention,
    /// Prefix of Hugging Face names; empty in GGUF files.
    hf_prefix: &'static str,
    by_name: HashMap<&'a str, &'a TensorInfo>,
    /// Biases of zeros beside packed matrices: quantisers write one whether the model has it or not.
    zero_biases: HashSet<&'a str>,
    /// Factors that are stored beside packed matrices.
    factors: Vec<&'a str>,
}

impl<'a> Catalog<'a> {
    pub(crate) fn of(checkpoint: &'a Checkpoint) -> Catalog<'a> {
        let tensors = checkpoint.tensors();
        let is_zero_bias = |name: &&str| {
            let module = name.strip_suffix(".bias");
            module.is_some_and(|module| checkpoint.is_packed(&format!("{module}.weight")))
                && checkpoint
                    .tensor(name)
                    .is_some_and(|bias| bias.bytes.iter().all(|byte| *byte == 0))
        };
        let names = || tensors.iter().map(|info| info.name.as_str());
        Catalog {
            zero_biases: names().filter(is_zero_bias).collect(),
            factors: names().filter(|name| checkpoint.is_factor(name)).collect(),
            ..Catalog::new(checkpoint.name(), checkpoint.source(), tensors)
        }
    }

    pub(crate) fn new(file: &'a str, source: Source, tensors: &'a [TensorInfo]) -> Catalog<'a> {
        let by_name: HashMap<&str, &TensorInfo> = tensors
            .iter()
            .map(|info| (info.name.as_str(), info))
            .collect();
        let is_q4nx = |info: &TensorInfo| matches!(info.tensor_type, TensorType::Weights(dtype) if dtype.is_tiled());
        let layout = match source {
            Source::Gguf => WeightConvention::Gguf,
            Source::HuggingFace if tensors.iter().any(is_q4nx) => WeightConvention::Q4nx,
            Source::HuggingFace => WeightConvention::HuggingFace,
        };
        // A file may lack the table where the head serves as both: then its first norm shows the prefix.
        let has =
            |prefix: &str, name: &str| by_name.contains_key(format!("{prefix}{name}").as_str());
        let find = |name: &str| HF_PREFIXES.iter().copied().find(|prefix| has(prefix, name));
        let hf_prefix = match layout {
            WeightConvention::Gguf => "",
            // Without a table the usual prefix makes the error name the usual tensor.
            _ => find("embed_tokens.weight")
                .or_else(|| find("layers.0.input_layernorm.weight"))
                .or_else(|| find("embeddings.word_embeddings.weight"))
                .or_else(|| find("embeddings.tok_embeddings.weight"))
                .or_else(|| find("embeddings.weight"))
                .or_else(|| find("layers.0.norm.weight"))
                .or_else(|| find("word_embeddings.weight"))
                .or_else(|| find("token_embeddings.weight"))
                .or_else(|| find("wte.weight"))
                .or_else(|| find("encoder.weight"))
                .unwrap_or(HF_PREFIXES[0]),
        };
        Catalog {
            file,
            layout,
            hf_prefix,
            by_name,
            zero_biases: HashSet::new(),
            factors: Vec::new(),
        }
    }

    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    pub(crate) fn layout(&self) -> WeightConvention {
        self.layout
    }

    pub(crate) fn hf_prefix(&self) -> &'static str {
        self.hf_prefix
    }

    /// The name of a weight here, or the name that it would have; `None` if Hugging Face files have no such tensor.
    pub(crate) fn hf_name(&self, family: &Family, name: TensorName) -> Option<String> {
        let names = family.hf_names();
        let usual = name.hf(self.hf_prefix, names)?;
        if self.has(&usual) {
            return Some(usual);
        }
        let second = name.hf_second(self.hf_prefix, names);
        second.filter(|second| self.has(second)).or(Some(usual))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(crate) fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.by_name.get(name).map(|info| info.shape.as_slice())
    }

    /// Whether this bias is zero, so that a model without a use for it computes the same.
    pub(crate) fn is_zero_bias(&self, name: &str) -> bool {
        self.zero_biases.contains(name)
    }

    /// Packed matrices that have a factor beside them, and their factors.
    pub(crate) fn factors(&self) -> impl Iterator<Item = (String, &'a str)> {
        let matrix = |factor: &str| format!("{}.weight", factor.trim_end_matches(".scale"));
        self.factors
            .iter()
            .map(move |factor| (matrix(factor), *factor))
    }

    pub(crate) fn info(&self, name: &str) -> Option<&'a TensorInfo> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.by_name.keys().copied()
    }

    /// The format of a weight of this shape (slowest dimension first).
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::TensorType`].
    pub(crate) fn check(&self, name: &str, expected: &[usize]) -> Result<DType, Error> {
        let (file, tensor) = (self.file, name);
        let Some(info) = self.by_name.get(name) else {
            return Err(Error::MissingTensor {
                file: file.into(),
                tensor: tensor.into(),
                expected: expected.into(),
            });
        };
        if !info.has_shape(expected) {
            return Err(Error::TensorShape {
                file: file.into(),
                tensor: tensor.into(),
                expected: expected.into(),
                found: info.shape.clone(),
            });
        }
        let wrong = |expected: &str| {
            Err(Error::TensorType {
                file: file.into(),
                tensor: tensor.into(),
                found: info.tensor_type.name().into(),
                expected: expected.into(),
            })
        };
        match info.tensor_type {
            // Norms and biases are read as plain numbers, and no one quantises them.
            TensorType::Weights(dtype) if expected.len() == 1 && !dtype.is_float() => {
                wrong("f32, f16 or bf16, as every vector")
            }
            // The formats that hold activations beside other blocks have no use as weights.
            TensorType::Weights(dtype) if dtype.is_for_activations() => wrong("a weight format"),
            TensorType::Weights(dtype) => Ok(dtype),
            TensorType::Plain(_) => wrong("a weight format"),
            TensorType::Opaque(opaque) => Err(Error::OpaqueWeight {
                file: file.into(),
                tensor: tensor.into(),
                found: opaque.to_string(),
            }),
        }
    }
}
