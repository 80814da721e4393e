//! Falcon (2023): attention and a network without a gate side by side, behind one LayerNorm or one each; one key head, or
//! one for each group of query heads. In Falcon RW the network comes behind the attention, and biases by distance replace
//! rotations.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use super::bloom::{MAX_DISTANCE_BIAS, set_distance_biases};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::{ACTIVATION_KEY, DISTANCE_BIAS_KEY, Keys};
use crate::config::hf::{ConfigObject, HfDefaults, activation_of, shortest};
use crate::config::{Biases, BlockForm, MAX_LAYERS, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = COMMON;

/// Falcon RW's GGUF files. llama.cpp knows none, and would compute its files of Falcon with rotations.
pub(super) static RW: Family = Family {
    name: RW_NAME,
    gguf_arch: RW_NAME,
    golden: Some("falcon-rw"),
    hf_model_types: &[],
    hf_classes: &[],
    models: "Falcon RW (from GGUF files)",
    gguf_own_keys: &[ACTIVATION_KEY, DISTANCE_BIAS_KEY],
    hf_family: |_| Some("falcon"),
    gguf_family: |_| None,
    write_gguf: |config, set| {
        if let Some(max_bias) = config.max_distance_bias {
            set(DISTANCE_BIAS_KEY, GgufValue::F32(max_bias));
        }
    },
    ..COMMON
};

const RW_NAME: &str = "falcon-rw";

const COMMON: Family = Family {
    name: "falcon",
    gguf_arch: "falcon",
    hf_model_types: &["falcon", "RefinedWeb", "RefinedWebModel"],
    hf_classes: &["FalconForCausalLM", "RWForCausalLM"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "word_embeddings"),
        (WeightRole::AttnQkv, "self_attention.query_key_value"),
        (WeightRole::AttnOutput, "self_attention.dense"),
        (WeightRole::FfnUp, "mlp.dense_h_to_4h"),
        (WeightRole::FfnDown, "mlp.dense_4h_to_h"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    activation: Activation::Gelu,
    models: "Falcon 7B, 40B, 180B; Falcon 2 11B; Falcon RW 1B, 7B",
    hf_own_biases: true,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 65_024,
        d_model: 4544,
        d_ff: 18_176,
        n_layers: 32,
        n_heads: 71,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnNorm2,
        WeightRole::FfnNormBeside,
        WeightRole::FfnNorm,
        WeightRole::AttnQkv,
        WeightRole::OutputNorm,
    ],
    gguf,
    gguf_family: |config| {
        let is_usual =
            config.max_distance_bias.is_none() && config.layers.form != BlockForm::Sequential;
        (!is_usual).then_some(RW_NAME)
    },
    hf,
    write_hf,
    hf_unsayable,
    build: |b| block::decoder(b, block_of_form),
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let has = |role| keys.has(TensorName::block(0, role));
    config.layers.form = match (has(WeightRole::AttnNorm2), has(WeightRole::FfnNorm)) {
        (true, _) => BlockForm::ParallelNorms,
        (false, true) => BlockForm::Sequential,
        (false, false) => BlockForm::Parallel,
    };
    if let Some(max_bias) = keys.f32(DISTANCE_BIAS_KEY)?.filter(|bias| *bias > 0.0) {
        set_scaled_distance_biases(config, max_bias);
    }
    Ok(())
}

/// The class adds biases to scores before it divides by the root of the head size.
fn set_scaled_distance_biases(config: &mut ModelConfig, max_bias: f32) {
    set_distance_biases(config, max_bias);
    config.layers.scaled_distance_biases = true;
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let is_new = text.bool("new_decoder_architecture")?.unwrap_or(false);
    let is_parallel = is_new || text.bool("parallel_attn")?.unwrap_or(true);
    let n_norms = text.usize("num_ln_in_parallel_attn")?;
    config.layers.form = match (is_new, n_norms) {
        (true, None | Some(2)) => BlockForm::ParallelNorms,
        _ if is_parallel => BlockForm::Parallel,
        _ => BlockForm::Sequential,
    };
    // Names of the first published files.
    if let Some(n_heads) = text.usize("n_head")? {
        config.n_heads = n_heads;
        config.head_dim = config.d_model / n_heads.max(1);
        config.n_rot = config.head_dim;
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
    }
    if let Some(n_layers) = text.usize("n_layer")? {
        config.n_layers = n_layers;
        config.layer_windowed = vec![false; n_layers.min(MAX_LAYERS)];
    }
    let n_grouped = text.usize("num_kv_heads")?.or(text.usize("n_head_kv")?);
    config.n_kv_heads = match (is_new, text.bool("multi_query")?.unwrap_or(true)) {
        (true, _) => n_grouped.unwrap_or(config.n_heads),
        (false, true) => 1,
        (false, false) => config.n_heads,
    };
    let d_ff = text.usize("ffn_hidden_size")?;
    config.d_ff = d_ff.unwrap_or_else(|| config.d_model.saturating_mul(4));
    let all = text.bool("bias")?.unwrap_or(false);
    config.biases = Biases {
        qkv: all,
        attn_output: all,
        ffn: all,
    };
    if let Some(eps) = text.f32("layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    if let Some(activation) = activation_of(text, "activation")? {
        config.activation = activation;
    }
    if text.bool("alibi")?.unwrap_or(false) {
        set_scaled_distance_biases(config, MAX_DISTANCE_BIAS);
    }
    Ok(())
}

/// The class has one spread of biases by distance. A network behind the attention goes with one key head, or as many as
/// query heads.
fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    if let Some(bias) = config
        .max_distance_bias
        .filter(|bias| *bias != MAX_DISTANCE_BIAS)
    {
        return Some(format!("biases by distance of {bias} in Falcon"));
    }
    let is_old = config.layers.form == BlockForm::Sequential;
    let has_groups = ![1, config.n_heads].contains(&config.n_kv_heads);
    (is_old && has_groups).then(|| {
        let n_kv_heads = config.n_kv_heads;
        format!("{n_kv_heads} key heads with a network behind the attention in Falcon")
    })
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    // The new architecture allows any number of key heads, and always has both halves side by side.
    let is_new = config.layers.form != BlockForm::Sequential;
    out["new_decoder_architecture"] = json!(is_new);
    match is_new {
        true => {
            let two_norms = config.layers.form == BlockForm::ParallelNorms;
            out["num_ln_in_parallel_attn"] = json!(if two_norms { 2 } else { 1 });
        }
        false => out["multi_query"] = json!(config.n_kv_heads < config.n_heads),
    }
    out["num_kv_heads"] = json!(config.n_kv_heads);
    out["ffn_hidden_size"] = json!(config.d_ff);
    out["bias"] = json!(config.biases.ffn);
    out["alibi"] = json!(config.max_distance_bias.is_some());
    out["parallel_attn"] = json!(is_new);
    out["layer_norm_epsilon"] = shortest(config.norm_eps);
    out["activation"] = out["hidden_act"].take();
    if let Some(map) = out.as_object_mut() {
        map.remove("hidden_act");
        // transformers computes it, and accepts no other.
        map.remove("head_dim");
    }
}

fn block_of_form(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let (for_heads, for_network) = match b.config().layers.form {
        BlockForm::Sequential | BlockForm::PostNorms => {
            return block::ungated(b, layer, attention::project_by_groups, x);
        }
        BlockForm::ParallelNorms => {
            let of_network = norm::stream(b, "ffn_norm", WeightRole::FfnNormBeside, x)?;
            let of_heads = norm::stream(b, "attn_norm", WeightRole::AttnNorm2, x)?;
            (of_heads, of_network)
        }
        BlockForm::Parallel => {
            let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
            (normed, normed)
        }
    };
    let heads = attention::project_by_groups(b, for_heads)?;
    let attended = attention::attend(b, layer, heads)?;
    let out = feed_forward::plain(b, for_network)?;
    let x = b.residual("attn_residual", x, attended);
    Ok(b.residual("ffn_residual", x, out))
}
