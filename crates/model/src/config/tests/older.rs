//! Families of the first years, whose configurations have different keys, and published ones in full.

use serde_json::{Value, json};

use super::{read_hf, through_gguf, with};
use crate::config::{BlockForm, ModelConfig};

fn pythia() -> Value {
    json!({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_act": "gelu", "hidden_size": 512,
        "intermediate_size": 2048, "layer_norm_eps": 1e-5, "max_position_embeddings": 2048,
        "num_attention_heads": 8, "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25,
        "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50304,
    })
}

fn falcon() -> Value {
    json!({
        "architectures": ["FalconForCausalLM"], "model_type": "falcon", "alibi": false, "bias": false,
        "hidden_size": 4544, "layer_norm_epsilon": 1e-5, "multi_query": true,
        "new_decoder_architecture": false, "num_attention_heads": 71, "num_hidden_layers": 32,
        "parallel_attn": true, "vocab_size": 65024,
    })
}

fn falcon_40b() -> Value {
    let sizes = json!({
        "hidden_size": 8192, "new_decoder_architecture": true, "num_attention_heads": 128,
        "num_hidden_layers": 60, "num_kv_heads": 8,
    });
    with(&falcon(), sizes)
}

fn gpt2() -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "n_ctx": 1024, "n_embd": 1024, "n_head": 16, "n_layer": 24,
        "n_positions": 1024, "vocab_size": 50257,
    })
}

fn exaone() -> Value {
    json!({
        "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "activation_function": "silu",
        "head_dim": 80, "hidden_size": 2560, "intermediate_size": 7168, "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_layers": 30, "rope_theta": 1000000, "tie_word_embeddings": true, "vocab_size": 102400,
    })
}

fn phimoe() -> Value {
    json!({
        "architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe", "attention_bias": true, "hidden_size": 4096,
        "intermediate_size": 6400, "lm_head_bias": true, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_local_experts": 16, "router_jitter_noise": 0.01,
        "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32064,
        "rope_scaling": {
            "type": "longrope", "short_factor": vec![1.0; 64], "long_factor": vec![2.0; 64],
            "short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122,
            "original_max_position_embeddings": 4096,
        },
    })
}

/// Layers, heads, heads of keys, elements of a head, those that rotate, width of a network.
fn sizes(config: &ModelConfig) -> [usize; 6] {
    [
        config.n_layers,
        config.n_heads,
        config.n_kv_heads,
        config.head_dim,
        config.n_rot,
        config.d_ff,
    ]
}

/// The table of a GGUF file has the embeddings' factor in it, which no key gives.
#[test]
fn the_table_of_a_jais_file_is_no_head() {
    let mut config = read_hf(&json!({
        "architectures": ["JAISLMHeadModel"], "model_type": "jais", "n_embd": 64, "n_inner": 96, "n_layer": 2,
        "n_head": 4, "vocab_size": 100, "n_positions": 128, "layer_norm_epsilon": 1e-5,
        "activation_function": "swiglu", "position_embedding_type": "alibi", "mup_embeddings_scale": 14.6,
    }))
    .unwrap();
    config.tied_head = true;
    assert!(!through_gguf(&config).unwrap().tied_head);
}

#[test]
fn published_configurations_are_read_whole() {
    use BlockForm::{Parallel, ParallelNorms, Sequential};
    let sequential = with(&pythia(), json!({"use_parallel_residual": false}));
    let falcon_11b = with(
        &falcon_40b(),
        json!({"num_ln_in_parallel_attn": 1, "ffn_hidden_size": 16384, "num_hidden_layers": 60,
            "hidden_size": 4096, "num_attention_heads": 32}),
    );
    for (config, expected, form) in [
        (pythia(), [6, 8, 8, 64, 16, 2048], ParallelNorms),
        (sequential, [6, 8, 8, 64, 16, 2048], Sequential),
        (falcon(), [32, 71, 1, 64, 64, 18_176], Parallel),
        (falcon_40b(), [60, 128, 8, 64, 64, 32_768], ParallelNorms),
        (falcon_11b, [60, 32, 8, 128, 128, 16_384], Parallel),
        (gpt2(), [24, 16, 16, 64, 64, 4096], Sequential),
        (exaone(), [30, 32, 8, 80, 80, 7168], Sequential),
        (phimoe(), [32, 32, 8, 128, 128, 6400], Sequential),
    ] {
        let found = read_hf(&config).unwrap();
        assert_eq!(sizes(&found), expected, "{}", found.family);
        assert_eq!(found.layers.form, form, "{}", found.family);
        assert_eq!(found.norm_eps, 1e-5, "{}", found.family);
    }
    let gpt2 = read_hf(&gpt2()).unwrap();
    assert_eq!(gpt2.position_limit(), Some(1024));
    assert!((0..24).all(|layer| !gpt2.rotates(layer)));
    let factor = read_hf(&phimoe()).unwrap().rope.attention_factor();
    assert!((factor - 1.243_163_1).abs() < 1e-6, "{factor}");
}

#[test]
fn what_these_families_do_not_compute_is_named() {
    let other_mscale = json!({"rope_scaling": {
        "type": "longrope", "short_factor": vec![1.0; 64], "long_factor": vec![2.0; 64],
        "short_mscale": 1.0, "long_mscale": 1.5, "original_max_position_embeddings": 4096,
    }});
    for (base, change, word) in [
        (falcon(), json!({"activation": "mish"}), "mish"),
        (
            gpt2(),
            json!({"add_cross_attention": true}),
            "add_cross_attention",
        ),
        (
            gpt2(),
            json!({"scale_attn_by_inverse_layer_idx": true}),
            "scale_attn_by_inverse_layer_idx",
        ),
        (
            gpt2(),
            json!({"scale_attn_weights": false}),
            "scale_attn_weights",
        ),
        (gpt2(), json!({"n_head": 0}), "number of heads"),
        (
            gpt2(),
            json!({"n_layer": 1_000_000_000u64}),
            "number of layers",
        ),
        (phimoe(), json!({"lm_head_bias": false}), "lm_head_bias"),
        (
            phimoe(),
            json!({"router_jitter_noise": 0.1}),
            "router_jitter_noise",
        ),
        (phimoe(), other_mscale, "long_mscale"),
    ] {
        let error = read_hf(&with(&base, change)).unwrap_err().to_string();
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}
