//! Random configurations: no JSON makes the reader panic.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{llama, read_hf, with};
use crate::config::{gguf, hf};

/// Any JSON, with keys that have a meaning.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "model_type",
        "architectures",
        "text_config",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rope_parameters",
        "rope_scaling",
        "full_attention",
        "rope_type",
        "factor",
        "original_max_position_embeddings",
        "short_factor",
        "partial_rotary_factor",
        "layer_types",
        "full_attention_interval",
        "linear_num_value_heads",
        "full_attn_idxs",
        "block_ffn_dim_multiplier",
        "sliding_window",
        "sliding_window_pattern",
        "query_pre_attn_scalar",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u64..5000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "llama",
            "gemma3",
            "qwen2",
            "qwen3",
            "qwen3_5_text",
            "lfm2",
            "linear",
            "yarn",
            "longrope",
            "proportional",
            "sliding_attention"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 40, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..8).prop_map(|pairs| {
                Value::Object(
                    pairs
                        .into_iter()
                        .map(|(key, value)| (key.into(), value))
                        .collect(),
                )
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For any JSON, the outcome is a valid configuration or an error.
    #[test]
    fn hostile_json_never_panics(changes in any_json(), family in 0usize..4) {
        let model_type = ["llama", "gemma3", "qwen2", "mistral"][family];
        let mut config = llama();
        if let Some(changes) = changes.as_object() {
            config = with(&config, Value::Object(changes.clone()));
        }
        config["model_type"] = json!(model_type);
        config["architectures"] = json!(null);
        if let Ok(config) = read_hf(&config) {
            prop_assert!(config.validate("test").is_ok());
            prop_assert_eq!(config.rope.inv_freq(config.n_rot).len(), config.n_rot / 2);
            let _ = gguf::write(&config);
            let _ = hf::write(&config);
        }
    }
}
