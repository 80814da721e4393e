//! Kimi Linear: its published configuration, and refusals by name.

use serde_json::{Value, json};

use super::{read_hf, with};
use crate::config::{KimiDeltaConfig, ModelConfig, RecurrentMixer};

const ATTENDING: [usize; 7] = [4, 8, 12, 16, 20, 24, 27];

fn others() -> Vec<usize> {
    (1..=27).filter(|n| !ATTENDING.contains(n)).collect()
}

fn published() -> Value {
    json!({
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
        "first_k_dense_replace": 1, "head_dim": 72, "hidden_act": "silu", "hidden_size": 2304,
        "intermediate_size": 9216, "kv_lora_rank": 512, "mla_use_nope": true,
        "linear_attn_config": {
            "full_attn_layers": ATTENDING, "kda_layers": others(),
            "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        },
        "model_max_length": 1_048_576, "moe_intermediate_size": 1024, "moe_layer_freq": 1,
        "moe_renormalize": true, "moe_router_activation_func": "sigmoid",
        "num_attention_heads": 32, "num_expert_group": 1, "num_experts": 256,
        "num_experts_per_token": 8, "num_hidden_layers": 27, "num_key_value_heads": 32,
        "num_shared_experts": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-5, "rope_scaling": null, "rope_theta": 10000.0,
        "routed_scaling_factor": 2.446, "tie_word_embeddings": false, "topk_group": 1,
        "use_grouped_topk": true, "v_head_dim": 128, "vocab_size": 163_840,
    })
}

/// The object of recurrent layers, changed.
fn changed(changes: Value) -> Value {
    let mut config = published();
    config["linear_attn_config"] = with(&config["linear_attn_config"], changes);
    config
}

#[test]
fn what_is_published_is_read() {
    let config = read_hf(&published()).unwrap();
    let delta = KimiDeltaConfig {
        n_taps: 4,
        n_heads: 32,
        head_dim: 128,
    };
    for layer in 0..27 {
        let mixer = match ATTENDING.contains(&(layer + 1)) {
            true => None,
            false => Some(RecurrentMixer::KimiDelta(delta)),
        };
        assert_eq!(config.mixer_of(layer), mixer, "{layer}");
        assert!(!config.rotates(layer));
        assert_eq!(config.experts_of(layer).is_some(), layer > 0);
    }
    let latent = config.latent.unwrap();
    assert_eq!((latent.q_rank, latent.cache_dim()), (None, 576));
    assert_eq!(config.context_length, 1_048_576);
    assert!((config.attention_scale - 1.0 / 192f32.sqrt()).abs() < 1e-7);
    // The defaults of transformers for absent keys give the same model but for the last layer.
    let mut bare = json!({"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear"});
    let flat = ["full_attention", "linear_attention"];
    let kind = |layer: usize| flat[usize::from(!ATTENDING.contains(&(layer + 1)))];
    bare["layer_types"] = (0..27).map(kind).collect();
    assert_eq!(read_hf(&bare).unwrap(), config);
    bare["layer_types"] = Value::Null;
    let attends = |config: &ModelConfig| -> Vec<usize> {
        (0..27).filter(|layer| config.attends(*layer)).collect()
    };
    let usual = read_hf(&bare).unwrap();
    assert_eq!(attends(&usual), [4, 8, 12, 16, 20, 24]);
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    for (config, words) in [
        (
            changed(json!({"num_heads": 16})),
            "16 heads in layers that do not attend",
        ),
        (changed(json!({"head_dim": 512})), "size of their heads"),
        (
            changed(json!({"short_conv_kernel_size": 1})),
            "length of the convolution",
        ),
        (changed(json!({"kda_layers": [1, 2]})), "kda_layers"),
        (
            changed(json!({"full_attn_layers": [4], "kda_layers": []})),
            "kda_layers",
        ),
        (
            with(&published(), json!({"mla_use_nope": false})),
            "mla_use_nope",
        ),
        (
            with(&published(), json!({"kv_lora_rank": 0})),
            "rank of keys and values",
        ),
        (
            with(
                &published(),
                json!({"moe_router_activation_func": "softmax"}),
            ),
            "moe_router_activation_func",
        ),
        (
            with(&published(), json!({"layer_types": ["linear_attention"]})),
            "number of layer types",
        ),
    ] {
        let error = read_hf(&config).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}
