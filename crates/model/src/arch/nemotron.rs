//! Nemotron 3 8B, 4 15B and 4 340B, Minitron, Nemotron Mini: LayerNorms whose folders hold the difference to 1, a
//! squared ReLU without a gate. A part of each head rotates.

use super::{Family, starcoder2};
use crate::config::hf::{HfDefaults, shortest};
use crate::names::WeightRole;
use millrace_graph::Activation;

pub(super) static FAMILY: Family = Family {
    name: "nemotron",
    gguf_arch: "nemotron",
    hf_model_types: &["nemotron"],
    hf_classes: &["NemotronForCausalLM"],
    models: "Nemotron 3 and 4, Nemotron Mini, Minitron",
    activation: Activation::ReluSquared,
    unit_norms: true,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_mlp_bias: true,
    hf_partial_rotary: 0.5,
    hf_defaults: HfDefaults {
        vocab_size: 256_000,
        d_model: 6144,
        d_ff: 24_576,
        n_layers: 32,
        n_heads: 48,
        n_kv_heads: None,
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    hf: |text, config| {
        if let Some(eps) = text.f32("norm_eps")? {
            config.norm_eps = eps;
        }
        Ok(())
    },
    write_hf: |config, out| out["norm_eps"] = shortest(config.norm_eps),
    build: starcoder2::plain_network,
    ..Family::PLAIN
};
