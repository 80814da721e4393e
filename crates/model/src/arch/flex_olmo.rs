//! FlexOlmo: OLMo 2's blocks with experts in every one. llama.cpp has no name for it.

use super::Family;
use super::olmo2;
use crate::config::gguf::ACTIVATION_KEY;
use crate::config::hf::{HfDefaults, HfExperts};
use crate::names::HfNorms;
use millrace_graph::Gating;

pub(super) static FAMILY: Family = Family {
    name: "flex-olmo",
    gguf_arch: "flex-olmo",
    hf_model_types: &["flex_olmo"],
    hf_classes: &["FlexOlmoForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    models: "FlexOlmo 7x7B",
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 7),
        n_used: ("num_experts_per_tok", 5),
        d_ff: ("intermediate_size", 11_008),
        normalized: Some(("norm_topk_prob", false)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 100_352,
        context_length: 4096,
        rope_theta: 500_000.0,
        ..Family::PLAIN.hf_defaults
    },
    gguf_own_keys: &[ACTIVATION_KEY],
    build: olmo2::build,
    ..Family::PLAIN
};
