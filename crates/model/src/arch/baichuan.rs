//! Baichuan: Llama whose queries, keys and values are one matrix in folders. The 13B has biases by distance in place of RoPE.
//! Rows of the second generation's head are divided by their lengths: here for folders, by the writer for GGUF files.

use super::Family;
use super::bloom::{MAX_DISTANCE_BIAS, set_distance_biases};
use crate::Error;
use crate::config::gguf::DISTANCE_BIAS_KEY;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;

/// Layers of the 13B, by which readers recognise it.
const N_LAYERS_13B: usize = 40;

pub(super) static FAMILY: Family = Family {
    name: "baichuan",
    gguf_arch: "baichuan",
    hf_model_types: &["baichuan"],
    hf_classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
    hf_names: &[(WeightRole::AttnQkv, "self_attn.W_pack")],
    hf_roles: &[WeightRole::AttnQkv],
    models: "Baichuan 7B, 13B; Baichuan 2 7B, 13B",
    permuted_in_gguf: true,
    gguf_own_keys: &[DISTANCE_BIAS_KEY],
    hf_biases: Some(Biases::NONE),
    hf_defaults: HfDefaults {
        vocab_size: 64_000,
        context_length: 4096,
        ..Family::PLAIN.hf_defaults
    },
    gguf: |_, config| {
        if config.n_layers == N_LAYERS_13B {
            set_distance_biases(config, MAX_DISTANCE_BIAS);
        }
        Ok(())
    },
    hf,
    write_hf: |config, out| {
        if config.max_distance_bias.is_some() {
            out[CONTEXT_13B] = out["max_position_embeddings"].take();
            if let Some(map) = out.as_object_mut() {
                map.remove("max_position_embeddings");
                map.remove("rope_parameters");
            }
        }
    },
    ..Family::PLAIN
};

/// The 13B's key of the trained context, in place of the 7B's.
const CONTEXT_13B: &str = "model_max_length";

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    // A key of the second generation's class, which normalises the head's rows for any value of the key.
    config.layers.unit_head = text.get("z_loss_weight").is_some();
    // GGUF files do not record it: readers of both must agree.
    let is_13b = config.n_layers == N_LAYERS_13B;
    if text.get("max_position_embeddings").is_none() && !is_13b {
        let feature = format!(
            "{} layers without `max_position_embeddings`",
            config.n_layers
        );
        let supported = format!("the {N_LAYERS_13B} layers of the 13B, or the 7B's key");
        return Err(text.unsupported(feature, &supported));
    }
    if is_13b {
        set_distance_biases(config, MAX_DISTANCE_BIAS);
        if let Some(context) = text.usize(CONTEXT_13B)? {
            config.context_length = context;
        }
    }
    Ok(())
}
