//! Families that are near others: published configurations, and what of them is not computed.

use serde_json::{Value, json};

use super::{read_hf, with};
use crate::config::{Biases, BlockForm, RopeScaling};

fn opt() -> Value {
    json!({"model_type": "opt", "architectures": ["OPTForCausalLM"], "activation_function": "relu",
        "do_layer_norm_before": true, "ffn_dim": 3072, "hidden_size": 768, "max_position_embeddings": 2048,
        "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 50_272, "word_embed_proj_dim": 768})
}

fn gpt_neo() -> Value {
    json!({"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "activation_function": "gelu_new",
        "attention_types": [[["global", "local"], 6]], "hidden_size": 768, "intermediate_size": null,
        "layer_norm_epsilon": 1e-5, "max_position_embeddings": 2048, "num_heads": 12, "num_layers": 12,
        "vocab_size": 50_257, "window_size": 256})
}

fn codeshell() -> Value {
    json!({"model_type": "codeshell", "architectures": ["CodeShellForCausalLM"],
        "activation_function": "gelu_pytorch_tanh", "group_query_attention": true, "n_embd": 4096, "n_head": 32,
        "n_inner": 16_384, "n_layer": 42, "n_positions": 8192, "num_query_groups": 8,
        "position_embedding_type": "rope", "vocab_size": 70_144})
}

/// Published as `RefinedWebModel`, with the keys of its own code.
fn falcon_rw() -> Value {
    json!({"model_type": "falcon", "architectures": ["FalconForCausalLM"], "alibi": true, "bias": true,
        "hidden_size": 2048, "layer_norm_epsilon": 1e-5, "multi_query": false, "new_decoder_architecture": false,
        "num_attention_heads": 32, "num_hidden_layers": 24, "parallel_attn": false, "vocab_size": 50_304})
}

fn named(model_type: &str) -> Value {
    json!({"model_type": model_type})
}

#[test]
fn published_configurations_are_read_whole() {
    let config = read_hf(&opt()).unwrap();
    assert_eq!((config.d_ff, config.biases), (3072, Biases::ALL));
    assert_eq!(config.position_limit(), Some(2048));
    let galactica = read_hf(&with(&opt(), json!({"enable_bias": false}))).unwrap();
    assert_eq!(galactica.biases, Biases::NONE);
    let narrow = json!({"word_embed_proj_dim": 512, "do_layer_norm_before": false});
    let config = read_hf(&with(&opt(), narrow)).unwrap();
    assert_eq!(config.layers.table_dim, Some(512));
    assert_eq!(config.layers.form, BlockForm::PostNorms);
    let config = read_hf(&falcon_rw()).unwrap();
    assert_eq!((config.n_kv_heads, config.biases), (32, Biases::ALL));
    assert_eq!(config.layers.form, BlockForm::Sequential);
    assert_eq!(config.max_distance_bias, Some(8.0));
    // Slopes have the factor on scores: the first of 32 heads of 64 elements.
    let slope = config.distance_slopes().unwrap()[0];
    assert!((slope - 0.840_896_4 / 8.0).abs() < 1e-6, "{slope}");
    let config = read_hf(&gpt_neo()).unwrap();
    assert_eq!((config.d_ff, config.head_dim), (3072, 64));
    assert_eq!(config.attention_scale, 1.0);
    assert_eq!(
        config.global_layers(),
        (0..12).step_by(2).collect::<Vec<_>>()
    );
    let config = read_hf(&codeshell()).unwrap();
    assert_eq!((config.n_kv_heads, config.n_rot), (8, 128));
}

#[test]
fn what_is_left_unsaid_is_the_class() {
    let cwm = read_hf(&named("cwm")).unwrap();
    assert_eq!(cwm.global_layers(), (0..64).step_by(4).collect::<Vec<_>>());
    let scaling = &cwm.rope.scaling;
    let is_scaled = matches!(scaling, RopeScaling::Llama3 { factor, .. } if *factor == 16.0);
    assert!(is_scaled, "{scaling:?}");
    let ministral = read_hf(&named("ministral")).unwrap();
    assert!(ministral.global_layers().is_empty());
    assert_eq!(ministral.window, Some(4096));
    let solar = read_hf(&named("solar_open")).unwrap();
    assert_eq!((solar.n_rot, solar.head_dim), (128, 128));
    assert!(solar.experts_of(0).is_some());
    let sarvam = read_hf(&named("sarvam_mla")).unwrap();
    assert!(sarvam.latent.unwrap().q_rank.is_none());
    let persimmon = read_hf(&named("persimmon")).unwrap();
    assert_eq!((persimmon.n_rot, persimmon.qk_norm), (32, true));
    let xglm = read_hf(&named("xglm")).unwrap();
    assert_eq!((xglm.n_heads, xglm.embed_scale), (16, 32.0));
    // The class does not read the epsilon of its configuration.
    let biogpt = json!({"model_type": "biogpt", "layer_norm_eps": 1e-12});
    assert_eq!(read_hf(&biogpt).unwrap().norm_eps, 1e-5);
    let plain = json!({"model_type": "hyperclovax", "use_post_norm": false});
    assert_eq!(read_hf(&plain).unwrap().family, "granite");
}

#[test]
fn what_these_families_do_not_compute_is_named() {
    let types = "attention_types";
    for (base, change, word) in [
        (opt(), json!({"word_embed_proj_dim": 0}), "embedding table"),
        (
            opt(),
            json!({"_remove_final_layer_norm": true}),
            "_remove_final_layer_norm",
        ),
        (
            opt(),
            json!({"activation_function": "mish"}),
            "activation_function",
        ),
        (named("xglm"), json!({"pad_token_id": 5}), "pad_token_id"),
        (
            named("xglm"),
            json!({"add_cross_attention": true}),
            "add_cross_attention",
        ),
        (named("xglm"), json!({"attention_heads": 7}), "divisor"),
        (falcon_rw(), json!({"num_attention_heads": 0}), "heads"),
        (gpt_neo(), json!({types: [[["global"], 3]]}), types),
        (gpt_neo(), json!({types: [[["near"], 12]]}), types),
        (gpt_neo(), json!({types: [["global", 12]]}), types),
        (gpt_neo(), json!({types: 12}), types),
        (gpt_neo(), json!({types: [[[], u64::MAX]]}), types),
        (gpt_neo(), json!({"num_heads": 0}), "heads"),
        (gpt_neo(), json!({"num_heads": 7}), "num_heads"),
        (gpt_neo(), json!({"num_layers": 1u64 << 40}), "layers"),
        (
            codeshell(),
            json!({"position_embedding_type": "learned"}),
            "position_embedding_type",
        ),
        (codeshell(), json!({"num_query_groups": 0}), "key/value"),
        (codeshell(), json!({"num_query_groups": 5}), "key/value"),
        (named("iquestcoder"), json!({"clip_qkv": 8.0}), "clip_qkv"),
        (
            named("iquestcoder"),
            json!({"use_sliding_window": true}),
            "use_sliding_window",
        ),
        (
            named("sarvam_moe"),
            json!({"attention_bias": true}),
            "attention_bias",
        ),
        (
            named("sarvam_moe"),
            json!({"use_qkv_bias": true}),
            "use_qkv_bias",
        ),
    ] {
        let error = read_hf(&with(&base, change)).unwrap_err().to_string();
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}
