//! Sarvam with experts: Ling 2's blocks whose heads rotate as a whole. Its GGUF files call themselves `bailingmoe2`.

use super::Family;
use super::bailingmoe2;
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts};

pub(super) static FAMILY: Family = Family {
    name: "sarvam-moe",
    hf_model_types: &["sarvam_moe"],
    // transformers saves its class's parent.
    hf_classes: &["SarvamMoEForCausalLM", "Glm4MoeForCausalLM"],
    models: "Sarvam 30B",
    hf_partial_rotary: 1.0,
    hf_rotates_part: true,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 128),
        n_used: ("num_experts_per_tok", 6),
        d_ff: ("moe_intermediate_size", 1024),
        scale: Some(("routed_scaling_factor", 2.5)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        ..bailingmoe2::EXPERTS
    }),
    hf_defaults: HfDefaults {
        vocab_size: 262_144,
        d_model: 4096,
        d_ff: 8192,
        n_layers: 19,
        n_heads: 64,
        n_kv_heads: Some(4),
        head_dim: Some(64),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 8_000_000.0,
    },
    hf,
    ..bailingmoe2::COMMON
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("attention_bias")? == Some(true) {
        let feature = "`attention_bias` in Sarvam".into();
        return Err(text.unsupported(feature, "models without it, as all published ones"));
    }
    // transformers has its own name for this key; published files use Ling's.
    let n_shared = text.usize("n_shared_experts")?;
    if let (Some(n_shared), Some(experts)) = (n_shared, &mut config.experts) {
        experts.shared_d_ff = n_shared.saturating_mul(experts.d_ff);
    }
    bailingmoe2::hf(text, config)
}
