//! Gemma 4, text part. Heads have one size in sliding layers and another in global ones; queries, keys and values
//! have norms. The last layers read keys and values of earlier ones. Each layer has embeddings, and a factor on its
//! output. One model has experts beside the dense network.

mod assistant;
mod config;

use super::Family;
use super::block::feed_forward::{self, Inner};
use super::block::{attention, experts, layer_embedding, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ExpertConfig;
use crate::config::hf::{HfDefaults, HfExperts, HfWindows};
use crate::names::{HfNorms, WeightRole};
use attention::Heads;
use millrace_graph::{Activation, Linear, RmsNorm, ScaleByWeight, ValueId, WeightSource};

pub(super) static FAMILY: Family = TEXT;
pub(super) static ASSISTANT: Family = assistant::FAMILY;

const TEXT: Family = Family {
    name: "gemma4",
    gguf_arch: "gemma4",
    hf_model_types: &[
        "gemma4_text",
        "gemma4",
        "gemma4_unified_text",
        "gemma4_unified",
    ],
    hf_classes: &[
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForCausalLM",
        "Gemma4UnifiedForConditionalGeneration",
    ],
    hf_norms: HfNorms::PreAndPost,
    activation: Activation::GeluTanh,
    models: "Gemma 4 (text)",
    scaled_embeddings: true,
    local_rope_theta: Some(10_000.0),
    hf_windows: HfWindows::Pattern {
        window: 512,
        pattern: 6,
    },
    hf_defaults: HfDefaults {
        vocab_size: 262_144,
        d_model: 2304,
        d_ff: 9216,
        n_layers: 30,
        n_heads: 8,
        n_kv_heads: Some(4),
        head_dim: Some(256),
        context_length: 131_072,
        tied_head: true,
        rope_theta: 1_000_000.0,
    },
    hf_names: &[
        (WeightRole::Router, "router.proj"),
        (WeightRole::ExpertsGateUp, "experts.gate_up_proj!"),
        (WeightRole::ExpertsDown, "experts.down_proj!"),
        (WeightRole::Router, "*router.scale"),
        (WeightRole::ExpertsDown, "*router.per_expert_scale"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 0),
        n_used: ("top_k_experts", 0),
        d_ff: ("moe_intermediate_size", 0),
        ..HfExperts::PLAIN
    }),
    own_roles: &[WeightRole::ExpertsGateUp, WeightRole::LayerScale],
    sizes_by_layer: true,
    fixed: config::fixed,
    gguf: config::gguf,
    hf: config::hf,
    write_hf: config::write_hf,
    write_gguf: config::write_gguf,
    build,
    ..Family::PLAIN
};

/// Sources of the layers that share keys and values, by whether they slide: the layer and its heads.
pub(super) type Sources = [Option<(usize, Heads)>; 2];

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let mut x = b.embed()?;
    let embeddings = match b.config().layers.embedding_dim {
        0 => None,
        _ => Some(layer_embedding::all(b, x)?),
    };
    let mut sources: Sources = [None; 2];
    for layer in b.layers() {
        b.hidden(x);
        b.enter_layer(layer);
        x = attend(b, layer, x, &mut sources)?;
        x = feed_forward(b, layer, x)?;
        if let Some(embeddings) = embeddings {
            let out = layer_embedding::gated(b, layer, x, embeddings)?;
            x = b.add("layer_residual", x, out);
        }
        x = scale_layer(b, x)?;
    }
    b.leave_layers();
    b.hidden(x);
    b.head(x)
}

/// Attention, with norms before and behind it.
fn attend(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
    sources: &mut Sources,
) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = attend_normed(b, layer, normed, sources)?;
    Ok(b.residual("attn_residual", x, out))
}

/// Attention of a normed stream, with its norm behind it. It reads keys and values of the layer, or of the last layer
/// before those that share.
pub(super) fn attend_normed(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    normed: ValueId,
    sources: &mut Sources,
) -> Result<ValueId, Error> {
    let config = b.config();
    let slides = config.window_of(layer).is_some();
    let source = &mut sources[usize::from(slides)];
    let kv_layer = config.kv_layer_of(layer);
    let out = if kv_layer == layer {
        let heads = match config.layers.keys_as_values && !slides {
            true => attention::project_keys_as_values(b, normed)?,
            false => attention::project(b, normed)?,
        };
        let heads = attention::norm_heads(b, heads)?;
        let heads = attention::norm_values(b, heads);
        let heads = attention::rotate(b, layer, heads);
        *source = Some((layer, heads));
        attention::attend_rotated(b, layer, heads)?
    } else {
        // Published files have the weights that these layers would need if they did not share.
        use WeightRole::{AttnK, AttnKNorm, AttnV};
        for role in [AttnK, AttnV, AttnKNorm] {
            b.unread(role);
        }
        let q = attention::queries(b, layer, normed)?;
        // Some blocks may be built alone, for the weights that they ask for.
        let source = source.unwrap_or_else(|| (kv_layer, Heads::of_one(q)));
        attention::attend_shared(b, layer, q, source)?
    };
    let out = attention::project_back(b, out)?;
    norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)
}

/// The gated network, and experts beside it where the model has them.
fn feed_forward(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let mut out = feed_forward::gated(b, normed)?;
    if let Some(config) = b.config().experts_of(layer) {
        let dense = norm::stream(b, "ffn_dense_norm", WeightRole::DensePostNorm, out)?;
        let choice = route(b, config, x)?;
        let normed = norm::stream(b, "ffn_exps_norm", WeightRole::ExpertsNorm, x)?;
        let routed = experts::routed_by(b, (config, Inner::Gated(None)), choice, normed)?;
        let role = WeightRole::ExpertsPostNorm;
        let routed = norm::stream(b, "ffn_exps_post_norm", role, routed)?;
        out = b.add("ffn_exps_add", dense, routed);
    }
    let out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// Chooses experts by the network's input, normed with the router's own weight.
fn route(b: &mut GraphBuilder<'_>, config: &ExpertConfig, x: ValueId) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let name = b.name_of(WeightRole::Router);
    let (scale, source) = (name.scale(), WeightSource::Whole);
    let norm = RmsNorm {
        weight: b.weight_from(scale, scale, &[d_model], source.clone())?,
        eps: b.config().norm_eps,
        offset: 0.0,
        group: d_model,
    };
    let normed = b.push("ffn_router_norm", norm.into(), vec![x], d_model);
    let factor = 1.0 / (d_model as f32).sqrt();
    let scaled = b.scale("ffn_router_scale", factor, normed);
    let shape = [config.n_experts, d_model];
    let weight = b.weight_from(name, name, &shape, source)?;
    let linear = Linear { weight, bias: None };
    let scores = b.push("ffn_router", linear.into(), vec![scaled], config.n_experts);
    experts::choose(b, config, scores)
}

/// The layer's factor; a file may lack it.
fn scale_layer(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    if !b.has_own(b.name_of(WeightRole::LayerScale)) {
        return Ok(x);
    }
    let weight = b.vector(WeightRole::LayerScale, 1)?;
    let width = b.width(x);
    Ok(b.push(
        "layer_scale",
        ScaleByWeight { weight }.into(),
        vec![x],
        width,
    ))
}
