//! IQuest Coder: Llama under a name of its own. Its GGUF files call themselves `llama`.

use super::Family;
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults};

pub(super) static FAMILY: Family = Family {
    name: "iquestcoder",
    gguf_arch: "llama",
    hf_model_types: &["iquestcoder"],
    // transformers saves its class's parent.
    hf_classes: &["IQuestCoderForCausalLM", "LlamaForCausalLM"],
    models: "IQuest Coder 7B, 14B, 40B (not the looped ones)",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 76_800,
        d_model: 5120,
        d_ff: 27_648,
        n_layers: 80,
        n_heads: 40,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, _config: &mut ModelConfig) -> Result<(), Error> {
    if let Some(found) = text.get("clip_qkv").filter(|found| !found.is_null()) {
        let feature = format!("`clip_qkv` = {found} in IQuest Coder");
        return Err(text.unsupported(feature, "models without it, as all published ones"));
    }
    if text.bool("use_sliding_window")? == Some(true) {
        let feature = "`use_sliding_window` in IQuest Coder".into();
        return Err(text.unsupported(feature, "models without it, as all published ones"));
    }
    Ok(())
}
