//! DeepSeek V2: attention over a latent, experts by softmax, shared ones beside.

use super::block::{self, feed_forward, latent, norm};
use super::glm4moe::SHARED_EXPERTS;
use super::{Family, deepseek3, mistral4, youtu};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use crate::config::latent::LATENT_NORM_EPS;
use crate::config::{LatentConfig, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::{Gating, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "deepseek2",
    golden: Some("deepseek-v2"),
    gguf_arch: "deepseek2",
    hf_model_types: &["deepseek_v2"],
    hf_classes: &["DeepseekV2ForCausalLM"],
    models: "DeepSeek V2, V2 Lite, Coder V2",
    interleaved: true,
    yarn_scales_scores: true,
    gguf_roles: &[WeightRole::AttnKB, WeightRole::AttnVB],
    hf_names: &SHARED_EXPERTS,
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 64),
        n_used: ("num_experts_per_tok", 6),
        d_ff: ("moe_intermediate_size", 1407),
        // The class reads no `norm_topk_prob`, which is false in every published model.
        normalized: None,
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        shared: HfShared::Count("n_shared_experts", 2),
        shared_biases: true,
        n_dense_layers: Some(("first_k_dense_replace", 0)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 1,
    },
    hf_mlp_bias: true,
    hf_defaults: HfDefaults {
        vocab_size: 102_400,
        d_model: 4096,
        d_ff: 11_008,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: Some(64),
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    hf,
    write_hf,
    hf_unsayable,
    build,
    ..Family::PLAIN
};

/// Folders of DeepSeek's classes have no key for a factor on queries.
pub(super) fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let temperature = config.temperature?;
    let of = temperature.length;
    Some(format!(
        "a factor on queries that grows every {of} positions, in {}",
        config.family
    ))
}

/// Values that files of V2 and V3, which share a name in GGUF, leave out.
fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if config.latent.is_none() {
        let feature = "`deepseek2` without `attention.kv_lora_rank`".into();
        return Err(keys.unsupported(feature, "attention over a latent"));
    }
    // All heads share the latent.
    config.n_kv_heads = 1;
    // Mistral Large 3 is this with a factor on queries.
    config.temperature = mistral4::gguf_temperature(keys)?;
    let Some(experts) = &mut config.experts else {
        config.family = youtu::FAMILY.name;
        return Ok(());
    };
    experts.count_leading_dense();
    let says_gating = keys.usize("expert_gating_func")?.is_some_and(|n| n > 0);
    if !says_gating && experts.choice_bias {
        experts.gating = Gating::Sigmoid;
    }
    if experts.gating == Gating::Sigmoid {
        config.family = deepseek3::FAMILY.name;
        let defaults = &deepseek3::FAMILY.experts;
        experts.normalized = experts.normalized.and(defaults.normalized);
        if let Some(groups) = &mut experts.groups {
            groups.n_best = defaults.group_best;
        }
    }
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_latent(text, config, 1536)?;
    let method = text.str("topk_method")?.unwrap_or("greedy");
    match (method, &mut config.experts) {
        ("greedy", Some(experts)) => experts.groups = None,
        ("group_limited_greedy", _) | (_, None) => {}
        _ => {
            let feature = format!("`topk_method` = {method}");
            return Err(text.unsupported(feature, "greedy, group_limited_greedy"));
        }
    }
    Ok(())
}

/// Sizes of latent attention; `q_rank` where the key is absent.
pub(super) fn hf_latent(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    q_rank: usize,
) -> Result<(), Error> {
    let size = |key: &str, default: usize| Ok::<usize, Error>(text.usize(key)?.unwrap_or(default));
    let latent = LatentConfig {
        q_rank: match text.map.get("q_lora_rank") {
            None => Some(q_rank),
            Some(_) => text.usize("q_lora_rank")?,
        },
        kv_rank: size("kv_lora_rank", 512)?,
        nope_dim: size("qk_nope_head_dim", 128)?,
        rope_dim: size("qk_rope_head_dim", 64)?,
        v_dim: size("v_head_dim", 128)?,
        norm_eps: LATENT_NORM_EPS,
    };
    for (key, usual) in [("moe_layer_freq", 1), ("ep_size", 1)] {
        if let Some(found) = text.usize(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    if text.bool("rope_interleave")? == Some(false) {
        let feature = "`rope_interleave` = false".into();
        return Err(text.unsupported(feature, "neighbouring elements that rotate together"));
    }
    // `head_dim` of these files is the rotated part, and all heads share the latent.
    config.head_dim = latent.nope_dim.saturating_add(latent.rope_dim);
    config.n_rot = latent.rope_dim;
    config.n_kv_heads = 1;
    config.attention_scale = config.rope.score_factor() / (config.head_dim as f32).sqrt();
    config.latent = Some(latent);
    Ok(())
}

/// Writes the keys that [`hf_latent`] reads.
pub(super) fn write_latent(config: &ModelConfig, out: &mut Value) {
    let Some(latent) = &config.latent else {
        return;
    };
    out["q_lora_rank"] = json!(latent.q_rank);
    out["kv_lora_rank"] = json!(latent.kv_rank);
    out["qk_nope_head_dim"] = json!(latent.nope_dim);
    out["qk_rope_head_dim"] = json!(latent.rope_dim);
    out["v_head_dim"] = json!(latent.v_dim);
    out["head_dim"] = json!(latent.rope_dim);
    out["num_key_value_heads"] = json!(config.n_heads);
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_latent(config, out);
    let experts = config.experts.as_ref();
    out["scoring_func"] = json!("softmax");
    out["topk_method"] = json!(match experts.and_then(|experts| experts.groups) {
        Some(_) => "group_limited_greedy",
        None => "greedy",
    });
}

pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

/// Attention over a latent, and the network behind it.
pub(super) fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = latent::attend(b, layer, normed)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
