//! InternLM 3: Llama with different keys for biases. Its GGUF files call themselves `llama`.

use super::Family;
use crate::config::Biases;
use crate::config::hf::HfDefaults;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "internlm3",
    gguf_arch: "llama",
    hf_model_types: &["internlm3"],
    // transformers saves its class's parent.
    hf_classes: &["InternLM3ForCausalLM", "LlamaForCausalLM"],
    models: "InternLM 3",
    permuted_in_gguf: true,
    hf_own_biases: true,
    hf_defaults: HfDefaults {
        vocab_size: 128_512,
        d_model: 4096,
        d_ff: 10_240,
        n_layers: 48,
        n_heads: 32,
        n_kv_heads: Some(2),
        head_dim: Some(128),
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf: |text, config| {
        let bias = |key, of_class: &str| -> Result<bool, crate::Error> {
            let own = text.bool(key)?;
            Ok(own.or(text.bool(of_class)?).unwrap_or(false))
        };
        let (qkv, others) = (
            bias("qkv_bias", "attention_bias")?,
            bias("bias", "mlp_bias")?,
        );
        config.biases = Biases {
            qkv,
            attn_output: others,
            ffn: others,
        };
        Ok(())
    },
    write_hf: |config, out| {
        out["qkv_bias"] = json!(config.biases.qkv);
        out["bias"] = json!(config.biases.ffn);
    },
    ..Family::PLAIN
};
