//! dots.llm1: Qwen 3's attention, experts by sigmoid with a bias for the choice, shared ones beside.

use super::Family;
use super::glm4moe::{SHARED_EXPERTS, SUM_EPS};
use super::qwen3;
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use millrace_graph::Gating;

pub(super) static FAMILY: Family = Family {
    name: "dots1",
    gguf_arch: "dots1",
    hf_model_types: &["dots1"],
    hf_classes: &["Dots1ForCausalLM"],
    models: "dots.llm1",
    hf_names: &SHARED_EXPERTS,
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 128),
        n_used: ("num_experts_per_tok", 6),
        d_ff: ("moe_intermediate_size", 1408),
        normalized: Some(("norm_topk_prob", false)),
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Count("n_shared_experts", 2),
        n_dense_layers: Some(("first_k_dense_replace", 0)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 152_064,
        d_model: 4608,
        d_ff: 10_944,
        n_layers: 62,
        n_heads: 32,
        n_kv_heads: Some(32),
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    build: qwen3::build,
    ..Family::PLAIN
};

/// Refuses windows from `max_window_layers` on, which no published model has.
fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let first = text.usize("max_window_layers")?.unwrap_or(62);
    let slides = text.usize("sliding_window")?.is_some() && first < config.n_layers;
    if slides && text.array("layer_types")?.is_none() {
        let feature = format!("sliding layers (`max_window_layers` = {first})");
        return Err(text.unsupported(feature, "full attention in every layer"));
    }
    Ok(())
}
