//! DeepSeek MoE of the first generation: Llama's attention, experts by softmax that is not normalised, shared ones beside.

use super::glm4moe::SHARED_EXPERTS;
use super::{Family, llama};
use crate::config::hf::{HfDefaults, HfExperts, HfShared};
use millrace_graph::Gating;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "deepseek",
    gguf_arch: "deepseek",
    hf_model_types: &["deepseek"],
    hf_classes: &["DeepseekForCausalLM"],
    hf_names: &SHARED_EXPERTS,
    models: "DeepSeek MoE 16B (first generation)",
    permuted_in_gguf: true,
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 64),
        n_used: ("num_experts_per_tok", 6),
        d_ff: ("moe_intermediate_size", 1408),
        normalized: Some(("norm_topk_prob", false)),
        shared: HfShared::Count("n_shared_experts", 2),
        n_dense_layers: Some(("first_k_dense_replace", 0)),
        every: Some(("moe_layer_freq", 1)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 102_400,
        d_model: 2048,
        d_ff: 10_944,
        n_layers: 28,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf: |text, _| match text.str("scoring_func")?.unwrap_or("softmax") {
        "softmax" => Ok(()),
        other => Err(text.unsupported(format!("`scoring_func` = {other}"), "softmax")),
    },
    write_hf: |_, out| out["scoring_func"] = json!("softmax"),
    build: llama::build,
    ..Family::PLAIN
};
