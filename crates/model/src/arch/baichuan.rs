//! Baichuan 7B: Llama whose queries, keys and values are one matrix in folders. The 13B has biases by distance.

use super::Family;
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;

/// Layers of the 13B, by which GGUF readers know it.
const N_LAYERS_13B: usize = 40;
const ALIBI: &str = "biases by distance (ALiBi) in place of RoPE, as Baichuan 13B has them,";

pub(super) static FAMILY: Family = Family {
    name: "baichuan",
    gguf_arch: "baichuan",
    hf_model_types: &["baichuan"],
    hf_classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
    hf_names: &[(WeightRole::AttnQkv, "self_attn.W_pack")],
    hf_roles: &[WeightRole::AttnQkv],
    models: "Baichuan 7B",
    permuted_in_gguf: true,
    hf_biases: Some(Biases {
        qkv: false,
        attn_output: false,
        ffn: false,
    }),
    hf_defaults: HfDefaults {
        vocab_size: 64_000,
        context_length: 4096,
        ..Family::PLAIN.hf_defaults
    },
    gguf: |keys: &Keys<'_>, config| match config.n_layers {
        N_LAYERS_13B => Err(keys.unsupported(ALIBI.into(), "Baichuan 7B")),
        _ => Ok(()),
    },
    hf,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.get("max_position_embeddings").is_none() || config.n_layers == N_LAYERS_13B {
        return Err(text.unsupported(ALIBI.into(), "Baichuan 7B"));
    }
    if text.get("z_loss_weight").is_some() {
        let feature = "a head whose rows are normalised (Baichuan 2)".into();
        return Err(text.unsupported(feature, "Baichuan 7B of the first generation"));
    }
    Ok(())
}
