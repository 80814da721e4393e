//! OLMoE: experts in every block, norms of all queries and of all keys together, and a bound on both and on values.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::qkv_bound;
use crate::config::hf::{HfDefaults, HfExperts, shortest};
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
    gguf: |keys, config| {
        config.layers.qkv_bound = qkv_bound(keys)?;
        Ok(())
    },
    hf: |text, config| {
        config.layers.qkv_bound = text.f32("clip_qkv")?;
        Ok(())
    },
    write_hf: |config, out| {
        if let Some(bound) = config.layers.qkv_bound {
            out["clip_qkv"] = shortest(bound);
        }
    },
    build,
    ..Family::PLAIN
};

/// Llama's blocks with norms of all queries and of all keys.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project_unbounded(b, normed)?;
        let heads = attention::norm_projections(b, heads)?;
        let heads = attention::clamp(b, heads);
        let out = attention::attend(b, layer, heads)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
