//! MiniMax M2: experts by sigmoid with a bias for the choice, norms over all heads of queries and of keys together. A part
//! of each head rotates.

use super::{ExpertDefaults, Family, olmoe};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts};
use crate::names::WeightRole;
use millrace_graph::Gating;

pub(super) static FAMILY: Family = Family {
    name: "minimax-m2",
    gguf_arch: "minimax-m2",
    hf_model_types: &["minimax_m2"],
    hf_classes: &["MiniMaxM2ForCausalLM"],
    models: "MiniMax M2, M2.1",
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.gate"),
        (
            WeightRole::RouterBias,
            "block_sparse_moe.e_score_correction_bias!",
        ),
        (WeightRole::ExpertsGate, "block_sparse_moe.experts.{}.w1"),
        (WeightRole::ExpertsUp, "block_sparse_moe.experts.{}.w3"),
        (WeightRole::ExpertsDown, "block_sparse_moe.experts.{}.w2"),
    ],
    hf_rotates_part: true,
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 256),
        n_used: ("num_experts_per_tok", 8),
        d_ff: ("intermediate_size", 1536),
        choice_bias: true,
        ..HfExperts::PLAIN
    }),
    experts: ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(0.0),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 200_064,
        d_model: 3072,
        d_ff: 1536,
        n_layers: 62,
        n_heads: 48,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 196_608,
        tied_head: false,
        rope_theta: 5_000_000.0,
    },
    hf,
    build: olmoe::build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let shared = text.usize("shared_intermediate_size")?.unwrap_or(0);
    if shared != 0 {
        let feature =
            format!("a shared expert (`shared_intermediate_size` = {shared}) in minimax-m2");
        return Err(text.unsupported(feature, "models without it"));
    }
    let key = "partial_rotary_factor";
    let nested = text.object("rope_parameters")?;
    let is_given = nested.is_some_and(|rope| rope.get(key).is_some()) || text.get(key).is_some();
    // Published files give it only under this key.
    if let Some(n_rot) = text.usize("rotary_dim")?.filter(|_| !is_given) {
        config.n_rot = n_rot;
    }
    Ok(())
}
