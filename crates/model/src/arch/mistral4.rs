//! Mistral 4: DeepSeek's attention over a latent, queries with a factor that grows with the position, experts by softmax
//! beside a shared one.

use super::Family;
use super::deepseek2::{self, hf_latent, write_latent};
use super::glm4moe::{SHARED_EXPERTS, SUM_EPS};
use super::mistral3::{hf_temperature, write_temperature};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use crate::names::WeightRole;
use millrace_graph::{Gating, Temperature};
use serde_json::Value;

pub(super) static FAMILY: Family = Family {
    name: "mistral4",
    gguf_arch: "mistral4",
    // `mistral3` is the wrapper of models with vision.
    hf_model_types: &["mistral4", "mistral3"],
    hf_classes: &["Mistral4ForCausalLM", "Mistral3ForConditionalGeneration"],
    models: "Mistral Small 4 (text)",
    interleaved: true,
    yarn_scales_scores: true,
    gguf_roles: &[WeightRole::AttnKB, WeightRole::AttnVB],
    own_roles: &[WeightRole::ExpertsGateUp],
    hf_names: &[
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
        (WeightRole::ExpertsDown, "mlp.experts.down_proj!"),
    ],
    // The share is that of a whole head, and follows from the sizes of its parts as well.
    hf_rotates_part: true,
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 128),
        n_used: ("num_experts_per_tok", 4),
        d_ff: ("moe_intermediate_size", 2048),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        shared: HfShared::Count("n_shared_experts", 1),
        n_dense_layers: Some(("first_k_dense_replace", 0)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 131_072,
        d_model: 4096,
        d_ff: 12_288,
        n_layers: 36,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: Some(128),
        context_length: 1_048_576,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    hf,
    write_hf,
    build: deepseek2::build,
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if config.latent.is_none() {
        let feature = "`mistral4` without `attention.kv_lora_rank`".into();
        return Err(keys.unsupported(feature, "attention over a latent"));
    }
    // All heads share the latent.
    config.n_kv_heads = 1;
    if let Some(experts) = &mut config.experts {
        experts.count_leading_dense();
    }
    config.temperature = gguf_temperature(keys)?;
    Ok(())
}

/// The factor on queries of a file with latent attention. Files that llama.cpp's converter makes of folders lack it.
pub(super) fn gguf_temperature(keys: &Keys<'_>) -> Result<Option<Temperature>, Error> {
    let scale = keys.f32("attention.temperature_scale")?;
    let Some(scale) = scale.filter(|scale| *scale != 0.0) else {
        return Ok(None);
    };
    let length = match keys.usize("attention.temperature_length")? {
        Some(length) => length,
        None => keys.required("rope.scaling.original_context_length")?,
    };
    Ok(Some(Temperature {
        scale,
        length,
        first: 0,
    }))
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_latent(text, config, 1024)?;
    hf_temperature(text, config)
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_latent(config, out);
    write_temperature(config, out);
}
