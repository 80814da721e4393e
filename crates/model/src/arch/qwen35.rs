//! Qwen 3.5, 3.6 and 3.8 (dense): gated delta nets, and attention with a gate in every fourth layer.
//!
//! Sections of a head rotate by the time, row and column of an image, interleaved; for text all three are the position.

use super::block::draft::DraftLayer;
use super::block::{self, feed_forward, gated_attention, norm, recurrent, sections};
use super::{Family, StoredForm, WeightConvention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows};
use crate::config::{ModelConfig, RecurrentMixer};
use crate::names::{TensorName, WeightRole};
use millrace_graph::{ValueHeadOrder, ValueId};
use serde_json::{Value, json};

/// Names of gated delta nets.
pub(super) const NAMES: [(WeightRole, &str); 9] = [
    // GGUF files call the norm before the feed-forward so.
    (WeightRole::AttnPostNorm, "post_attention_layernorm"),
    (WeightRole::AttnQkv, "linear_attn.in_proj_qkv"),
    (WeightRole::AttnGate, "linear_attn.in_proj_z"),
    (WeightRole::SsmBeta, "linear_attn.in_proj_b"),
    (WeightRole::SsmAlpha, "linear_attn.in_proj_a"),
    (WeightRole::SsmIn, "linear_attn.in_proj_qkvz"),
    (WeightRole::SsmBetaAlpha, "linear_attn.in_proj_ba"),
    (WeightRole::SsmNorm, "linear_attn.norm"),
    (WeightRole::SsmOut, "linear_attn.out_proj"),
];

/// The layer that predicts further tokens: one that attends, with additional modules beside it.
pub(super) const DRAFT: DraftLayer = DraftLayer {
    block,
    hf_modules: &[
        (WeightRole::DraftProj, "fc"),
        (WeightRole::DraftEmbedNorm, "pre_fc_norm_embedding"),
        (WeightRole::DraftStateNorm, "pre_fc_norm_hidden"),
        (WeightRole::DraftHeadNorm, "norm"),
        (WeightRole::DraftEmbedding, "embed_tokens"),
        (WeightRole::DraftHead, "lm_head"),
    ],
};

pub(super) static FAMILY: Family = Family {
    name: "qwen35",
    gguf_arch: "qwen35",
    hf_model_types: &["qwen3_5_text", "qwen3_5"],
    hf_classes: &["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
    models: "Qwen 3.5, 3.6, 3.8 (dense)",
    unit_norms: true,
    stored,
    hf_names: &NAMES,
    hf_windows: HfWindows::Recurrent,
    hf_partial_rotary: 0.25,
    hf_defaults: HfDefaults {
        vocab_size: 248_320,
        d_model: 4096,
        d_ff: 12_288,
        n_layers: 32,
        n_heads: 16,
        n_kv_heads: Some(4),
        head_dim: Some(256),
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    hf,
    write_hf,
    write_gguf: |config, set| {
        sections::write_gguf(config, set);
        recurrent::write_gguf_delta(config, set);
    },
    // The default of transformers' `Qwen3_5TextRotaryEmbedding`; llama.cpp opens no file without them.
    rope_sections: &[11, 11, 10],
    draft: Some(DRAFT),
    interleaved_sections: true,
    build,
    ..Family::PLAIN
};

/// GGUF files have value heads in turns, one of each key head.
pub(super) fn stored(_: &ModelConfig, (_, layout): (TensorName, WeightConvention)) -> StoredForm {
    StoredForm {
        value_heads: match layout {
            WeightConvention::Gguf => ValueHeadOrder::Tiled,
            WeightConvention::HuggingFace | WeightConvention::Q4nx => ValueHeadOrder::Grouped,
        },
        ..StoredForm::PLAIN
    }
}

pub(super) fn gguf(
    keys: &crate::config::gguf::Keys<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    sections::gguf(keys, config)?;
    recurrent::gguf_delta(keys, config)
}

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    sections::hf(text, config)?;
    recurrent::hf_delta(text, config)
}

pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    sections::write_hf(config, out);
    if !config.rope_sections.is_empty() {
        out["rope_parameters"]["mrope_interleaved"] = json!(true);
    }
    recurrent::write_hf_delta(config, out);
}

pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

/// The layer's mixer of tokens, and the network behind it.
pub(super) fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = mix(b, layer, normed)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::AttnPostNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// A gated delta net, or attention with a gate.
fn mix(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let Some(RecurrentMixer::DeltaNet(delta)) = b.config().mixer_of(layer) else {
        return gated_attention::attend(b, layer, x);
    };
    let order = b.stored(b.name_of(WeightRole::SsmOut)).value_heads;
    recurrent::delta_net(b, &delta, order, x)
}
