//! LFM2 with experts, chosen by a sigmoid with a bias, behind some dense layers.

use super::Family;
use super::block::recurrent;
use super::lfm2;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfExperts, HfWindows};
use crate::names::WeightRole;
use millrace_graph::Gating;
use serde_json::json;

const NAMES: [(WeightRole, &str); 14] = {
    let mut names = [(WeightRole::RouterBias, "feed_forward.expert_bias!"); 14];
    let mut i = 0;
    while i < lfm2::NAMES.len() {
        names[i] = lfm2::NAMES[i];
        i += 1;
    }
    names
};

pub(super) static FAMILY: Family = Family {
    name: "lfm2moe",
    gguf_arch: "lfm2moe",
    hf_model_types: &["lfm2_moe"],
    hf_classes: &["Lfm2MoeForCausalLM"],
    models: "LFM2 with experts (8B-A1B, 24B-A2B)",
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_names: &NAMES,
    hf_windows: HfWindows::Recurrent,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 32),
        n_used: ("num_experts_per_tok", 4),
        d_ff: ("moe_intermediate_size", 1792),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 1.0)),
        choice_bias: true,
        n_dense_layers: Some(("num_dense_layers", 2)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        // transformers, `Lfm2MoeTopKRouter`.
        normalized: Some(1e-6),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 65_536,
        d_model: 2048,
        d_ff: 7168,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 128_000,
        tied_head: true,
        rope_theta: 1_000_000.0,
    },
    own_roles: &[WeightRole::EmbeddingNorm],
    gguf: recurrent::gguf_short_conv,
    write_gguf: recurrent::write_gguf_short_conv,
    hf: |text, config| {
        lfm2::hf(text, config)?;
        if let Some(experts) = &mut config.experts {
            experts.choice_bias = text.bool("use_expert_bias")?.unwrap_or(true);
        }
        Ok(())
    },
    write_hf: |config, out| {
        lfm2::write_hf(config, out);
        let experts = config.experts.as_ref();
        out["use_expert_bias"] = json!(experts.is_some_and(|experts| experts.choice_bias));
    },
    build: lfm2::build,
    ..Family::PLAIN
};
