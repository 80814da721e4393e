//! Hunyuan v1, dense: Llama with a norm on each head of queries and keys behind their rotation. RoPE's base is one that a
//! number `alpha` stretches.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::ConfigObject;
use crate::config::{ModelConfig, RopeScaling};
use crate::names::WeightRole;

/// Names of norms of heads.
pub(super) const HEAD_NORMS: [(WeightRole, &str); 2] = [
    (WeightRole::AttnQNorm, "self_attn.query_layernorm"),
    (WeightRole::AttnKNorm, "self_attn.key_layernorm"),
];

pub(super) static FAMILY: Family = Family {
    name: "hunyuan-dense",
    golden: Some("hunyuan"),
    gguf_arch: "hunyuan-dense",
    hf_model_types: &["hunyuan_v1_dense"],
    hf_classes: &["HunYuanDenseV1ForCausalLM"],
    hf_names: &[HEAD_NORMS[0], HEAD_NORMS[1]],
    models: "Hunyuan v1 (dense)",
    hf_norm_eps: 1e-5,
    hf,
    build,
    ..Family::PLAIN
};

/// NTK-aware scaling by a fixed number is another base: `theta · alpha^(d / (d - 2))`.
pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let (parameters, scaling) = (
        text.object("rope_parameters")?,
        text.object("rope_scaling")?,
    );
    let Some(rope) = parameters.or(scaling) else {
        return Ok(());
    };
    let alpha = rope.f64("alpha")?.filter(|alpha| *alpha != 0.0);
    if let (Some(alpha), RopeScaling::Dynamic { .. }) = (alpha, &config.rope.scaling) {
        let d = config.head_dim as f64;
        let theta = f64::from(config.rope.theta) * alpha.powf(d / (d - 2.0));
        config.rope.theta = theta as f32;
        config.rope.scaling = RopeScaling::None;
    }
    Ok(())
}

/// Llama's blocks with a norm of each head behind the rotation.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let heads = attention::rotate(b, layer, heads);
        let heads = attention::norm_heads(b, heads)?;
        let out = attention::attend_rotated(b, layer, heads)?;
        let out = attention::project_back(b, out)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
