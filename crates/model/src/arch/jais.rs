//! Jais of the first generation: GPT-2's blocks with gated networks and biases by distance. Embeddings and logits have
//! factors, and scores are divided by the size of a head. Folders have matrices transposed.

use super::block::{self, attention, feed_forward, norm};
use super::bloom::{MAX_DISTANCE_BIAS, set_distance_biases, unsayable_heads};
use super::gpt2::{self, hf_words, write_words};
use super::{Family, StoredForm, WeightConvention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::{DISTANCE_BIAS_KEY, Keys};
use crate::config::hf::{ConfigObject, HfObject, Spelling, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::ValueId;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "jais",
    gguf_arch: "jais",
    hf_model_types: &["jais"],
    hf_classes: &["JAISLMHeadModel"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQkv, "attn.c_attn"),
        (WeightRole::AttnOutput, "attn.c_proj"),
        (WeightRole::FfnNorm, "ln_2"),
        (WeightRole::FfnUp, "mlp.c_fc"),
        (WeightRole::FfnGate, "mlp.c_fc2"),
        (WeightRole::FfnDown, "mlp.c_proj"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    models: "Jais 13B, 30B, Jais family 590M to 13B (first generation)",
    gguf_own_keys: &[DISTANCE_BIAS_KEY],
    gguf_attention_scale: |config| 1.0 / config.head_dim as f32,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_defaults: gpt2::DEFAULTS,
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    stored: |config, (name, layout)| StoredForm {
        factor: match (layout, name.role) {
            (WeightConvention::Gguf, WeightRole::TokenEmbedding) => config.embed_scale,
            (WeightConvention::Gguf, WeightRole::Output) => config.logit_scale,
            _ => 1.0,
        },
        ..StoredForm::PLAIN
    },
    gguf,
    hf_spelling: spelling,
    hf,
    write_hf,
    hf_unsayable,
    write_gguf: |config, set| {
        let max_bias = config.max_distance_bias.unwrap_or_default();
        set(DISTANCE_BIAS_KEY, GgufValue::F32(max_bias));
    },
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

/// Keys of the first published files, and those of later ones.
const OLDER: [(&str, &str); 3] = [
    ("embeddings_scale", EMBED_SCALE),
    ("width_scale", WIDTH_SCALE),
    ("scale_qk_dot_by_d", DIVIDES_BY_SIZE),
];
const EMBED_SCALE: &str = "mup_embeddings_scale";
const WIDTH_SCALE: &str = "mup_width_scale";
const OUTPUT_SCALE: &str = "mup_output_alpha";
/// Whether scores are divided by the size of a head, and not by its root.
const DIVIDES_BY_SIZE: &str = "mup_scale_qk_dot_by_d";
const ACTIVATION: &str = "activation_function";
const POSITIONS: &str = "position_embedding_type";

fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    for (older, newer) in OLDER {
        spelling.rename(older, newer);
    }
    for (key, usual, expected) in [
        (ACTIVATION, "gelu_new", "swiglu"),
        (POSITIONS, "learned", "alibi"),
    ] {
        let found = text.str(key)?.unwrap_or(usual);
        if found != expected {
            let feature = format!("`{key}` = {found} in Jais");
            return Err(text.unsupported(feature, expected));
        }
        spelling.remove(key);
    }
    spelling.done()
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text
        .get("alibi_scaling")
        .is_some_and(|found| !found.is_null())
    {
        let feature = "biases by distance that change with the length (`alibi_scaling`)".into();
        return Err(text.unsupported(feature, "null"));
    }
    hf_words(text, config, &FAMILY.hf_defaults)?;
    let factor = |key: &str| Ok::<_, Error>(text.f32(key)?.unwrap_or(1.0));
    config.embed_scale = factor(EMBED_SCALE)?;
    config.logit_scale = factor(OUTPUT_SCALE)? * factor(WIDTH_SCALE)?;
    if text.bool(DIVIDES_BY_SIZE)?.unwrap_or(false) {
        config.attention_scale = 1.0 / config.head_dim as f32;
    }
    set_distance_biases(config, MAX_DISTANCE_BIAS);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_words(config, &FAMILY, out);
    out[ACTIVATION] = json!("swiglu");
    out[POSITIONS] = json!("alibi");
    out[EMBED_SCALE] = shortest(config.embed_scale);
    out[OUTPUT_SCALE] = json!(1.0);
    out[WIDTH_SCALE] = shortest(config.logit_scale);
    out[DIVIDES_BY_SIZE] = json!(config.attention_scale != root_scale(config));
}

/// The factor on scores that other models have.
fn root_scale(config: &ModelConfig) -> f32 {
    1.0 / (config.head_dim as f32).sqrt()
}

/// The class has one spread of biases by distance, two factors on scores, and heads as wide as the stream.
fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    if config.max_distance_bias != Some(MAX_DISTANCE_BIAS) {
        let max_bias = config.max_distance_bias;
        return Some(format!("biases by distance of {max_bias:?} in Jais"));
    }
    let scale = config.attention_scale;
    if ![root_scale(config), 1.0 / config.head_dim as f32].contains(&scale) {
        return Some(format!("a factor of {scale} on scores in Jais"));
    }
    unsayable_heads(config, "Jais")
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    // The table of a file has the embeddings' factor in it, and no key says which: it cannot serve as the head.
    config.tied_head = false;
    match keys.f32(DISTANCE_BIAS_KEY)?.filter(|bias| *bias > 0.0) {
        Some(max_bias) => set_distance_biases(config, max_bias),
        None => {
            let feature = "`jais` without biases by distance".into();
            return Err(keys.unsupported(feature, "`jais.attention.max_alibi_bias` above 0"));
        }
    }
    Ok(())
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let is_turned = !b.is_gguf();
    let (d_ff, d_model) = (b.d_ff(), b.config().d_model);
    let product = |b: &mut GraphBuilder<'_>, label, role, (n, x): (usize, ValueId)| match is_turned
    {
        true => gpt2::linear(b, label, role, (n, x)),
        false => b.linear(label, role, (n, true), x),
    };
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = match is_turned {
        true => gpt2::project(b, normed)?,
        false => attention::project(b, normed)?,
    };
    let heads = attention::attend_rotated(b, layer, heads)?;
    let out = product(b, "attn_output", WeightRole::AttnOutput, (d_model, heads))?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let gate = product(b, "ffn_gate", WeightRole::FfnGate, (d_ff, normed))?;
    let up = product(b, "ffn_up", WeightRole::FfnUp, (d_ff, normed))?;
    let out = feed_forward::glu(b, "ffn_glu", gate, up);
    let out = product(b, "ffn_down", WeightRole::FfnDown, (d_model, out))?;
    Ok(b.residual("ffn_residual", x, out))
}
