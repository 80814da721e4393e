//! The purpose of each weight, and its name in GGUF and in Hugging Face files.
//!
//! A [`TensorName`] says which weight is meant; [`TensorName::gguf`] and [`TensorName::hf`] spell it,
//! and [`TensorName::parse_gguf`] reads one back. The roles and the GGUF spellings are ggml's. The
//! Hugging Face ones follow the module names of transformers' `*ForCausalLM` classes, where one module
//! name means different things in different families (see [`HfNorms`]).

mod kinds;
mod role;
mod table;

pub use role::WeightRole;
use std::fmt;
use table::{NameRow, TABLE, row};

/// Which of the parameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParameterKind {
    /// `.weight`.
    Weight,
    /// `.bias`.
    Bias,
    /// `.scale`: a factor on products with the weight, for the whole weight or for each expert.
    Scale,
}

impl ParameterKind {
    fn suffix(self) -> &'static str {
        match self {
            ParameterKind::Weight => "weight",
            ParameterKind::Bias => "bias",
            ParameterKind::Scale => "scale",
        }
    }
}

/// One weight of a model, independent of its name in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorName {
    /// The block, for roles every block has.
    pub layer: Option<usize>,
    /// Its purpose.
    pub role: WeightRole,
    /// Weight, bias or scale.
    pub part: ParameterKind,
}

/// Meaning of the module names `post_attention_layernorm` and `pre_feedforward_layernorm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HfNorms {
    /// Two norms a block: `post_attention_layernorm` comes before the feed-forward (Llama).
    Pre,
    /// Four norms a block: it comes after attention, and `pre_feedforward_layernorm` before the feed-forward (Gemma 3).
    PreAndPost,
}

/// How a family's Hugging Face files name modules.
#[derive(Clone, Copy, Debug)]
pub struct HfNames {
    /// Meaning of the shared names of norms.
    pub norms: HfNorms,
    /// Names that only this family has. `{}` is replaced by an expert's number; a name that ends with `!` has no
    /// `.weight` behind it. A name that begins with `*` is that of a factor beside the weight, which all files have; one that begins with `^`
    /// has no prefix.
    /// A second name of a role is one that other files of the family have.
    pub own: &'static [(WeightRole, &'static str)],
    /// Name of the list of blocks.
    pub layers: &'static str,
}

impl HfNames {
    /// The family's own names of a role, the usual one first, and of the factor beside it.
    fn own_of(&self, role: WeightRole) -> impl Iterator<Item = &'static str> + use<> {
        let own = self.own.iter().filter(move |(known, _)| *known == role);
        own.map(|(_, name)| *name)
    }

    fn of(&self, role: WeightRole) -> Option<&'static str> {
        let mut own = self.own_of(role).filter(|name| !name.starts_with('*'));
        own.next().or(row(role).hf[self.norms as usize])
    }

    /// The name of the factor beside weights of this role, in families whose files all have it.
    pub(crate) fn scale_of(&self, role: WeightRole) -> Option<&'static str> {
        self.own_of(role).find_map(|name| name.strip_prefix('*'))
    }

    /// The second name of a role; `None` where it has one alone.
    fn second(&self, role: WeightRole) -> Option<&'static str> {
        let mut own = self.own_of(role).filter(|name| !name.starts_with('*'));
        own.nth(1)
    }
}

