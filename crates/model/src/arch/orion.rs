//! Orion: Llama with LayerNorms, whose epsilon is given under the key of another kind of norm.

use super::Family;
use crate::config::Biases;
use crate::config::hf::HfDefaults;
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "orion",
    gguf_arch: "orion",
    hf_model_types: &["orion"],
    hf_classes: &["OrionForCausalLM"],
    models: "Orion 14B",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::NONE),
    hf_defaults: HfDefaults {
        vocab_size: 84_608,
        d_model: 4096,
        d_ff: 15_360,
        n_layers: 40,
        n_heads: 32,
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
        if let Some(eps) = text.f32("rms_norm_eps")? {
            config.norm_eps = eps;
        }
        Ok(())
    },
    ..Family::PLAIN
};
