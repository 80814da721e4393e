//! Ling and Ring of the first generation: Llama's attention, experts by softmax, shared ones beside; in folders queries, keys
//! and values are one matrix.

use super::bailingmoe2::{NO_BIASES, refuse_variants};
use super::glm4moe::SHARED_EXPERTS;
use super::{Family, llama};
use crate::config::hf::{HfDefaults, HfExperts, HfShared};
use crate::names::WeightRole;
use millrace_graph::Gating;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "bailingmoe",
    gguf_arch: "bailingmoe",
    hf_model_types: &["bailing_moe"],
    hf_classes: &["BailingMoeForCausalLM"],
    hf_names: &[
        (WeightRole::TokenEmbedding, "word_embeddings"),
        (WeightRole::AttnQkv, "attention.query_key_value"),
        (WeightRole::AttnOutput, "attention.dense"),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    hf_roles: &[WeightRole::AttnQkv],
    models: "Ling, Ring (first generation: lite, plus)",
    permuted_in_gguf: true,
    hf_biases: Some(NO_BIASES),
    hf_norm_eps: 1e-5,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 64),
        n_used: ("num_experts_per_tok", 6),
        d_ff: ("moe_intermediate_size", 1408),
        normalized: Some(("norm_topk_prob", true)),
        shared: HfShared::Count("num_shared_experts", 2),
        n_dense_layers: Some(("first_k_dense_replace", 0)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: Some(0.0),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 126_464,
        d_model: 2048,
        d_ff: 5632,
        n_layers: 28,
        n_heads: 16,
        n_kv_heads: Some(4),
        head_dim: None,
        context_length: 16_384,
        tied_head: false,
        rope_theta: 600_000.0,
    },
    hf: |text, _| refuse_variants(text),
    write_hf: |_, out| {
        out["use_qkv_bias"] = json!(false);
        out["use_bias"] = json!(false);
    },
    build: llama::build,
    ..Family::PLAIN
};
