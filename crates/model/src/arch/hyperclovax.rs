//! HyperCLOVA X SEED Think: Granite with norms behind both halves of a block, and a factor on logits in place of a divisor.
//! llama.cpp has no name for it.

use super::{Family, gemma2, granite};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, shortest};
use crate::names::WeightRole;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "hyperclovax",
    gguf_arch: "hyperclovax",
    hf_model_types: &["hyperclovax"],
    hf_classes: &["HyperCLOVAXForCausalLM"],
    hf_names: &[
        (WeightRole::AttnPostNorm, "post_norm1"),
        (WeightRole::FfnPostNorm, "post_norm2"),
    ],
    models: "HyperCLOVA X SEED Think 14B",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    hf,
    write_hf: |config, out| {
        granite::write_hf(config, out);
        out["logits_scaling"] = shortest(config.logit_scale);
        out["use_post_norm"] = json!(true);
    },
    build: gemma2::build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let usual_scale = config.attention_scale;
    granite::hf(text, config)?;
    config.attention_scale = text.f32("attention_multiplier")?.unwrap_or(usual_scale);
    config.logit_scale = text.f32("logits_scaling")?.unwrap_or(1.0);
    if text.bool("use_post_norm")? == Some(false) {
        // Without these norms it is Granite.
        config.family = granite::FAMILY.name;
    }
    Ok(())
}
