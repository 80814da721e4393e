//! Helium: Llama whose folders hold neighbours of a head that rotate together. Its GGUF files call themselves `llama`.

use super::Family;
use crate::config::Biases;
use crate::config::hf::HfDefaults;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "helium",
    gguf_arch: "llama",
    hf_model_types: &["helium"],
    hf_classes: &["HeliumForCausalLM"],
    models: "Helium 1 2B",
    interleaved: true,
    hf_own_biases: true,
    hf_norm_eps: 1e-8,
    hf_defaults: HfDefaults {
        vocab_size: 48_000,
        d_model: 2560,
        d_ff: 7040,
        n_layers: 24,
        n_heads: 20,
        n_kv_heads: Some(20),
        head_dim: Some(128),
        context_length: 4096,
        tied_head: false,
        rope_theta: 100_000.0,
    },
    hf: |text, config| {
        // The class takes the word for queries, keys and values alone, and has none for its network.
        config.biases = Biases {
            qkv: text.bool("attention_bias")?.unwrap_or(false),
            ..Biases::NONE
        };
        Ok(())
    },
    write_hf: |config, out| out["attention_bias"] = json!(config.biases.qkv),
    hf_unsayable: |config| {
        let biases = config.biases;
        (biases.attn_output || biases.ffn).then(|| format!("{biases:?} in Helium"))
    },
    ..Family::PLAIN
};