/// Prefixes that Hugging Face files put before the text model's modules. They are those of plain causal models, of Mamba's
/// classes, and of the multimodal wrappers of transformers 4 and 5. Those of encoders with a head, of decoders with a name
/// of their own, and of the bare text model follow.
pub const HF_PREFIXES: [&str; 14] = [
    "model.",
    "backbone.",
    "language_model.model.",
    "model.language_model.",
    "bert.",
    "roberta.",
    "nomic_bert.",
    "gpt_neox.",
    "transformer.",
    "model.decoder.",
    "decoder.",
    "biogpt.",
    "distilbert.",
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

    /// Number added to scores of experts for their choice: its files call it a bias, but it belongs to no weight.
    pub fn router_bias(layer: usize) -> TensorName {
        TensorName::block(layer, WeightRole::RouterBias).bias()
    }

    /// The bias that goes with this weight.
    pub fn bias(self) -> TensorName {
        TensorName {
            part: ParameterKind::Bias,
            ..self
        }
    }

    /// The factor on products with this weight.
    pub fn scale(self) -> TensorName {
        TensorName {
            part: ParameterKind::Scale,
            ..self
        }
    }

    /// The name in GGUF files: `blk.3.attn_q.weight`.
    pub fn gguf(&self) -> String {
        let (name, suffix) = (row(self.role).gguf, self.part.suffix());
        if let (Some(stem), Some(layer), ParameterKind::Weight) =
            (name.strip_suffix('!'), self.layer, self.part)
        {
            return format!("blk.{layer}.{stem}");
        }
        let name = name.trim_end_matches('!');
        match self.layer {
            Some(layer) => format!("blk.{layer}.{name}.{suffix}"),
            None => format!("{name}.{suffix}"),
        }
    }

    /// The name in Hugging Face files with one of [`HF_PREFIXES`]: `model.layers.3.self_attn.q_proj.weight`.
    /// `None` if these files have no such tensor. Where each expert has a tensor, the name has `{}` in place of
    /// its number.
    pub fn hf(&self, prefix: &str, names: HfNames) -> Option<String> {
        if self.part == ParameterKind::Scale
            && let Some(name) = names.scale_of(self.role)
        {
            let (layers, layer) = (names.layers, self.layer?);
            return Some(format!("{prefix}{layers}.{layer}.{name}"));
        }
        self.hf_of(prefix, names.layers, names.of(self.role)?)
    }

    /// The second name that some of the family's files have in its place.
    pub(crate) fn hf_second(&self, prefix: &str, names: HfNames) -> Option<String> {
        self.hf_of(prefix, names.layers, names.second(self.role)?)
    }

    /// The name with this one for its module.
    fn hf_of(&self, prefix: &str, layers: &str, name: &str) -> Option<String> {
        let suffix = self.part.suffix();
        Some(match (self.layer, self.role) {
            // Factors are stored beside packed matrices, whose names have `.weight`.
            (Some(_), _) if name.ends_with('!') && self.part == ParameterKind::Scale => {
                return None;
            }
            (Some(layer), _) if name.ends_with('!') => {
                let name = name.trim_end_matches('!');
                let bias = match self.part {
                    ParameterKind::Bias if self.role != WeightRole::RouterBias => "_bias",
                    _ => "",
                };
                format!("{prefix}{layers}.{layer}.{name}{bias}")
            }
            (Some(layer), _) => format!("{prefix}{layers}.{layer}.{name}.{suffix}"),
            // These belong to the causal model that wraps the text model.
            (None, WeightRole::Output | WeightRole::AssistantIn | WeightRole::AssistantOut) => {
                let wrapper = prefix
                    .strip_suffix("model.")
                    .filter(|outer| outer.ends_with('.'));
                format!("{}{name}.{suffix}", wrapper.unwrap_or(""))
            }
            (None, _) => match name.strip_prefix('^') {
                Some(name) => format!("{name}.{suffix}"),
                None => format!("{prefix}{name}.{suffix}"),
            },
        })
    }

    /// The name in Hugging Face files of a module that is stored separately, with `module` before it.
    pub(crate) fn hf_module(&self, module: &str) -> String {
        format!("{module}.{}", self.part.suffix())
    }

    /// Reads a GGUF name; `None` if it is not one of this table.
    pub fn parse_gguf(name: &str) -> Option<TensorName> {
        let (stem, part) = split_part(name).unwrap_or((name, ParameterKind::Weight));
        let has_suffix = stem.len() < name.len();
        let (layer, stem) = match stem.strip_prefix("blk.") {
            Some(rest) => {
                let (layer, stem) = rest.split_once('.')?;
                (Some(parse_layer(layer)?), stem)
            }
            None => (None, stem),
        };
        let bare = |row: &NameRow| row.gguf.strip_suffix('!').unwrap_or(row.gguf);
        let is_suffixed = |row: &NameRow| part != ParameterKind::Weight || !row.gguf.ends_with('!');
        let mut rows = TABLE.iter();
        let row = rows.find(|row| bare(row) == stem && is_suffixed(row) == has_suffix)?;
        (row.per_layer == layer.is_some()).then_some(TensorName {
            layer,
            role: row.role,
            part,
        })
    }
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gguf())
    }
}

fn split_part(name: &str) -> Option<(&str, ParameterKind)> {
    [
        ParameterKind::Weight,
        ParameterKind::Bias,
        ParameterKind::Scale,
    ]
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
/// Half-split RoPE rotates row `j` of a head with row `j + head_dim/2`. The permutation brings the
/// two next to each other, and interleaved RoPE rotates such neighbours.
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
