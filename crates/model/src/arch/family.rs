//! A family: its names, the defaults that its files leave out, and the function that builds its graph.

use super::block::draft::DraftLayer;
use super::llama;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::catalog::Catalog;
use crate::config::gguf::Keys as GgufKeys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfObject, HfWindows};
use crate::config::{Biases, ExpertConfig, ModelConfig};
use crate::names::{HF_PREFIXES, HfNames, HfNorms, TensorName, WeightRole};
use millrace_format::Checkpoint;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, Gating, RopeStyle, ValueHeadOrder};

/// Whose conventions a checkpoint's weights follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightConvention {
    /// As llama.cpp's converter writes them.
    Gguf,
    /// As transformers saves them.
    HuggingFace,
    /// Q4NX bundles: Hugging Face names, but Gemma's embeddings are already scaled and its norms already
    /// hold `1 + w`. In FastFlowLM's bundles its head is a separate tensor. A bundle of this program has only the
    /// head where the head is the table, unscaled.
    Q4nx,
}

/// Conversions of weights from the form in which a layout stores them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conventions {
    /// Which rows of Q and K rotate together. Interleaved files have the rows permuted
    /// ([`crate::names::permutation`]).
    pub rope_style: RopeStyle,
    /// Added to every norm's weight.
    pub norm_offset: f32,
    /// Whether the embedding table already contains the factor [`ModelConfig::embed_scale`].
    pub embed_prescaled: bool,
}

/// How a family chooses experts, where its files do not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertDefaults {
    pub(crate) gating: Gating,
    /// With `Some(eps)`, weights are divided by their sum plus `eps`.
    pub(crate) normalized: Option<f32>,
    /// Number of best experts in a group whose scores add up to the group's.
    pub(crate) group_best: usize,
}

/// How gates and up projections of experts share a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateOrder {
    /// Rows of the gate and of the up projection alternate.
    Alternating,
    /// All rows of the gate come first.
    GateFirst,
    /// The same, in matrices that are transposed in the files of every writer.
    GateFirstTurned,
    /// They are matrices apart. Those of all experts lie below each other in one matrix, and down projections are transposed
    /// (DBRX).
    Stacked,
}

/// The form in which files of a layout hold a tensor, beyond the family's [`Conventions`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StoredForm {
    /// A factor of the configuration that its numbers contain.
    pub(crate) factor: f32,
    /// Whether a norm's weight is the factor itself, also where those of other norms are the difference to 1.
    pub(crate) is_whole_norm: bool,
    /// Order of the value heads of gated delta nets.
    pub(crate) value_heads: ValueHeadOrder,
    /// Whether a vector is a matrix of one row.
    pub(crate) is_row: bool,
}

impl StoredForm {
    /// That of most tensors: the graph's own.
    pub(crate) const PLAIN: StoredForm = StoredForm {
        factor: 1.0,
        is_whole_norm: false,
        value_heads: ValueHeadOrder::Grouped,
        is_row: false,
    };
}

/// Takes a key of GGUF metadata, under the architecture's name, and its value.
pub(crate) type SetKey<'a> = dyn FnMut(&str, GgufValue) + 'a;

