//! GPT-NeoX and Pythia: LayerNorms, a network without a gate, biases everywhere; a quarter of each head rotates. Attention
//! and network run side by side, each behind its own norm, in all but a few models.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, BlockForm, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ValueId};
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "gptneox",
    gguf_arch: "gptneox",
    hf_model_types: &["gpt_neox"],
    hf_classes: &["GPTNeoXForCausalLM"],
    hf_prefix: "gpt_neox.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "embed_in"),
        (WeightRole::AttnQkv, "attention.query_key_value"),
        (WeightRole::AttnOutput, "attention.dense"),
        (WeightRole::FfnUp, "mlp.dense_h_to_4h"),
        (WeightRole::FfnDown, "mlp.dense_4h_to_h"),
        (WeightRole::OutputNorm, "final_layer_norm"),
        (WeightRole::Output, "embed_out"),
    ],
    activation: Activation::Gelu,
    models: "GPT-NeoX, Pythia, Dolly 2, RedPajama-INCITE",
    hf_own_biases: true,
    hf_partial_rotary: 0.25,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 50_432,
        d_model: 6144,
        d_ff: 24_576,
        n_layers: 44,
        n_heads: 64,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf,
    hf,
    write_hf: |config, out| {
        out["layer_norm_eps"] = shortest(config.norm_eps);
        out["attention_bias"] = json!(config.biases.qkv);
        out[PARALLEL] = json!(config.layers.form != BlockForm::Sequential);
        let share = config.n_rot as f64 / config.head_dim as f64;
        out["rope_parameters"]["partial_rotary_factor"] = json!(share);
    },
    write_gguf: |config, set| {
        let is_parallel = config.layers.form != BlockForm::Sequential;
        set(PARALLEL, GgufValue::Bool(is_parallel));
    },
    build: |b| block::decoder(b, of_form),
    ..Family::PLAIN
};

const PARALLEL: &str = "use_parallel_residual";

fn form(is_parallel: Option<bool>) -> BlockForm {
    match is_parallel {
        Some(false) => BlockForm::Sequential,
        _ => BlockForm::ParallelNorms,
    }
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.form = form(keys.bool(PARALLEL)?);
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.form = form(text.bool(PARALLEL)?);
    let attention = text.bool("attention_bias")?.unwrap_or(true);
    config.biases = Biases {
        qkv: attention,
        attn_output: attention,
        ffn: true,
    };
    // Keys of transformers 4.
    if let Some(share) = text.f64("rotary_pct")? {
        config.n_rot = (config.head_dim as f64 * share) as usize;
    }
    if let Some(theta) = text.f32("rotary_emb_base")? {
        config.rope.theta = theta;
    }
    Ok(())
}

fn of_form(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project_by_groups(b, normed)?;
    let attended = attention::attend(b, layer, heads)?;
    let summed = b.residual("attn_residual", x, attended);
    let from = match b.config().layers.form {
        BlockForm::Sequential | BlockForm::PostNorms => summed,
        BlockForm::Parallel | BlockForm::ParallelNorms => x,
    };
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, from)?;
    let out = feed_forward::plain(b, normed)?;
    Ok(b.residual("ffn_residual", summed, out))
}
