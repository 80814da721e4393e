//! OLMo Hybrid: gated delta nets whose states may change their sign, and in every fourth layer attention as in OLMo 2. Layers
//! with a state have norms before their halves, the others behind them. Published models do not rotate. llama.cpp has no
//! name for them.

use super::Family;
use super::block::recurrent::{self, DeltaInputs};
use super::block::{self, attention, feed_forward, kimi_delta, norm};
use super::granitehybrid::ROTATES;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::{ACTIVATION_KEY, Keys};
use crate::config::hf::{ConfigObject, FULL, HfDefaults, HfObject, HfWindows, Spelling, words_of};
use crate::config::{DeltaConfig, MAX_LAYERS, ModelConfig, RecurrentMixer};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{ConcatHeads, ValueHeadOrder, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "olmo-hybrid",
    gguf_arch: "olmo-hybrid",
    hf_model_types: &["olmo_hybrid"],
    hf_classes: &["OlmoHybridForCausalLM"],
    models: "OLMo Hybrid 7B",
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        // A name of a norm has two meanings, by type of layer. The second names are those within transformers.
        (WeightRole::AttnNorm, "attention_layer_norm"),
        (WeightRole::AttnNorm, "input_layernorm"),
        (WeightRole::FfnNorm, "feedforward_layer_norm"),
        (WeightRole::FfnNorm, "post_attention_layernorm"),
        // transformers renames the norm behind attention when it saves a folder.
        (WeightRole::AttnPostNorm, "post_attention_layernorm"),
        (WeightRole::AttnPostNorm, "feedforward_layer_norm"),
        (WeightRole::FfnPostNorm, "post_feedforward_layernorm"),
        (WeightRole::SsmQ, "linear_attn.q_proj"),
        (WeightRole::SsmK, "linear_attn.k_proj"),
        (WeightRole::SsmV, "linear_attn.v_proj"),
        (WeightRole::SsmConvQ, "linear_attn.q_conv1d"),
        (WeightRole::SsmConvK, "linear_attn.k_conv1d"),
        (WeightRole::SsmConvV, "linear_attn.v_conv1d"),
        (WeightRole::SsmAlpha, "linear_attn.a_proj"),
        (WeightRole::SsmBeta, "linear_attn.b_proj"),
        (WeightRole::AttnGate, "linear_attn.g_proj"),
        (WeightRole::SsmNorm, "linear_attn.o_norm"),
        (WeightRole::SsmOut, "linear_attn.o_proj"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 100_352,
        d_model: D_MODEL,
        d_ff: 11_008,
        n_layers: N_LAYERS,
        n_heads: N_HEADS,
        n_kv_heads: None,
        head_dim: None,
        context_length: 65_536,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf_own_keys: &[ACTIVATION_KEY],
    hf_spelling: spelling,
    hf,
    write_hf,
    gguf,
    write_gguf: |config, set| {
        recurrent::write_gguf_delta(config, set);
        set(ROTATES, GgufValue::Bool(config.rotates(0)));
    },
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

const D_MODEL: usize = 3840;
const N_LAYERS: usize = 32;
const N_HEADS: usize = 30;
/// Epsilon of the norm of value heads, whatever the file says of others (`OlmoHybridGatedDeltaNet`).
const VALUE_NORM_EPS: f32 = 1e-5;
/// Whether strengths reach 2.
const NEGATIVE: &str = "linear_allow_neg_eigval";
const ROPE: &str = "rope_parameters";

/// Values that the class computes where a file leaves them out.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    let size = |key: &str, usual: usize| Ok::<_, Error>(text.usize(key)?.unwrap_or(usual));
    let n_layers = spelling.n_layers("num_hidden_layers", N_LAYERS)?;
    let n_heads = size("num_attention_heads", N_HEADS)?;
    let n_k_heads = size("linear_num_key_heads", n_heads)?;
    let d_model = size("hidden_size", D_MODEL)?;
    // `validate` refuses zero heads after this.
    let k_dim = (0.75 * d_model as f64 / n_k_heads.max(1) as f64) as usize;
    let k_dim = size("linear_key_head_dim", k_dim)?;
    spelling.default("linear_num_key_heads", || json!(n_k_heads));
    spelling.default("linear_num_value_heads", || json!(n_heads));
    spelling.default("linear_key_head_dim", || json!(k_dim));
    spelling.default("linear_value_head_dim", || json!(k_dim.saturating_mul(2)));
    spelling.default("layer_types", || {
        let attends = |layer: usize| layer % 4 == 3 || n_layers < 4 && layer + 1 == n_layers;
        words_of(n_layers, [FULL, recurrent::DELTA_TYPE], attends)
    });
    if is_unrotated(text)? {
        spelling.set(ROPE, json!({ "rope_type": "default", "rope_theta": null }));
    }
    spelling.done()
}

/// Whether no head rotates: files of several ages have `null` in place of the whole object, its type, or its base.
fn is_unrotated(text: &ConfigObject<'_>) -> Result<bool, Error> {
    let is_null = |object: &HfObject, key: &str| object.get(key).is_some_and(Value::is_null);
    Ok(match text.object(ROPE)? {
        Some(rope) => is_null(rope.map, "rope_theta") || is_null(rope.map, "rope_type"),
        None => is_null(text.map, ROPE),
    })
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    recurrent::hf_delta(text, config)?;
    let negative = text.bool(NEGATIVE)?.unwrap_or(true);
    if let Some(RecurrentMixer::DeltaNet(delta)) = config.recurrent.as_mut().map(|r| &mut r.mixer) {
        delta.negative_eigenvalues = negative;
    }
    if is_unrotated(text)? {
        set_unrotated(config);
    }
    Ok(())
}

fn set_unrotated(config: &mut ModelConfig) {
    // `validate` refuses more layers after this.
    config.unrotated_layers = (0..config.n_layers.min(MAX_LAYERS)).collect();
    // An odd size of heads need not be refused.
    config.n_rot = config.head_dim / 2 * 2;
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    recurrent::write_hf_delta(config, out);
    let delta = config.recurrent.as_ref().and_then(|r| r.delta());
    out[NEGATIVE] = json!(delta.is_some_and(|delta| delta.negative_eigenvalues));
    if !config.rotates(0) {
        out[ROPE] = json!({ "rope_type": "default", "rope_theta": null });
    }
    if let Some(map) = out.as_object_mut() {
        map.remove("partial_rotary_factor");
    }
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    recurrent::gguf_delta(keys, config)?;
    if keys.bool(ROTATES)? == Some(false) {
        set_unrotated(config);
    }
    Ok(())
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let Some(RecurrentMixer::DeltaNet(delta)) = b.config().mixer_of(layer) else {
        return block::post_normed(b, layer, attention::norm_projections, x);
    };
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = delta_net(b, &delta, normed)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::gated(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// A gated delta net whose queries, keys and values have matrices and convolutions of their own.
fn delta_net(b: &mut GraphBuilder<'_>, delta: &DeltaConfig, x: ValueId) -> Result<ValueId, Error> {
    use WeightRole::{AttnGate, SsmAlpha, SsmBeta, SsmConvK, SsmConvQ, SsmConvV, SsmK, SsmQ, SsmV};
    let (k_width, v_width) = (delta.k_width(), delta.v_width());
    let mut part = |labels: [&'static str; 2], roles: [WeightRole; 2], width: usize| {
        let x = b.linear(labels[0], roles[0], (width, false), x)?;
        kimi_delta::conv(b, (labels[1], roles[1]), delta.n_taps, x)
    };
    let q = part(["ssm_q", "conv_q"], [SsmQ, SsmConvQ], k_width)?;
    let k = part(["ssm_k", "conv_k"], [SsmK, SsmConvK], k_width)?;
    let v = part(["ssm_v", "conv_v"], [SsmV, SsmConvV], v_width)?;
    let qk = beside(b, "ssm_qk", q, k);
    let inputs = DeltaInputs {
        qkv: beside(b, "ssm_qkv", qk, v),
        gate: b.linear("attn_gate", AttnGate, (v_width, false), x)?,
        beta: b.linear("ssm_beta", SsmBeta, (delta.n_v_heads, false), x)?,
        alpha: b.linear("ssm_alpha", SsmAlpha, (delta.n_v_heads, false), x)?,
    };
    let order = ValueHeadOrder::Grouped;
    recurrent::delta_rule(b, (delta, order), inputs, VALUE_NORM_EPS)
}

/// Two values side by side.
fn beside(b: &mut GraphBuilder<'_>, label: &'static str, left: ValueId, right: ValueId) -> ValueId {
    let concat = ConcatHeads {
        n_heads: 1,
        from_a: 0..b.width(left),
        from_b: 0..b.width(right),
    };
    let width = b.width(left) + b.width(right);
    b.push(label, concat.into(), vec![left, right], width)
}
