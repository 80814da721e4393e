//! OLMoE: experts in every block, norms of all queries and of all keys together.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{HfDefaults, HfExperts};
use crate::names::WeightRole;
use millrace_graph::Gating;

pub(super) static FAMILY: Family = Family {
    name: "olmoe",
    gguf_arch: "olmoe",
    hf_model_types: &["olmoe"],
    hf_classes: &["OlmoeForCausalLM"],
    models: "OLMoE 1B-7B",
    hf_norm_eps: 1e-5,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 64),
        d_ff: ("intermediate_size", 2048),
        normalized: Some(("norm_topk_prob", false)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        d_model: 2048,
        d_ff: 2048,
        n_layers: 16,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf: |text, _| match text.f32("clip_qkv")? {
        Some(bound) => {
            let feature = format!("clamped projections (`clip_qkv` = {bound})");
            Err(text.unsupported(feature, "models without it"))
        }
        None => Ok(()),
    },
    build,
    ..Family::PLAIN
};

/// Llama's blocks with norms of all queries and of all keys.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let heads = attention::norm_projections(b, heads)?;
        let out = attention::attend(b, layer, heads)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
