//! Kimi Linear: Kimi delta attention, and in some layers attention over a latent that does not rotate; DeepSeek V3's experts.

use super::Family;
use super::block::{self, feed_forward, kimi_delta, latent, norm};
use super::deepseek2::{hf_latent, write_latent};
use super::glm4moe::SUM_EPS;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared, HfWindows};
use crate::config::{ModelConfig, RecurrentMixer};
use crate::names::WeightRole;
use millrace_graph::{Gating, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "kimi-linear",
    gguf_arch: "kimi-linear",
    hf_model_types: &["kimi_linear"],
    hf_classes: &["KimiLinearForCausalLM"],
    models: "Kimi Linear 48B-A3B",
    gguf_roles: &[WeightRole::AttnKB, WeightRole::AttnVB],
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        (WeightRole::SsmConvQ, "self_attn.q_conv1d"),
        (WeightRole::SsmConvK, "self_attn.k_conv1d"),
        (WeightRole::SsmConvV, "self_attn.v_conv1d"),
        (WeightRole::SsmDecayA, "self_attn.f_a_proj"),
        (WeightRole::SsmDecayB, "self_attn.f_b_proj"),
        (WeightRole::SsmBeta, "self_attn.b_proj"),
        (WeightRole::SsmRate, "self_attn.A_log!"),
        (WeightRole::SsmDt, "self_attn.dt!"),
        (WeightRole::SsmGateA, "self_attn.g_a_proj"),
        (WeightRole::SsmGateB, "self_attn.g_b_proj"),
        (WeightRole::SsmNorm, "self_attn.o_norm"),
        (WeightRole::Router, "block_sparse_moe.gate"),
        (
            WeightRole::RouterBias,
            "block_sparse_moe.gate.e_score_correction_bias!",
        ),
        (WeightRole::ExpertsGate, "block_sparse_moe.experts.{}.w1"),
        (WeightRole::ExpertsUp, "block_sparse_moe.experts.{}.w3"),
        (WeightRole::ExpertsDown, "block_sparse_moe.experts.{}.w2"),
        (
            WeightRole::SharedGate,
            "block_sparse_moe.shared_experts.gate_proj",
        ),
        (
            WeightRole::SharedUp,
            "block_sparse_moe.shared_experts.up_proj",
        ),
        (
            WeightRole::SharedDown,
            "block_sparse_moe.shared_experts.down_proj",
        ),
        // The second names are those in folders that transformers saves.
        (WeightRole::FfnGate, "mlp.gate_proj"),
        (WeightRole::FfnGate, "block_sparse_moe.gate_proj"),
        (WeightRole::FfnUp, "mlp.up_proj"),
        (WeightRole::FfnUp, "block_sparse_moe.up_proj"),
        (WeightRole::FfnDown, "mlp.down_proj"),
        (WeightRole::FfnDown, "block_sparse_moe.down_proj"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 256),
        n_used: ("num_experts_per_token", 8),
        d_ff: ("moe_intermediate_size", 1024),
        normalized: Some(("moe_renormalize", true)),
        scale: Some(("routed_scaling_factor", 2.446)),
        groups: Some([("num_expert_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Count("num_shared_experts", 1),
        n_dense_layers: Some(("first_k_dense_replace", 1)),
        layer_kinds: Some("mlp_layer_types"),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 163_840,
        d_model: 2304,
        d_ff: 9216,
        n_layers: 27,
        n_heads: 32,
        n_kv_heads: Some(32),
        head_dim: Some(64),
        context_length: 1_048_576,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    write_gguf: kimi_delta::write_gguf,
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if config.latent.is_none() {
        let feature = "`kimi-linear` without `attention.kv_lora_rank`".into();
        return Err(keys.unsupported(feature, "attention over a latent"));
    }
    kimi_delta::gguf(keys, config)?;
    if let Some(experts) = &mut config.experts {
        experts.count_leading_dense();
    }
    // All heads share the latent, and none rotates.
    config.n_kv_heads = 1;
    config.unrotated_layers = (0..config.n_layers).collect();
    Ok(())
}

/// The key of the context's length.
const CONTEXT: &str = "model_max_length";

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_latent(text, config, 0)?;
    if let Some(latent) = &mut config.latent {
        latent.q_rank = text.usize("q_lora_rank")?;
    }
    if let Some(length) = text.usize(CONTEXT)? {
        config.context_length = length;
    }
    kimi_delta::hf(text, config)?;
    config.unrotated_layers = (0..config.n_layers).collect();
    if text.bool("mla_use_nope")? == Some(false) {
        let feature = "`mla_use_nope` = false".into();
        return Err(text.unsupported(feature, "heads that do not rotate"));
    }
    let key = "moe_router_activation_func";
    if let Some(found) = text.str(key)?.filter(|found| *found != "sigmoid") {
        return Err(text.unsupported(format!("`{key}` = {found}"), "sigmoid"));
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_latent(config, out);
    kimi_delta::write_hf(config, out);
    // The published code reads these, and transformers accepts them.
    out["moe_router_activation_func"] = json!("sigmoid");
    out["mla_use_nope"] = json!(true);
    out[CONTEXT] = json!(config.context_length);
    if let Some(map) = out.as_object_mut() {
        map.remove("max_position_embeddings");
        map.remove("rope_parameters");
    }
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let out = mix(b, layer, normed)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}

/// Kimi delta attention, or attention over a latent.
fn mix(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    match b.config().mixer_of(layer) {
        Some(RecurrentMixer::KimiDelta(delta)) => kimi_delta::attend(b, &delta, x),
        _ => latent::attend(b, layer, x),
    }
}
