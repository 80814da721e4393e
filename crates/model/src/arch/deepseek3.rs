//! DeepSeek V3 and the models that took over its blocks (R1, Kimi K2, GLM 4.7 Flash). They are V2's blocks, with
//! experts by sigmoid and a bias for the choice. Its GGUF files call themselves `deepseek2`.

use super::Family;
use super::block::draft::DraftLayer;
use super::deepseek2::{self, hf_latent, write_latent};
use super::glm4moe::{SHARED_EXPERTS, SUM_EPS};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use crate::names::WeightRole;
use millrace_graph::Gating;
use serde_json::{Value, json};

/// GLM 4.7 Flash, whose class has different words and defaults.
const LITE: &str = "glm4_moe_lite";
const LITE_CLASS: &str = "Glm4MoeLiteForCausalLM";

pub(super) static FAMILY: Family = Family {
    name: "deepseek3",
    golden: Some("deepseek-v3"),
    gguf_arch: "deepseek2",
    hf_model_types: &["deepseek_v3", "kimi_k2", LITE],
    hf_classes: &["DeepseekV3ForCausalLM", LITE_CLASS],
    models: "DeepSeek V3, R1; Kimi K2; GLM 4.7 Flash",
    interleaved: true,
    yarn_scales_scores: true,
    gguf_roles: &[WeightRole::AttnKB, WeightRole::AttnVB],
    hf_names: &SHARED_EXPERTS,
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 256),
        d_ff: ("moe_intermediate_size", 2048),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 2.5)),
        groups: Some([("n_group", 8), ("topk_group", 4)]),
        choice_bias: true,
        shared: HfShared::Count("n_shared_experts", 1),
        n_dense_layers: Some(("first_k_dense_replace", 3)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 129_280,
        d_model: 7168,
        d_ff: 18_432,
        n_layers: 61,
        n_heads: 128,
        n_kv_heads: None,
        head_dim: Some(64),
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    write_hf,
    draft: Some(DraftLayer::behind(deepseek2::block)),
    hf_unsayable: deepseek2::hf_unsayable,
    build: deepseek2::build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let is_lite = text.str("model_type")? == Some(LITE);
    hf_latent(text, config, if is_lite { 768 } else { 1536 })?;
    for (key, usual) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
        if let Some(found) = text.str(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), usual));
        }
    }
    if let Some(experts) = config.experts.as_mut().filter(|_| is_lite) {
        experts.n_dense_layers = 0;
        experts.dense_layers = dense_layers(text)?;
        experts.count_leading_dense();
    }
    Ok(())
}

/// Layers that `mlp_layer_types` calls dense; the first one where it is absent.
fn dense_layers(text: &ConfigObject<'_>) -> Result<Vec<usize>, Error> {
    let key = "mlp_layer_types";
    let Some(types) = text.array(key)? else {
        return Ok(vec![0]);
    };
    let mut dense = Vec::new();
    for (layer, value) in types.iter().enumerate() {
        match value.as_str() {
            Some("dense") => dense.push(layer),
            Some("sparse") => {}
            _ => return Err(text.bad(key, value, "dense or sparse for each layer")),
        }
    }
    Ok(dense)
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_latent(config, out);
    out["scoring_func"] = json!("sigmoid");
    out["topk_method"] = json!("noaux_tc");
    let experts = config.experts.as_ref();
    if let Some(experts) = experts.filter(|experts| !experts.dense_layers.is_empty()) {
        // DeepSeek's class has leading dense layers only.
        let kind = |layer| {
            if experts.has(layer) {
                "sparse"
            } else {
                "dense"
            }
        };
        out["mlp_layer_types"] = (0..config.n_layers).map(kind).collect();
        out["model_type"] = json!(LITE);
        out["architectures"] = json!([LITE_CLASS]);
    }
}
