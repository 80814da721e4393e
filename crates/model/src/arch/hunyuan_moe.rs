//! Hunyuan v1 with experts: Hunyuan's blocks, experts by softmax beside one expert that every token uses.

use super::Family;
use super::hunyuan::{self, HEAD_NORMS};
use crate::config::hf::{HfDefaults, HfExperts, HfShared};
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "hunyuan-moe",
    gguf_arch: "hunyuan-moe",
    hf_model_types: &["hunyuan_v1_moe"],
    hf_classes: &["HunYuanMoEV1ForCausalLM"],
    models: "Hunyuan v1 with experts (A13B)",
    hf_norm_eps: 1e-5,
    hf_names: &[
        HEAD_NORMS[0],
        HEAD_NORMS[1],
        (WeightRole::Router, "mlp.gate.wg"),
        (WeightRole::SharedGate, "mlp.shared_mlp.gate_proj"),
        (WeightRole::SharedUp, "mlp.shared_mlp.up_proj"),
        (WeightRole::SharedDown, "mlp.shared_mlp.down_proj"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 1),
        n_used: ("moe_topk", 1),
        d_ff: ("intermediate_size", 11_008),
        shared: HfShared::Width("intermediate_size", 11_008),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 290_943,
        d_model: 4096,
        d_ff: 11_008,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf: hunyuan::hf,
    build: hunyuan::build,
    ..Family::PLAIN
};
