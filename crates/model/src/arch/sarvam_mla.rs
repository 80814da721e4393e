//! Sarvam over a latent: DeepSeek V3's blocks with defaults of its own. Its GGUF files call themselves `deepseek2`.

use super::deepseek2::{self, hf_latent, write_latent};
use super::{Family, deepseek3};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "sarvam-mla",
    hf_model_types: &["sarvam_mla"],
    // transformers saves its class's parent.
    hf_classes: &["SarvamMLAForCausalLM", "DeepseekV3ForCausalLM"],
    models: "Sarvam 105B",
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 128),
        d_ff: ("moe_intermediate_size", 2048),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 2.5)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Count("n_shared_experts", 1),
        n_dense_layers: Some(("first_k_dense_replace", 1)),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 262_144,
        d_model: 4096,
        d_ff: 16_384,
        n_layers: 32,
        n_heads: 64,
        n_kv_heads: None,
        head_dim: Some(64),
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    golden: None,
    hf,
    write_hf: |config, out| {
        write_latent(config, out);
        out["scoring_func"] = json!("sigmoid");
    },
    hf_unsayable: deepseek2::hf_unsayable,
    draft: None,
    ..deepseek3::FAMILY
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    // The key that published files have in Ling's words.
    if let (Some(n_shared), Some(experts)) =
        (text.usize("num_shared_experts")?, &mut config.experts)
    {
        experts.shared_d_ff = n_shared.saturating_mul(experts.d_ff);
    }
    // Without a key queries come of one matrix.
    match text.map.contains_key("q_lora_rank") {
        true => hf_latent(text, config, 0),
        false => {
            hf_latent(text, config, 0)?;
            if let Some(latent) = &mut config.latent {
                latent.q_rank = None;
            }
            Ok(())
        }
    }
}
