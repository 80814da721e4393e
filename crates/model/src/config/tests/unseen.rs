//! Keys that no fixture sets, and that transformers' classes read.

use millrace_format::gguf::GgufValue;
use serde_json::{Value, json};

use super::{llama, read_hf, through_gguf_with, with};
use crate::arch::WeightConvention;
use crate::config::ModelConfig;
use crate::names::{ParameterKind, WeightRole};

fn qwen_mixture(names: Value) -> Value {
    let sizes = json!({
        "num_hidden_layers": 6, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "sliding_window": 8,
    });
    with(&with(&llama(), sizes), names)
}

fn read(config: &Value) -> ModelConfig {
    read_hf(config).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(config: &Value, word: &str) {
    let error = read_hf(config).unwrap_err().to_string();
    assert!(error.contains(word), "{error}");
}

/// Every layer of Qwen 3's mixtures slides where any does; in Qwen 2's each second one, before a bound.
#[test]
fn mixtures_of_qwen_slide_by_rules_of_their_own() {
    let third = json!({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "max_window_layers": 3});
    let third = qwen_mixture(third);
    assert_eq!(read(&third).window, None);
    let used = json!({"use_sliding_window": true});
    let config = read(&with(&third, used.clone()));
    assert_eq!(
        (config.window, &config.layer_windowed[..]),
        (Some(8), &[true; 6][..])
    );
    let second = json!({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "max_window_layers": 3});
    let second = with(&qwen_mixture(second), used);
    let first_layers = [true, false, true, false, false, false];
    assert_eq!(read(&second).layer_windowed, first_layers);
    let types: Vec<&str> = (0..6)
        .map(|layer| ["full_attention", "sliding_attention"][usize::from(layer == 4)])
        .collect();
    let config = read(&with(&second, json!({"layer_types": types})));
    assert_eq!(
        config.layer_windowed,
        [false, false, false, false, true, false]
    );
}

#[test]
fn a_mixture_of_qwen_2_may_lack_biases() {
    let names = json!({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe"});
    let config = qwen_mixture(names);
    assert!(read(&config).biases.qkv);
    let config = read(&with(&config, json!({"qkv_bias": false})));
    assert!(!config.biases.qkv);
    let written = crate::config::hf::write(&config).unwrap();
    assert_eq!(read(&written), config);
}

/// Llama's class rotates whole heads and ignores the key.
#[test]
fn a_share_of_a_head_is_refused_where_the_class_knows_none() {
    let flat = with(&llama(), json!({"partial_rotary_factor": 0.5}));
    let nested = json!({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}});
    for config in [flat, with(&llama(), nested)] {
        refused(&config, "`partial_rotary_factor` = 0.5 in llama");
    }
    assert_eq!(
        read(&with(&llama(), json!({"partial_rotary_factor": 1.0}))).n_rot,
        16
    );
}

#[test]
fn one_matrix_is_table_and_head_if_either_object_says_so() {
    let text = with(
        &llama(),
        json!({"model_type": "ministral3", "rope_parameters": {"rope_theta": 1e4}}),
    );
    let tied = |inner: bool, outer: bool| {
        let text = with(&text, json!({"tie_word_embeddings": inner}));
        read(&json!({
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": text,
            "tie_word_embeddings": outer,
        }))
        .tied_head
    };
    assert!(tied(false, true) && tied(true, false) && !tied(false, false));
}

#[test]
fn a_bound_below_the_sum_of_weights_is_refused() {
    let ernie = json!({
        "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 2,
        "moe_intermediate_size": 24, "moe_norm_min": 1e-12,
    });
    let ernie = with(&llama(), ernie);
    read(&ernie);
    refused(
        &with(&ernie, json!({"moe_norm_min": 0.5})),
        "`moe_norm_min` = 0.5",
    );
}

/// `null` differs from an absent key.
#[test]
fn factors_of_minicpm3_can_be_switched_off() {
    let base = json!({
        "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "q_lora_rank": 24, "kv_lora_rank": 16,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "num_key_value_heads": 4,
    });
    let base = with(&llama(), base);
    let usual = read(&base);
    assert_eq!(
        (usual.residual_scale, usual.logit_scale),
        (1.4 / 2f32.sqrt(), 4.0)
    );
    let off = read(&with(
        &base,
        json!({"scale_depth": null, "dim_model_base": null}),
    ));
    assert_eq!((off.residual_scale, off.logit_scale), (1.0, 1.0));
}

#[test]
fn the_first_qwen_counts_gate_and_up_projection_together() {
    let qwen = json!({
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016,
        "kv_channels": 128, "layer_norm_epsilon": 1e-6, "max_position_embeddings": 32768, "no_bias": true,
        "num_attention_heads": 32, "num_hidden_layers": 32, "rotary_emb_base": 10000, "rotary_pct": 1.0,
        "seq_length": 8192, "tie_word_embeddings": false, "use_dynamic_ntk": true, "use_logn_attn": true,
        "vocab_size": 151936,
    });
    let config = read(&qwen);
    assert_eq!(
        (config.d_ff, config.head_dim, config.n_kv_heads),
        (11008, 128, 32)
    );
    // Up to that length nothing is scaled.
    assert_eq!(config.context_length, 8192);
    refused(&with(&qwen, json!({"no_bias": false})), "`no_bias`");
}

/// transformers' classes have two keys for most sizes of BLOOM, and one key of the trained context that it does not write.
#[test]
fn models_with_biases_by_distance_open_in_both_words() {
    let published = json!({
        "architectures": ["BloomForCausalLM"], "model_type": "bloom", "n_embed": 1024, "n_layer": 24,
        "num_attention_heads": 16, "seq_length": 2048, "vocab_size": 250880, "layer_norm_epsilon": 1e-5,
        "apply_residual_connection_post_layernorm": false, "offset_alibi": 100, "pretraining_tp": 1,
    });
    let bloom = read(&published);
    assert_eq!(
        (bloom.d_model, bloom.d_ff, bloom.head_dim),
        (1024, 4096, 64)
    );
    assert_eq!(bloom.max_distance_bias, Some(8.0));
    assert!((0..24).all(|layer| !bloom.rotates(layer)));
    assert_eq!(read(&crate::config::hf::write(&bloom).unwrap()), bloom);
    let post = json!({"apply_residual_connection_post_layernorm": true});
    refused(&with(&published, post), "post_layernorm");
    refused(
        &with(&published, json!({"num_attention_heads": 15})),
        "a divisor of the width 1024",
    );
    let mpt = json!({
        "architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
        "max_seq_len": 65536, "expansion_ratio": 4, "vocab_size": 50432, "logit_scale": null, "no_bias": true,
        "attn_config": {"alibi": true, "alibi_bias_max": 8, "clip_qkv": null, "softmax_scale": null, "qk_ln": false},
    });
    let config = read(&mpt);
    assert_eq!((config.head_dim, config.context_length), (128, 65536));
    assert_eq!(read(&crate::config::hf::write(&config).unwrap()), config);
    for (key, value) in [
        ("alibi", json!(false)),
        ("alibi_bias_max", json!(16)),
        ("qk_ln", json!(true)),
        ("attn_type", json!("multiquery_attention")),
    ] {
        let mut other = mpt.clone();
        other["attn_config"][key] = value;
        refused(&other, key);
    }
    refused(
        &with(&mpt, json!({"logit_scale": "inv_sqrt_d_model"})),
        "logit_scale",
    );
    let baichuan = json!({
        "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "num_hidden_layers": 40,
        "model_max_length": 4096, "max_position_embeddings": null, "rope_theta": 10000.0,
    });
    let config = read(&with(&llama(), baichuan));
    assert_eq!(
        (config.max_distance_bias, config.context_length),
        (Some(8.0), 4096)
    );
    assert_eq!(read(&crate::config::hf::write(&config).unwrap()), config);
}

/// Shared experts have biases where dense networks have.
#[test]
fn shared_experts_have_the_biases_of_networks() {
    let base = json!({
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "q_lora_rank": null,
        "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_bias": true,
    });
    let config = read(&with(&llama(), base));
    let names = |layout| {
        let tensors = crate::builder::layout(&config, layout, 0..config.n_layers);
        let mut biases = tensors
            .into_iter()
            .filter(|tensor| tensor.name.part == ParameterKind::Bias);
        biases.any(|tensor| tensor.name.role == WeightRole::SharedDown)
    };
    assert!(names(WeightConvention::HuggingFace) && names(WeightConvention::Gguf));
}

/// GLM 4.7 Flash lists for each layer whether it has experts; DeepSeek's class gives the number of leading layers without.
#[test]
fn dense_layers_in_the_midst_are_those_of_glm() {
    let types = ["dense", "sparse", "dense", "sparse"];
    let glm = json!({
        "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", "num_hidden_layers": 4,
        "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "n_group": 1, "topk_group": 1, "mlp_layer_types": types,
    });
    let config = read(&with(&llama(), glm));
    let written = crate::config::hf::write(&config).unwrap();
    assert_eq!(written["mlp_layer_types"], json!(types));
    assert_eq!(read(&written), config);
}

/// llama.cpp's converter writes the width of a network that a dense Granite 4 does not have.
#[test]
fn the_network_of_a_dense_granite_4_is_as_wide_as_its_tensor() {
    let granite = json!({
        "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "num_local_experts": 0,
        "layer_types": ["attention", "attention"], "shared_intermediate_size": 40, "position_embedding_type": "rope",
        "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8,
    });
    let config = read(&with(&llama(), granite));
    let found = through_gguf_with(&config, |metadata| {
        metadata.insert("granitehybrid.feed_forward_length", GgufValue::U32(96));
    });
    assert_eq!(found.unwrap().d_ff, 40);
}

/// Without a key the matrix of keys and values gives the size of values.
#[test]
fn values_of_minicpm3_are_as_large_as_their_matrix() {
    let base = json!({
        "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "q_lora_rank": 24, "kv_lora_rank": 16,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 24, "num_key_value_heads": 4,
    });
    let config = read(&with(&llama(), base));
    let found = through_gguf_with(&config, |metadata| {
        metadata.retain(|key| !key.contains("value_length"));
    });
    assert_eq!(found.unwrap().latent.unwrap().v_dim, 24);
}
