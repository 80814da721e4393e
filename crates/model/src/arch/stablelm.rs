//! StableLM: Llama with LayerNorms; a quarter of each head rotates. In the 12B of the second generation attention and
//! feed-forward run side by side, and each head of queries and keys has its own LayerNorm.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, BlockForm, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use millrace_graph::ValueId;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "stablelm",
    gguf_arch: "stablelm",
    hf_model_types: &["stablelm"],
    hf_classes: &["StableLmForCausalLM"],
    hf_names: &[
        (WeightRole::AttnQNorm, "self_attn.q_layernorm.norms.{}"),
        (WeightRole::AttnKNorm, "self_attn.k_layernorm.norms.{}"),
    ],
    models: "StableLM 3B, StableLM 2 1.6B and 12B",
    hf_qk_norm: Some("qk_layernorm"),
    hf_own_biases: true,
    hf_partial_rotary: 0.25,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        d_model: 2560,
        d_ff: 6912,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(32),
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf,
    hf,
    write_hf: |config, out| {
        out["use_qkv_bias"] = json!(config.biases.qkv);
        out["layer_norm_eps"] = shortest(config.norm_eps);
        out[PARALLEL] = json!(config.layers.form == BlockForm::Parallel);
    },
    write_gguf: |config, set| {
        let is_parallel = config.layers.form == BlockForm::Parallel;
        set(PARALLEL, GgufValue::Bool(is_parallel));
    },
    build: |b| block::decoder(b, of_form),
    ..Family::PLAIN
};

const PARALLEL: &str = "use_parallel_residual";

/// llama.cpp goes by the norm before the feed-forward and ignores the key (`stablelm.cpp`).
fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.form = match keys.has(TensorName::block(0, WeightRole::FfnNorm)) {
        true => BlockForm::Sequential,
        false => BlockForm::Parallel,
    };
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.form = match text.bool(PARALLEL)? {
        Some(true) => BlockForm::Parallel,
        _ => BlockForm::Sequential,
    };
    config.biases = Biases {
        qkv: text.bool("use_qkv_bias")?.unwrap_or(false),
        attn_output: false,
        ffn: false,
    };
    Ok(())
}

fn of_form(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    if b.config().layers.form == BlockForm::Parallel {
        return block::parallel(b, layer, x);
    }
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let mut heads = attention::project(b, normed)?;
    if b.config().qk_norm {
        heads = attention::layer_norm_heads(b, heads)?;
    }
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
