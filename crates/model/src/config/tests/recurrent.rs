//! Recurrent layers: values that published configurations leave out, and refusals by name.

use serde_json::{Value, json};

use super::{read_hf, with};
use crate::config::{DeltaConfig, RecurrentMixer};
use crate::synth::ModelGeometry;

fn qwen() -> Value {
    json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
        "text_config": {
            "model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584,
            "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2,
            "linear_num_value_heads": 16, "max_position_embeddings": 262_144,
            "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"},
        },
        "tie_word_embeddings": true,
    })
}

fn lfm2() -> Value {
    json!({
        "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 2048,
        "block_ff_dim": 12_288, "num_hidden_layers": 16, "num_attention_heads": 32,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "rope_theta": 1e6, "tie_embedding": true,
    })
}

/// The text model's part of a configuration, changed.
fn changed(changes: Value) -> Value {
    let mut outer = qwen();
    outer["text_config"] = with(&outer["text_config"], changes);
    outer
}

#[test]
fn what_is_left_unsaid_is_the_published_models() {
    for (config, geometry) in [(qwen(), "qwen3.5-0.8b"), (lfm2(), "lfm2-1.2b")] {
        let expected = ModelGeometry::named(geometry).unwrap().config(None);
        assert_eq!(read_hf(&config).unwrap(), expected);
    }
    let every_third = read_hf(&changed(json!({"full_attention_interval": 3}))).unwrap();
    let layers = every_third.recurrent.unwrap().layers;
    assert_eq!(layers[..6], [true, true, false, true, true, false]);
    // The width is adjusted, unless the configuration switches that off.
    for (changes, d_ff) in [
        (json!({"block_auto_adjust_ff_dim": false}), 12_288),
        (json!({"block_ffn_dim_multiplier": 1.1}), 9216),
        (json!({"block_ffn_dim_multiplier": null}), 8192),
        (json!({"block_multiple_of": 100, "block_ff_dim": 999}), 700),
    ] {
        let config = read_hf(&with(&lfm2(), changes.clone())).unwrap();
        assert_eq!(config.d_ff, d_ff, "{changes}");
    }
}

#[test]
fn caches_are_counted_over_layers_that_attend() {
    let config = read_hf(&lfm2()).unwrap();
    let caches = [2, 5, 8, 10, 12, 14].map(|layer| config.cache_of(layer));
    assert_eq!(caches, [0, 1, 2, 3, 4, 5]);
    let mixer = RecurrentMixer::ShortConv {
        n_taps: 3,
        biased: false,
    };
    assert_eq!([0, 2].map(|l| config.mixer_of(l)), [Some(mixer), None]);
    let delta = DeltaConfig {
        n_taps: 4,
        n_k_heads: 16,
        n_v_heads: 16,
        k_dim: 128,
        v_dim: 128,
        negative_eigenvalues: false,
    };
    let config = read_hf(&qwen()).unwrap();
    assert_eq!(config.mixer_of(0), Some(RecurrentMixer::DeltaNet(delta)));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let cases = [
        (
            json!({"linear_conv_kernel_dim": 1}),
            "length of the convolution",
        ),
        (
            json!({"linear_conv_kernel_dim": 9}),
            "length of the convolution",
        ),
        (
            json!({"linear_num_value_heads": 24}),
            "a multiple of the 16 key heads",
        ),
        (
            json!({"linear_num_key_heads": 0}),
            "key heads of recurrent layers",
        ),
        (
            json!({"linear_key_head_dim": 512}),
            "size of their key heads",
        ),
        (
            json!({"linear_value_head_dim": 1_u64 << 40}),
            "size of their value heads",
        ),
        (
            json!({"full_attention_interval": 0}),
            "full_attention_interval",
        ),
        (
            json!({"layer_types": ["linear_attention"]}),
            "number of layer types",
        ),
        (
            json!({"layer_types": ["sliding_attention"]}),
            "layer type \"sliding_attention\"",
        ),
        (json!({"layer_types": [3]}), "layer type 3"),
    ];
    for (changes, words) in cases {
        let error = read_hf(&changed(changes.clone())).unwrap_err().to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
    for (changes, words) in [
        (json!({"conv_L_cache": 1}), "length of the convolution"),
        (json!({"block_multiple_of": 0}), "block_multiple_of"),
        (
            json!({"layer_types": ["linear_attention"]}),
            "full_attention, conv",
        ),
    ] {
        let error = read_hf(&with(&lfm2(), changes.clone())).unwrap_err();
        assert!(error.to_string().contains(words), "{changes}: {error}");
    }
}
