//! Phi 1, 1.5 and 2: attention and a network without a gate side by side behind one LayerNorm, biases everywhere. A part of a
//! head rotates.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, shortest};
use crate::names::WeightRole;
use millrace_graph::Activation;

pub(super) static FAMILY: Family = Family {
    name: "phi2",
    gguf_arch: "phi2",
    hf_model_types: &["phi"],
    hf_classes: &["PhiForCausalLM"],
    hf_names: &[
        (WeightRole::AttnOutput, "self_attn.dense"),
        (WeightRole::FfnUp, "mlp.fc1"),
        (WeightRole::FfnDown, "mlp.fc2"),
        (WeightRole::OutputNorm, "final_layernorm"),
    ],
    activation: Activation::GeluTanh,
    models: "Phi 1, 1.5, 2",
    hf_biases: Some(Biases::ALL),
    hf_partial_rotary: 0.5,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 51_200,
        d_model: 2048,
        d_ff: 8192,
        n_layers: 24,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::OutputNorm,
        WeightRole::Output,
    ],
    hf: |text, _| match text.bool("qk_layernorm")? {
        Some(true) => {
            let feature = "LayerNorms of heads (`qk_layernorm`)".into();
            Err(text.unsupported(feature, "`qk_layernorm` = false"))
        }
        _ => Ok(()),
    },
    write_hf: |config, out| out["layer_norm_eps"] = shortest(config.norm_eps),
    build,
    ..Family::PLAIN
};

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let attended = attention::attend(b, layer, heads)?;
        let out = feed_forward::plain(b, normed)?;
        let both = b.add("attn_ffn", attended, out);
        Ok(b.residual("residual", x, both))
    })
}
