//! Several streams, as in Gemma 3n.

use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Value, json};

use crate::Error;
use crate::config::{ModelConfig, gguf, hf};

fn read(changes: Value) -> Result<ModelConfig, Error> {
    let mut config = json!({
        "model_type": "gemma3n_text", "vocab_size": 70, "vocab_size_per_layer_input": 64,
        "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 6,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "hidden_size_per_layer_input": 4, "num_kv_shared_layers": 2, "laurel_rank": 5,
        "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention",
            "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.0, 0.25, 0.0],
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    hf::read("config.json", &config)
}

#[test]
fn what_files_leave_unsaid_is_the_classes() {
    let plain = json!({ "model_type": "gemma3n_text" });
    let config = hf::read("config.json", &plain).unwrap();
    let streams = config.layers.streams.as_ref().unwrap();
    assert_eq!(
        (streams.n_streams, streams.active, streams.laurel_rank),
        (4, 0, 64)
    );
    let sparse = (0..35).filter(|layer| streams.deviations(*layer).is_some());
    assert_eq!(sparse.collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!((streams.gate_deviations[0] - 1.644_853_6).abs() < 1e-6);
    assert_eq!(
        (config.logit_softcap, config.attention_scale),
        (Some(30.0), 1.0)
    );
    // Layers that share read the last of their kind before them.
    let kv_layers = [18, 19, 20, 23, 24].map(|layer| config.kv_layer_of(layer));
    assert_eq!(kv_layers, [18, 19, 18, 18, 19]);
    let unbound = read(json!({ "final_logit_softcapping": null })).unwrap();
    assert_eq!(unbound.logit_softcap, None);
}

#[test]
fn both_spellings_come_back() {
    for changes in [
        json!({}),
        json!({"altup_num_inputs": 2, "altup_active_idx": 1}),
        json!({"intermediate_size": [24, 24, 24, 40, 40, 24]}),
        json!({"num_kv_shared_layers": 0, "final_logit_softcapping": null}),
        json!({"rope_theta": 5e5, "rope_local_base_freq": 2e4}),
    ] {
        let config = read(changes).unwrap();
        let written = hf::write(&config).unwrap();
        let again = hf::read("config.json", &written).unwrap();
        assert_eq!(again, config, "{written}");
        let metadata = gguf::write(&config).unwrap();
        let streams = config.layers.streams.unwrap();
        let scale = metadata.get("gemma3n.activation_sparsity_scale");
        let expected = GgufValue::Array(GgufArray::F32(streams.gate_deviations));
        assert_eq!(scale, Some(&expected));
        let n_streams = metadata.get_usize("gemma3n.altup.num_inputs").unwrap();
        assert_eq!(n_streams, Some(streams.n_streams));
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    for (changes, words) in [
        (json!({"altup_num_inputs": 1}), "number of streams"),
        (json!({"altup_num_inputs": 1000}), "number of streams"),
        (json!({"altup_active_idx": 4}), "active stream"),
        (json!({"altup_correct_scale": false}), "altup_correct_scale"),
        (json!({"laurel_rank": 0}), "Laurel"),
        (
            json!({"vocab_size_per_layer_input": 71}),
            "between 1 and 70",
        ),
        (json!({"vocab_size_per_layer_input": 0}), "between 1 and 70"),
        (
            json!({"hidden_size_per_layer_input": 0}),
            "layer's embedding",
        ),
        (
            json!({"activation_sparsity_pattern": [0.95]}),
            "one for each of the 6 layers",
        ),
        (
            json!({"activation_sparsity_pattern": [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]}),
            "sparsity of a gate",
        ),
        (
            json!({"activation_sparsity_pattern": 0.95}),
            "a list of numbers",
        ),
        (
            json!({"intermediate_size": [24, 40]}),
            "one for each of the 6 layers",
        ),
        (
            json!({"intermediate_size": [0, 0, 0, 0, 0, 0]}),
            "feed-forward size",
        ),
        (
            json!({"num_kv_shared_layers": 6}),
            "layers that share keys and values",
        ),
    ] {
        let error = read(changes.clone()).expect_err(words).to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
}
