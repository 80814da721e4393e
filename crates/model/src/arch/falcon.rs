//! Falcon (2023): attention and a network without a gate side by side, behind one LayerNorm or one each. There is one key
//! head, or one for each group of query heads.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, activation_of, shortest};
use crate::config::{Biases, BlockForm, MAX_LAYERS, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_graph::{Activation, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
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
    models: "Falcon 7B, 40B, 180B; Falcon 2 11B",
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
        WeightRole::AttnQkv,
        WeightRole::OutputNorm,
    ],
    gguf,
    hf,
    write_hf,
    build: |b| block::decoder(b, beside),
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let second = TensorName::block(0, WeightRole::AttnNorm2);
    config.layers.form = match keys.has(second) {
        true => BlockForm::ParallelNorms,
        false => BlockForm::Parallel,
    };
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("alibi")? == Some(true) {
        let feature = "biases by distance (`alibi`)".into();
        return Err(text.unsupported(feature, "models whose heads rotate"));
    }
    let is_new = text.bool("new_decoder_architecture")?.unwrap_or(false);
    if !is_new && text.bool("parallel_attn")? == Some(false) {
        let feature = "`parallel_attn` = false".into();
        return Err(text.unsupported(feature, "attention and network side by side"));
    }
    let n_norms = text.usize("num_ln_in_parallel_attn")?;
    config.layers.form = match (is_new, n_norms) {
        (true, None | Some(2)) => BlockForm::ParallelNorms,
        _ => BlockForm::Parallel,
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
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    // The new architecture allows any number of key heads.
    let two_norms = config.layers.form == BlockForm::ParallelNorms;
    out["new_decoder_architecture"] = json!(true);
    out["num_ln_in_parallel_attn"] = json!(if two_norms { 2 } else { 1 });
    out["num_kv_heads"] = json!(config.n_kv_heads);
    out["ffn_hidden_size"] = json!(config.d_ff);
    out["bias"] = json!(config.biases.ffn);
    out["alibi"] = json!(false);
    out["parallel_attn"] = json!(true);
    out["layer_norm_epsilon"] = shortest(config.norm_eps);
    out["activation"] = out["hidden_act"].take();
    if let Some(map) = out.as_object_mut() {
        map.remove("hidden_act");
        // transformers computes it, and accepts no other.
        map.remove("head_dim");
    }
}

fn beside(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let (for_heads, for_network) = match b.config().layers.form {
        BlockForm::ParallelNorms => {
            let of_network = norm::stream(b, "ffn_norm", WeightRole::FfnNormBeside, x)?;
            let of_heads = norm::stream(b, "attn_norm", WeightRole::AttnNorm2, x)?;
            (of_heads, of_network)
        }
        BlockForm::Sequential | BlockForm::Parallel => {
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
