//! What each weight is for, and its name in GGUF and in Hugging Face files.
//!
//! A [`TensorName`] says which weight is meant; [`TensorName::gguf`] and [`TensorName::hf`] spell
//! it, and the two `parse` functions read it back. The roles and the GGUF spellings are ggml's; the
//! Hugging Face ones follow the module names of transformers' `*ForCausalLM` classes, where one
//! module name means different things in different families (see [`HfNorms`]).

use std::fmt;

/// The purpose of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightRole {
    /// `[vocab, d_model]`: the embedding table.
    TokenEmbedding,
    /// `[head_dim/2]`: divisors of the RoPE frequencies (GGUF only).
    RopeFactors,
    /// `[d_model]`: norm before attention.
    AttnNorm,
    /// `[n_heads·head_dim, d_model]`: query projection.
    AttnQ,
    /// `[n_kv_heads·head_dim, d_model]`: key projection.
    AttnK,
    /// `[n_kv_heads·head_dim, d_model]`: value projection.
    AttnV,
    /// `[head_dim]`: norm of each query head.
    AttnQNorm,
    /// `[head_dim]`: norm of each key head.
    AttnKNorm,
    /// `[d_model, n_heads·head_dim]`: projection of the attention's output.
    AttnOutput,
    /// `[d_model]`: norm after attention, before the residual addition.
    AttnPostNorm,
    /// `[d_model]`: norm before the feed-forward.
    FfnNorm,
    /// `[d_ff, d_model]`: gate of the feed-forward.
    FfnGate,
    /// `[d_ff, d_model]`: up projection of the feed-forward.
    FfnUp,
    /// `[d_model, d_ff]`: down projection of the feed-forward.
    FfnDown,
    /// `[d_model]`: norm after the feed-forward, before the residual addition.
    FfnPostNorm,
    /// `[d_model]`: norm before the head.
    OutputNorm,
    /// `[vocab, d_model]`: the head.
    Output,
}

impl WeightRole {
    /// Whether every block has one.
    pub fn is_per_layer(self) -> bool {
        row(self).per_layer
    }

    /// Whether it is the weight of an RMSNorm.
    pub fn is_norm(self) -> bool {
        use WeightRole::*;
        matches!(
            self,
            AttnNorm | AttnQNorm | AttnKNorm | AttnPostNorm | FfnNorm | FfnPostNorm | OutputNorm
        )
    }
}

/// Which of the two parameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParameterKind {
    /// `.weight`.
    Weight,
    /// `.bias`.
    Bias,
}

impl ParameterKind {
    fn suffix(self) -> &'static str {
        match self {
            ParameterKind::Weight => "weight",
            ParameterKind::Bias => "bias",
        }
    }
}

/// One weight of a model, whatever the file calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorName {
    /// The block, for roles every block has.
    pub layer: Option<usize>,
    /// What it is for.
    pub role: WeightRole,
    /// Weight or bias.
    pub part: ParameterKind,
}

/// What the module names `post_attention_layernorm` and `pre_feedforward_layernorm` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HfNorms {
    /// Two norms a block: `post_attention_layernorm` stands before the feed-forward (Llama).
    Pre,
    /// Four norms a block: it stands after attention, and `pre_feedforward_layernorm` before the
    /// feed-forward (Gemma 3).
    PreAndPost,
}

struct NameRow {
    role: WeightRole,
    per_layer: bool,
    gguf: &'static str,
    /// Module name by [`HfNorms`]; `None` where the family has no such module.
    hf: [Option<&'static str>; 2],
}

const fn row_of(
    role: WeightRole,
    per_layer: bool,
    gguf: &'static str,
    hf: [Option<&'static str>; 2],
) -> NameRow {
    NameRow {
        role,
        per_layer,
        gguf,
        hf,
    }
}

const fn both(name: &'static str) -> [Option<&'static str>; 2] {
    [Some(name), Some(name)]
}

/// One row a role, in the order of the enum. Sources: ggml's `gguf-py` constants, transformers'
/// `modeling_llama.py` and `modeling_gemma3.py`.
const TABLE: [NameRow; 17] = [
    row_of(
        WeightRole::TokenEmbedding,
        false,
        "token_embd",
        both("embed_tokens"),
    ),
    row_of(WeightRole::RopeFactors, false, "rope_freqs", [None, None]),
    row_of(
        WeightRole::AttnNorm,
        true,
        "attn_norm",
        both("input_layernorm"),
    ),
    row_of(WeightRole::AttnQ, true, "attn_q", both("self_attn.q_proj")),
    row_of(WeightRole::AttnK, true, "attn_k", both("self_attn.k_proj")),
    row_of(WeightRole::AttnV, true, "attn_v", both("self_attn.v_proj")),
    row_of(
        WeightRole::AttnQNorm,
        true,
        "attn_q_norm",
        both("self_attn.q_norm"),
    ),
    row_of(
        WeightRole::AttnKNorm,
        true,
        "attn_k_norm",
        both("self_attn.k_norm"),
    ),
    row_of(
        WeightRole::AttnOutput,
        true,
        "attn_output",
        both("self_attn.o_proj"),
    ),
    row_of(
        WeightRole::AttnPostNorm,
        true,
        "post_attention_norm",
        [None, Some("post_attention_layernorm")],
    ),
    row_of(
        WeightRole::FfnNorm,
        true,
        "ffn_norm",
        [
            Some("post_attention_layernorm"),
            Some("pre_feedforward_layernorm"),
        ],
    ),
    row_of(WeightRole::FfnGate, true, "ffn_gate", both("mlp.gate_proj")),
    row_of(WeightRole::FfnUp, true, "ffn_up", both("mlp.up_proj")),
    row_of(WeightRole::FfnDown, true, "ffn_down", both("mlp.down_proj")),
    row_of(
        WeightRole::FfnPostNorm,
        true,
        "post_ffw_norm",
        [None, Some("post_feedforward_layernorm")],
    ),
    row_of(WeightRole::OutputNorm, false, "output_norm", both("norm")),
    row_of(WeightRole::Output, false, "output", both("lm_head")),
];

fn row(role: WeightRole) -> &'static NameRow {
    &TABLE[role as usize]
}

/// Prefixes that Hugging Face files put before the text model's modules: plain causal models, the
/// multimodal wrappers of transformers 4 and of 5, and the bare text model.
pub const HF_PREFIXES: [&str; 4] = [
    "model.",
    "language_model.model.",
    "model.language_model.",
    "",
];

impl TensorName {
    /// A weight that the model has once.
    pub fn global(role: WeightRole) -> TensorName {
        TensorName {
            layer: None,
            role,
            part: ParameterKind::Weight,
        }
    }