/// One row of the table.
#[derive(Debug)]
pub struct Family {
    /// Our name for it.
    pub name: &'static str,
    /// `general.architecture` of its GGUF files.
    pub gguf_arch: &'static str,
    /// `model_type`s of its `config.json`, the causal language model's first.
    pub hf_model_types: &'static [&'static str],
    /// transformers classes, the causal language model's first. None where only GGUF files are read.
    pub hf_classes: &'static [&'static str],
    /// Names of a block's norms in Hugging Face files.
    pub hf_norms: HfNorms,
    /// Activation of the gate, where the configuration gives none.
    pub activation: Activation,
    /// Models it covers, for the list of supported ones.
    pub models: &'static str,
    /// The fixture below `testdata/goldens` that it is held to, where that has another name than the family.
    pub(crate) golden: Option<&'static str>,
    pub(crate) permuted_in_gguf: bool,
    pub(crate) unit_norms: bool,
    pub(crate) scaled_embeddings: bool,
    /// Base of sliding layers' RoPE, in families where it differs.
    pub(crate) local_rope_theta: Option<f32>,
    /// Whether sliding layers rotate without the scaling of the others.
    pub(crate) unscaled_local_rope: bool,
    /// Whether YaRN's `mscale_all_dim` is a factor on scores, squared, and not on cosines and sines alone.
    pub(crate) yarn_scales_scores: bool,
    /// The class's biases, unless `attention_bias` and `mlp_bias` decide.
    pub(crate) hf_biases: Option<Biases>,
    /// Whether the class reads `mlp_bias`.
    pub(crate) hf_mlp_bias: bool,
    /// Whether its hooks read and write the biases of projections.
    pub(crate) hf_own_biases: bool,
    /// Keys of `config.json` with more meanings here than elsewhere. The family's hooks read and write values that other
    /// families read in one way, or refuse.
    pub(crate) hf_own_keys: &'static [&'static str],
    pub(crate) hf_windows: HfWindows,
    pub(crate) hf_defaults: HfDefaults,
    /// Every n-th layer is global when GGUF metadata give a window and no pattern; 0: none is;
    /// `None`: the window is then unused.
    pub(crate) gguf_window_pattern: Option<usize>,
    /// Whether the first, not the last of so many layers is global.
    pub(crate) first_layer_is_global: bool,
    /// Keys of GGUF metadata whose values follow from the family or from its hooks. Other families refuse such values.
    pub(crate) gguf_own_keys: &'static [&'static str],
    /// The attention scale that GGUF readers take without a key.
    pub(crate) gguf_attention_scale: fn(&ModelConfig) -> f32,
    /// Names in Hugging Face files that only this family has, as in [`HfNames::own`].
    pub(crate) hf_names: &'static [(WeightRole, &'static str)],
    /// Its keys for experts in `config.json`; `None` where the class has none.
    pub(crate) hf_experts: Option<HfExperts>,
    /// How experts are chosen where its files do not say.
    pub(crate) experts: ExpertDefaults,
    /// The share of a head that its class rotates, where the configuration gives none.
    pub(crate) hf_partial_rotary: f64,
    /// Whether its class rotates the share of a head that the configuration gives, and a whole head without one.
    pub(crate) hf_rotates_part: bool,
    /// Whether neighbouring elements of a head rotate together, in every layout.
    pub(crate) interleaved: bool,
    /// The order of gates and up projections in Hugging Face files that hold experts' matrices transposed.
    pub(crate) hf_turned_experts: Option<GateOrder>,
    /// The key of `config.json` by which heads of queries and keys have norms or have none.
    pub(crate) hf_qk_norm: Option<&'static str>,
    /// Whether its files give the divisor of logits, not the factor on them.
    pub(crate) logit_divisor: bool,
    /// Whether its norms take mean and variance.
    pub(crate) layer_norms: bool,
    /// Epsilon of norms that the class takes where the configuration gives none.
    pub(crate) hf_norm_eps: f32,
    /// Roles that its checkpoints have in addition to, or in place of, those of every family.
    pub(crate) own_roles: &'static [WeightRole],
    /// Roles that its GGUF files have and its Hugging Face files lack.
    pub(crate) gguf_roles: &'static [WeightRole],
    /// Roles that its Hugging Face files have and its GGUF files lack.
    pub(crate) hf_roles: &'static [WeightRole],
    /// Prefix of names in its Hugging Face files, as its class writes them.
    pub(crate) hf_prefix: &'static str,
    /// Name of the list of blocks in its Hugging Face files.
    pub(crate) hf_layers: &'static str,
    /// Whether sizes of heads and networks may differ by layer.
    pub(crate) sizes_by_layer: bool,
    /// Whether heads of values may be smaller than heads of keys.
    pub(crate) small_values: bool,
    /// Whether heads rotate against the usual direction, in every layout.
    pub(crate) rotates_back: bool,
    /// Whether its blocks are a recurrent layer and nothing else.
    pub(crate) attention_free: bool,
    /// Sets values that no file of it gives, whichever its layout. The hooks below come after it.
    pub(crate) fixed: fn(&mut ModelConfig),
    /// Reads keys that only its GGUF files have, and fills in values that they leave out.
    pub(crate) gguf: fn(&GgufKeys<'_>, &mut ModelConfig) -> Result<(), Error>,
    /// The object of a `config.json` under the keys of its transformers class, where published files have others or leave
    /// out values that the class computes from others; `None` for one that needs no change.
    pub(crate) hf_spelling: fn(&ConfigObject<'_>) -> Result<Option<HfObject>, Error>,
    /// Reads keys that only its `config.json` has.
    pub(crate) hf: fn(&ConfigObject<'_>, &mut ModelConfig) -> Result<(), Error>,
    /// The family of a `config.json` that is written for its GGUF files, where that is another one.
    pub(crate) hf_family: fn(&ModelConfig) -> Option<&'static str>,
    /// The family of a GGUF file that is written for its folders, where that is another one.
    pub(crate) gguf_family: fn(&ModelConfig) -> Option<&'static str>,
    /// Reads values that its files of a layout give only in the numbers of tensors.
    pub(crate) tensors: fn(&Checkpoint, &Catalog<'_>, &mut ModelConfig) -> Result<(), Error>,
    /// The numbers of a tensor that its files of this layout have and those of another lack.
    pub(crate) values: fn(&ModelConfig, (TensorName, WeightConvention)) -> Option<Vec<f32>>,
    /// Writes the keys that only its `config.json` has.
    pub(crate) write_hf: fn(&ModelConfig, &mut serde_json::Value),
    /// The part of a configuration that its `config.json` cannot express, in words.
    pub(crate) hf_unsayable: fn(&ModelConfig) -> Option<String>,
    /// Writes keys that only its GGUF files have; a key that is already there is replaced.
    pub(crate) write_gguf: fn(&ModelConfig, &mut SetKey<'_>),
    /// Sections of a head that rotate by the places of an image, where files give none.
    pub(crate) rope_sections: &'static [usize],
    /// Whether those sections alternate pair by pair, and are not one behind the other.
    pub(crate) interleaved_sections: bool,
    /// The form of a tensor in its files of this layout.
    pub(crate) stored: fn(&ModelConfig, (TensorName, WeightConvention)) -> StoredForm,
    /// The layer that predicts further tokens, in families whose files may have one.
    pub(crate) draft: Option<DraftLayer>,
    /// Builds its graph. It asks for weights in the order in which llama.cpp's converter writes those of a block.
    pub(crate) build: fn(&mut GraphBuilder<'_>) -> Result<(), Error>,
}

impl Family {
    /// Llama's conventions without names: a family states its differences.
    pub(super) const PLAIN: Family = Family {
        name: "",
        gguf_arch: "",
        hf_model_types: &[],
        hf_classes: &[],
        hf_norms: HfNorms::Pre,
        activation: Activation::Silu,
        models: "",
        golden: None,
        permuted_in_gguf: false,
        unit_norms: false,
        scaled_embeddings: false,
        local_rope_theta: None,
        unscaled_local_rope: false,
        yarn_scales_scores: false,
        hf_biases: None,
        hf_mlp_bias: false,
        hf_own_biases: false,
        hf_own_keys: &[],
        hf_windows: HfWindows::Never,
        hf_defaults: HfDefaults {
            vocab_size: 32_000,
            d_model: 4096,
            d_ff: 11_008,
            n_layers: 32,
            n_heads: 32,
            n_kv_heads: None,
            head_dim: None,
            context_length: 2048,
            tied_head: false,
            rope_theta: 10_000.0,
        },
        gguf_window_pattern: None,
        first_layer_is_global: false,
        gguf_own_keys: &[],
        gguf_attention_scale: |config| attention_scale(config, config.head_dim),
        hf_names: &[],
        hf_experts: None,
        experts: ExpertDefaults {
            gating: Gating::Softmax,
            normalized: Some(0.0),
            group_best: 2,
        },
        hf_partial_rotary: 1.0,
        hf_rotates_part: false,
        interleaved: false,
        hf_turned_experts: None,
        hf_qk_norm: None,
        logit_divisor: false,
        layer_norms: false,
        hf_norm_eps: 1e-6,
        own_roles: &[],
        gguf_roles: &[],
        hf_roles: &[],
        sizes_by_layer: false,
        small_values: false,
        rotates_back: false,
        hf_prefix: HF_PREFIXES[0],
        hf_layers: "layers",
        attention_free: false,
        fixed: |_| {},
        gguf: |_, _| Ok(()),
        hf_spelling: |_| Ok(None),
        hf: |_, _| Ok(()),
        hf_family: |_| None,
        gguf_family: |_| None,
        tensors: |_, _, _| Ok(()),
        values: |_, _| None,
        write_hf: |_, _| {},
        hf_unsayable: |_| None,
        write_gguf: |_, _| {},
        rope_sections: &[],
        interleaved_sections: false,
        stored: |_, _| StoredForm::PLAIN,
        draft: None,
        build: llama::build,
    };

    /// Whether it makes vectors of texts, and its tokens see each other both ways.
    pub fn is_encoder(&self) -> bool {
        super::encoders().any(|encoder| encoder.name == self.name)
    }

    /// Whether it drafts for another model with that model's keys and values, and runs with it alone.
    pub fn is_assistant(&self) -> bool {
        super::assistants().any(|assistant| assistant.name == self.name)
    }

    /// How its Hugging Face files name modules.
    pub fn hf_names(&self) -> HfNames {
        HfNames {
            norms: self.hf_norms,
            own: self.hf_names,
            layers: self.hf_layers,
        }
    }

    /// Whether its hooks read and write this key of `config.json`.
    pub(crate) fn owns_hf_key(&self, key: &str) -> bool {
        self.hf_own_keys.contains(&key)
    }

    /// Whether this key of GGUF metadata follows from the family or from its hooks.
    pub(crate) fn owns_gguf_key(&self, key: &str) -> bool {
        self.gguf_own_keys.contains(&key)
    }

    /// The folder below `testdata/goldens` with the results of transformers for a tiny model of it. A family that runs
    /// from GGUF files alone has those of a cousin that computes the same.
    pub fn golden(&self) -> &'static str {
        self.golden.unwrap_or(self.name)
    }

    /// Whether its folders may give a share of each head that rotates.
    pub(crate) fn rotates_part(&self) -> bool {
        self.hf_rotates_part || self.hf_partial_rotary != 1.0
    }

    /// How weights stored in `layout` are to be read.
    pub fn conventions(&self, layout: WeightConvention) -> Conventions {
        let permuted = self.permuted_in_gguf && layout == WeightConvention::Gguf;
        let interleaved = self.interleaved || permuted;
        Conventions {
            rope_style: match interleaved {
                true => RopeStyle::Interleaved,
                false => RopeStyle::HalfSplit,
            },
            norm_offset: match (self.unit_norms, layout) {
                (true, WeightConvention::HuggingFace) => 1.0,
                _ => 0.0,
            },
            embed_prescaled: self.scaled_embeddings && layout == WeightConvention::Q4nx,
        }
    }

    /// The number to add to the weight of a norm in files of a layout.
    pub(crate) fn norm_offset(
        &self,
        config: &ModelConfig,
        (name, layout): (TensorName, WeightConvention),
    ) -> f32 {
        match (self.stored)(config, (name, layout)).is_whole_norm {
            true => 0.0,
            false => self.conventions(layout).norm_offset,
        }
    }

    /// The number of heads whose rows GGUF permutes in the weight and bias of this role
    /// ([`crate::names::permutation`]); `None` for a tensor stored as Hugging Face does.
    pub fn permuted_heads(&self, config: &ModelConfig, role: WeightRole) -> Option<usize> {
        match role {
            WeightRole::AttnQ if self.permuted_in_gguf => Some(config.n_heads),
            WeightRole::AttnK if self.permuted_in_gguf => Some(config.n_kv_heads),
            _ => None,
        }
    }

    /// Experts of these sizes (how many, how many a token uses, their width), chosen as the family does.
    pub(crate) fn expert_config(&self, [n_experts, n_used, d_ff]: [usize; 3]) -> ExpertConfig {
        ExpertConfig {
            n_experts,
            n_used,
            d_ff,
            gating: self.experts.gating,
            normalized: self.experts.normalized,
            scale: 1.0,
            groups: None,
            choice_bias: self.hf_experts.is_some_and(|keys| keys.choice_bias),
            shared_d_ff: 0,
            shared_gate: false,
            n_dense_layers: 0,
            every: 1,
            dense_layers: Vec::new(),
            biases: self.hf_experts.is_some_and(|keys| keys.biases),
            softcap: None,
            latent_dim: 0,
        }
    }

    /// The configuration of its folder, which may be another family's.
    pub(crate) fn in_folders(&self, config: &ModelConfig) -> ModelConfig {
        ModelConfig {
            family: (self.hf_family)(config).unwrap_or(config.family),
            ..config.clone()
        }
    }

    /// The configuration of its GGUF file, whose table and head may contain factors.
    pub(crate) fn folded(&self, config: &ModelConfig) -> ModelConfig {
        let factor = |role| {
            let name = TensorName::global(role);
            (self.stored)(config, (name, WeightConvention::Gguf)).factor
        };
        let [table, head] = [WeightRole::TokenEmbedding, WeightRole::Output].map(factor);
        ModelConfig {
            family: (self.gguf_family)(config).unwrap_or(config.family),
            embed_scale: config.embed_scale / table,
            logit_scale: config.logit_scale / head,
            // One matrix has one factor.
            tied_head: config.tied_head && table == head,
            ..config.clone()
        }
    }

    pub(crate) fn embed_scale(&self, d_model: usize) -> f32 {
        if self.scaled_embeddings {
            (d_model as f32).sqrt()
        } else {
            1.0
        }
    }

    /// Whether `layer` slides where every `pattern`-th is global; none is with a pattern of 0 (llama.cpp, `set_swa_pattern`).
    pub(crate) fn slides(&self, layer: usize, pattern: usize) -> bool {
        let place = match self.first_layer_is_global {
            true => layer,
            false => layer + 1,
        };
        pattern == 0 || !place.is_multiple_of(pattern)
    }
}

/// The factor on scores of heads of this size: the inverse root, times RoPE's own factor.
pub(super) fn attention_scale(config: &ModelConfig, head_dim: usize) -> f32 {
    config.rope.score_factor() / (head_dim as f32).sqrt()
}
