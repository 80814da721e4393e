//! Families of 2024 to 2026 with gates, windows and experts: published configurations, and refusals among them.

use serde_json::{Value, json};

use super::{llama, read_hf, with};
use crate::config::ModelConfig;
use millrace_graph::Gating;

/// Ling mini 2, as published.
fn ling() -> Value {
    json!({
        "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "first_k_dense_replace": 1,
        "head_dim": 128, "hidden_size": 2048, "intermediate_size": 5120, "max_position_embeddings": 32768,
        "moe_intermediate_size": 512, "n_group": 8, "norm_topk_prob": true, "num_attention_heads": 16,
        "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 20, "num_key_value_heads": 4,
        "num_shared_experts": 1, "partial_rotary_factor": 0.5, "rope_theta": 600000, "routed_scaling_factor": 2.5,
        "score_function": "sigmoid", "topk_group": 4, "use_bias": false, "use_qk_norm": true, "use_qkv_bias": false,
        "vocab_size": 157184, "rms_norm_eps": 1e-6, "norm_head": false,
    })
}

fn muse() -> Value {
    let text = json!({
        "model_type": "muse_glimmer_text", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 5,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "sliding_window": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    });
    json!({
        "architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer", "text_config": text,
    })
}

fn cohere() -> Value {
    json!({
        "architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe", "first_k_dense_replace": 2,
        "hidden_size": 64, "intermediate_size": 24, "num_attention_heads": 4, "num_hidden_layers": 10,
        "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 1, "head_dim": 16,
        "prefix_dense_intermediate_size": 96, "expert_selection_fn": "sigmoid", "sliding_window": 8,
        "vocab_size": 100,
    })
}

fn baichuan() -> Value {
    let names = json!({"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan"});
    with(&llama(), names)
}

fn deepseek() -> Value {
    let names = json!({
        "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 24, "norm_topk_prob": false,
    });
    with(&llama(), names)
}

fn read(config: &Value) -> ModelConfig {
    read_hf(config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn ling_2_is_told_from_the_first_by_its_class() {
    let config = read(&ling());
    assert_eq!((config.family, config.n_rot), ("bailingmoe2", 64));
    let experts = config.experts.as_ref().unwrap();
    assert_eq!((experts.scale, experts.n_dense_layers), (2.5, 1));
    assert_eq!(experts.gating, Gating::Sigmoid);
    assert_eq!(experts.groups.unwrap().n_groups, 8);
    let first = with(
        &ling(),
        json!({"architectures": ["BailingMoeForCausalLM"], "partial_rotary_factor": 1.0}),
    );
    let config = read(&first);
    assert_eq!(config.family, "bailingmoe");
    assert_eq!(config.experts.unwrap().gating, Gating::Softmax);
}

/// Without `layer_types` the last layer is global and every fourth before it; those do not rotate.
#[test]
fn layers_of_muse_glimmer_count_from_the_last() {
    let config = read(&muse());
    assert_eq!(config.global_layers(), [0, 4]);
    assert_eq!(config.unrotated_layers, [0, 4]);
    assert_eq!(
        (config.query_scale, config.logit_softcap),
        (3.87, Some(20.0))
    );
}

/// Leading dense layers have no window, and rotate all the same; the period begins behind them.
#[test]
fn dense_layers_of_command_rotate_without_a_window() {
    let config = read(&cohere());
    assert_eq!(config.global_layers(), [0, 1, 5, 9]);
    assert_eq!(config.unrotated_layers, [5, 9]);
    assert_eq!((config.d_ff, config.experts.unwrap().d_ff), (96, 24));
}

#[test]
fn variants_that_compute_otherwise_are_refused_by_name() {
    let text = |key: &str, value: Value| {
        let mut out = muse();
        out["text_config"][key] = value;
        out
    };
    let cases = [
        (with(&ling(), json!({"norm_head": true})), "norm_head"),
        (
            with(&ling(), json!({"score_function": "softmax"})),
            "score_function",
        ),
        (text("post_norm_eps", json!(1e-5)), "post_norm_eps"),
        (
            text("layer_rope_theta", json!([0, 1.0, 1.0, 1.0, 0])),
            "layer_rope_theta",
        ),
        (
            text("layer_rope_theta", json!([0, 0, 10000.0, 10000.0, 0])),
            "without RoPE",
        ),
        (
            with(
                &cohere(),
                json!({"shared_expert_combination_strategy": "sum"}),
            ),
            "shared_expert_combination_strategy",
        ),
        (
            with(&cohere(), json!({"rms_norm_eps": 1e-6})),
            "rms_norm_eps",
        ),
        (
            with(&cohere(), json!({"expert_selection_fn": "tanh"})),
            "tanh",
        ),
        (
            with(&cohere(), json!({"mlp_layer_types": ["dense", "both"]})),
            "mlp_layer_types",
        ),
        (
            with(&baichuan(), json!({"max_position_embeddings": null})),
            "`max_position_embeddings`",
        ),
        (
            with(&deepseek(), json!({"scoring_func": "sigmoid"})),
            "scoring_func",
        ),
    ];
    for (config, word) in cases {
        let error = read_hf(&config).unwrap_err().to_string();
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    for config in [ling(), muse(), cohere(), baichuan(), deepseek()] {
        assert!(!read(&config).layers.unit_head);
    }
}

#[test]
fn heads_of_the_second_baichuan_are_normalised() {
    let second = with(&baichuan(), json!({"z_loss_weight": 0}));
    assert!(read(&second).layers.unit_head);
}