    /// A weight of block `layer`.
    pub fn block(layer: usize, role: WeightRole) -> TensorName {
        TensorName {
            layer: Some(layer),
            role,
            part: ParameterKind::Weight,
        }
    }

    /// The bias that goes with this weight.
    pub fn bias(self) -> TensorName {
        TensorName {
            part: ParameterKind::Bias,
            ..self
        }
    }

    /// The name in GGUF files: `blk.3.attn_q.weight`.
    pub fn gguf(&self) -> String {
        let (name, suffix) = (row(self.role).gguf, self.part.suffix());
        match self.layer {
            Some(layer) => format!("blk.{layer}.{name}.{suffix}"),
            None => format!("{name}.{suffix}"),
        }
    }

    /// The name in Hugging Face files with one of [`HF_PREFIXES`]:
    /// `model.layers.3.self_attn.q_proj.weight`. `None` if these files have no such tensor.
    pub fn hf(&self, prefix: &str, norms: HfNorms) -> Option<String> {
        let (name, suffix) = (row(self.role).hf[norms as usize]?, self.part.suffix());
        Some(match (self.layer, self.role) {
            (Some(layer), _) => format!("{prefix}layers.{layer}.{name}.{suffix}"),
            // The head belongs to the causal model that wraps the text model.
            (None, WeightRole::Output) => {
                let wrapper = prefix
                    .strip_suffix("model.")
                    .filter(|outer| outer.ends_with('.'));
                format!("{}{name}.{suffix}", wrapper.unwrap_or(""))
            }
            (None, _) => format!("{prefix}{name}.{suffix}"),
        })
    }

    /// Reads a GGUF name; `None` if it is not one of this table.
    pub fn parse_gguf(name: &str) -> Option<TensorName> {
        let (stem, part) = split_part(name)?;
        let (layer, stem) = match stem.strip_prefix("blk.") {
            Some(rest) => {
                let (layer, stem) = rest.split_once('.')?;
                (Some(parse_layer(layer)?), stem)
            }
            None => (None, stem),
        };
        let row = TABLE.iter().find(|row| row.gguf == stem)?;
        (row.per_layer == layer.is_some()).then_some(TensorName {
            layer,
            role: row.role,
            part,
        })
    }

    /// Reads a Hugging Face name with any of [`HF_PREFIXES`]; `None` if it is not one of this table.
    pub fn parse_hf(name: &str, norms: HfNorms) -> Option<TensorName> {
        let (stem, part) = split_part(name)?;
        HF_PREFIXES
            .iter()
            .filter_map(|prefix| stem.strip_prefix(prefix))
            .chain(stem.strip_prefix("language_model."))
            .find_map(|stem| {
                let (layer, stem) = match stem.strip_prefix("layers.") {
                    Some(rest) => {
                        let (layer, stem) = rest.split_once('.')?;
                        (Some(parse_layer(layer)?), stem)
                    }
                    None => (None, stem),
                };
                let row = TABLE
                    .iter()
                    .find(|row| row.hf[norms as usize] == Some(stem))?;
                let fits = row.per_layer == layer.is_some();
                fits.then_some(TensorName {
                    layer,
                    role: row.role,
                    part,
                })
            })
    }
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gguf())
    }
}

fn split_part(name: &str) -> Option<(&str, ParameterKind)> {
    [ParameterKind::Weight, ParameterKind::Bias]
        .into_iter()
        .find_map(|part| {
            let stem = name.strip_suffix(part.suffix())?.strip_suffix('.')?;
            Some((stem, part))
        })
}

/// A block number without sign or leading zeros, so that each name has one spelling.
fn parse_layer(text: &str) -> Option<usize> {
    let layer: usize = text.parse().ok()?;
    (layer.to_string() == text).then_some(layer)
}

/// The row order of GGUF's Q and K matrices in the families that permute them: row `i` of the GGUF
/// matrix is row `permutation(..)[i]` of the Hugging Face one.
///
/// Half-split RoPE rotates row `j` of a head with row `j + head_dim/2`; the permutation brings the
/// two next to each other, which is what interleaved RoPE rotates.
pub fn permutation(n_heads: usize, head_dim: usize) -> Vec<usize> {
    let half = head_dim / 2;
    (0..n_heads * head_dim)
        .map(|row| {
            let (head, i) = (row / head_dim, row % head_dim);
            head * head_dim + (i % 2) * half + i / 2
        })
        .collect()
}

#[cfg(test)]
mod tests;
