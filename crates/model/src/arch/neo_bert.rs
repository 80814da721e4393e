//! NeoBERT: Llama's blocks whose tokens see each other both ways. Neighbours rotate together, and one matrix holds queries,
//! keys and values head by head.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, EncoderConfig, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::ValueId;
use serde_json::{Value, json};

/// Networks have widths that are multiples of it.
const MULTIPLE: usize = 8;
const ACTIVATION: &str = "hidden_act";

pub(super) static FAMILY: Family = Family {
    name: "neo-bert",
    gguf_arch: "neo-bert",
    hf_model_types: &["neobert"],
    hf_classes: &["NeoBERT", "NeoBERTLMHead"],
    hf_prefix: "",
    hf_layers: "transformer_encoder",
    hf_names: &[
        (WeightRole::TokenEmbedding, "encoder"),
        (WeightRole::AttnNorm, "attention_norm"),
        (WeightRole::AttnQkv, "qkv"),
        (WeightRole::AttnOutput, "wo"),
        (WeightRole::FfnNorm, "ffn_norm"),
        (WeightRole::FfnGateUp, "ffn.w12"),
        (WeightRole::FfnDown, "ffn.w3"),
        (WeightRole::EncoderNorm, "layer_norm"),
    ],
    models: "NeoBERT",
    interleaved: true,
    hf_own_keys: &[ACTIVATION],
    hf_biases: Some(Biases::NONE),
    hf_defaults: HfDefaults {
        vocab_size: 30_522,
        d_model: 768,
        d_ff: 2048,
        n_layers: 28,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 1024,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[WeightRole::AttnQkv, WeightRole::FfnGateUp],
    hf,
    write_hf,
    hf_unsayable: |config| {
        let is_multiple = config.d_ff.is_multiple_of(MULTIPLE);
        (!is_multiple).then(|| format!("networks of width {} in NeoBERT", config.d_ff))
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: |b| {
        let x = b.embed()?;
        let x = block::blocks(b, block, x)?;
        let normed = norm::stream(b, "output_norm", WeightRole::EncoderNorm, x)?;
        b.encoded(normed);
        Ok(())
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    // Keys of other models that the authors' code trains, with the values of published ones.
    for (key, usual) in [("rope", true), ("rms_norm", true), ("ngpt", false)] {
        if let Some(found) = text.bool(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    let name = text.str(ACTIVATION)?.unwrap_or("swiglu");
    if !name.eq_ignore_ascii_case("swiglu") {
        let feature = format!("activation `{name}` (`{ACTIVATION}`)");
        return Err(text.unsupported(feature, "swiglu"));
    }
    let inner = text.usize("intermediate_size")?.unwrap_or(3072);
    config.d_ff = (inner.saturating_mul(2) / 3).next_multiple_of(MULTIPLE);
    config.norm_eps = text.f32("norm_eps")?.unwrap_or(FAMILY.hf_norm_eps);
    if let Some(length) = text.usize("max_length")? {
        config.context_length = length;
    }
    config.encoder = Some(EncoderConfig::default());
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    *out = json!({
        "architectures": [FAMILY.hf_classes[0]],
        "model_type": "neobert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        // Two thirds of it are the width.
        "intermediate_size": config.d_ff.saturating_mul(3) / 2,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "max_length": config.context_length,
        "norm_eps": shortest(config.norm_eps),
    });
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project_by_groups_of_file(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::gated_in_one(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
