//! EXAONE 3, 3.5 and Deep: Llama under other names. Rows of queries and keys keep their order in GGUF files.

use super::Family;
use crate::Error;
use crate::config::MAX_LAYERS;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, activation_of};
use crate::names::WeightRole;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "exaone",
    gguf_arch: "exaone",
    hf_model_types: &["exaone"],
    // transformers saves its class's parent.
    hf_classes: &["ExaoneForCausalLM", "LlamaForCausalLM"],
    hf_prefix: "transformer.",
    hf_layers: "h",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQ, "attn.attention.q_proj"),
        (WeightRole::AttnK, "attn.attention.k_proj"),
        (WeightRole::AttnV, "attn.attention.v_proj"),
        (WeightRole::AttnOutput, "attn.attention.out_proj"),
        (WeightRole::FfnNorm, "ln_2"),
        (WeightRole::FfnGate, "mlp.c_fc_0"),
        (WeightRole::FfnUp, "mlp.c_fc_1"),
        (WeightRole::FfnDown, "mlp.c_proj"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    models: "EXAONE 3, 3.5, Deep",
    hf_mlp_bias: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 102_400,
        d_model: 4096,
        d_ff: 14_336,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    hf,
    write_hf,
    ..Family::PLAIN
};

/// Keys whose names differ between the published files and transformers.
fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if let Some(n_layers) = text.usize("num_layers")? {
        config.n_layers = n_layers;
        config.layer_windowed = vec![false; n_layers.min(MAX_LAYERS)];
    }
    if let Some(eps) = text.f32("layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    if let Some(activation) = activation_of(text, "activation_function")? {
        config.activation = activation;
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let eps = out["rms_norm_eps"].take();
    out["layer_norm_epsilon"] = eps.clone();
    out["rms_norm_eps"] = eps;
    out["num_layers"] = json!(config.n_layers);
    out["activation_function"] = out["hidden_act"].clone();
}
