//! LFM 3: LFM2's short convolutions; windows in some of the layers that attend, whose rotations differ; norms behind both halves of a
//! block, and a gate on each head of the attention's output.

use super::block::{attention, feed_forward, gated_attention, norm, recurrent};
use super::{Family, lfm2};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, FULL, HfDefaults, HfObject, HfWindows, SLIDING, Spelling};
use crate::config::{HeadGates, ModelConfig, RecurrentMixer, RopeScaling};
use crate::names::{TensorName, WeightRole};
use millrace_graph::{GateFunction, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "lfm3",
    gguf_arch: "lfm3",
    hf_model_types: &["lfm3"],
    hf_classes: &["Lfm3ForCausalLM"],
    models: "LFM 3 1.7B",
    hf_norm_eps: 1e-5,
    local_rope_theta: Some(10_000.0),
    own_roles: &[WeightRole::EmbeddingNorm],
    hf_names: &[
        (WeightRole::EmbeddingNorm, "embedding_norm"),
        (WeightRole::AttnNorm, "operator_norm"),
        (WeightRole::AttnGate, "self_attn.gate_proj"),
        (WeightRole::AttnPostNorm, "post_operator_norm"),
        (WeightRole::FfnNorm, "ffn_norm"),
        (WeightRole::FfnGate, "feed_forward.w1"),
        (WeightRole::FfnUp, "feed_forward.w3"),
        (WeightRole::FfnDown, "feed_forward.w2"),
        (WeightRole::FfnPostNorm, "post_ffn_norm"),
    ],
    hf_windows: HfWindows::BesideRecurrent(256),
    gguf_window_pattern: Some(0),
    hf_defaults: HfDefaults {
        vocab_size: 128_000,
        d_model: 2048,
        d_ff: 7680,
        n_layers: N_LAYERS,
        n_heads: 16,
        n_kv_heads: Some(4),
        head_dim: Some(128),
        context_length: 128_000,
        tied_head: true,
        rope_theta: 1_000_000.0,
    },
    hf_spelling: spelling,
    hf,
    write_hf,
    gguf,
    write_gguf: recurrent::write_gguf_short_conv,
    build,
    ..Family::PLAIN
};

const N_LAYERS: usize = 24;
/// Taps of a convolution of the class.
const N_TAPS: usize = 7;

/// Values that the class computes where a file leaves them out.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    let n_layers = spelling.n_layers("num_hidden_layers", N_LAYERS)?;
    spelling.rename("norm_eps", "rms_norm_eps");
    spelling.default("conv_L_cache", || json!(N_TAPS));
    spelling.default("layer_types", || {
        let word = |layer: usize| match layer % 4 {
            2 => FULL,
            0 if layer > 0 => SLIDING,
            _ => lfm2::CONV_TYPE,
        };
        (0..n_layers).map(word).collect()
    });
    spelling.default("rope_parameters", || {
        json!({
            FULL: {
                "rope_type": "proportional",
                "rope_theta": 1_000_000.0,
                "partial_rotary_factor": 0.5,
            },
            SLIDING: { "rope_type": "default", "rope_theta": 10_000.0 },
        })
    });
    spelling.done()
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases.ffn = false;
    lfm2::set_convolutions(text, config)?;
    config.layers.post_norms = text.bool("use_sandwich_norm")?.unwrap_or(true);
    config.layers.head_gates = match text.bool("use_attention_gate")? {
        Some(false) => HeadGates::Absent,
        None | Some(true) => HeadGates::Heads,
    };
    name_rotation(config);
    Ok(())
}

/// A rotation of all pairs has the name of the files' own, so that files of both kinds say the same.
fn name_rotation(config: &mut ModelConfig) {
    if config.rope.scaling == RopeScaling::None {
        config.rope.scaling = RopeScaling::Proportional {
            factor: 1.0,
            n_rotated: config.n_rot / 2,
        };
    }
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    lfm2::write_hf(config, out);
    let layers = 0..config.n_layers;
    let word = |layer| match (config.mixer_of(layer), config.window_of(layer)) {
        (Some(_), _) => lfm2::CONV_TYPE,
        (None, Some(_)) => SLIDING,
        (None, None) => FULL,
    };
    out["layer_types"] = layers.map(word).collect();
    out["use_sandwich_norm"] = json!(config.layers.post_norms);
    out["use_attention_gate"] = json!(config.layers.head_gates == HeadGates::Heads);
    if config.rope_local.is_none() {
        let one = out["rope_parameters"].take();
        out["rope_parameters"] = json!({ FULL: one.clone(), SLIDING: one });
    }
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    recurrent::gguf_short_conv(keys, config)?;
    let has = |role| {
        let mut layers = 0..config.n_layers.min(crate::config::MAX_LAYERS);
        layers.any(|layer| keys.has(TensorName::block(layer, role)))
    };
    config.layers.post_norms = has(WeightRole::AttnPostNorm);
    if has(WeightRole::AttnGate) {
        config.layers.head_gates = HeadGates::Heads;
    }
    // Divisors that are all equal could also belong to other scalings.
    config.rope = config.rope.as_proportional().unwrap_or(config.rope.clone());
    name_rotation(config);
    Ok(())
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    lfm2::build_of(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let mut out = match b.config().mixer_of(layer) {
        Some(RecurrentMixer::ShortConv { n_taps, biased }) => {
            recurrent::short_conv(b, (n_taps, biased), normed)?
        }
        _ => {
            let heads = attention::project(b, normed)?;
            let heads = attention::norm_heads(b, heads)?;
            gated_attention::attend_scaled(b, layer, GateFunction::Sigmoid, (normed, heads))?
        }
    };
    let has_post_norms = b.config().layers.post_norms;
    if has_post_norms {
        out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
    }
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let mut out = feed_forward::gated(b, normed)?;
    if has_post_norms {
        out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
    }
    Ok(b.residual("ffn_residual", x, out))
}
