//! Values that differ from layer to layer, as in Gemma 4.

use serde_json::{Value, json};

use crate::Error;
use crate::config::{HeadSizes, ModelConfig, RopeScaling, gguf, hf};

fn read(changes: Value) -> Result<ModelConfig, Error> {
    let mut config = json!({
        "model_type": "gemma4_text", "vocab_size": 70, "hidden_size": 32, "intermediate_size": 24,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "global_head_dim": 32, "hidden_size_per_layer_input": 0, "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
            "sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    hf::read("config.json", &config)
}

#[test]
fn kinds_of_layers_have_heads_of_their_own() {
    let config = read(json!({})).unwrap();
    let heads = |layer| {
        let HeadSizes {
            n_kv_heads,
            head_dim,
            n_rot,
        } = config.heads_of(layer);
        [n_kv_heads, head_dim, n_rot]
    };
    assert_eq!((heads(0), heads(2)), ([2, 16, 16], [2, 32, 32]));
    let n_rotated = 4;
    assert_eq!(
        config.rope.scaling,
        RopeScaling::Proportional {
            factor: 1.0,
            n_rotated
        }
    );
    assert_eq!(config.attention_scale, 1.0);
    // A number of heads of global layers counts only where their keys are values; a list by layer always counts.
    let heads = |changes| read(changes).unwrap().heads_of(5).n_kv_heads;
    assert_eq!(heads(json!({"num_global_key_value_heads": 1})), 2);
    let keys = json!({"num_global_key_value_heads": 1, "attention_k_eq_v": true});
    assert_eq!(heads(keys), 1);
    let listed = json!({"per_layer_config": {"2": {"num_key_value_heads": 4}, "5": {"num_key_value_heads": 4}}});
    assert_eq!(heads(listed), 4);
}

#[test]
fn layers_that_share_read_the_last_of_their_kind() {
    let config = read(json!({"num_kv_shared_layers": 3, "use_double_wide_mlp": true})).unwrap();
    let layers: Vec<usize> = (0..6).map(|layer| config.kv_layer_of(layer)).collect();
    assert_eq!(layers, [0, 1, 2, 1, 1, 2]);
    let widths: Vec<usize> = (0..6).map(|layer| config.d_ff_of(layer)).collect();
    assert_eq!(widths, [24, 24, 24, 48, 48, 48]);
    // Without layers that share, no layer is wide.
    let config = read(json!({"use_double_wide_mlp": true})).unwrap();
    assert!(config.layers.d_ff.is_empty());
}

#[test]
fn the_last_layer_is_global_whatever_is_said() {
    let types = json!({"layer_types": ["full_attention", "full_attention", "full_attention",
        "full_attention", "full_attention", "sliding_attention"]});
    assert_eq!(read(types).unwrap().window_of(5), None);
}

#[test]
fn both_spellings_come_back() {
    for changes in [
        json!({}),
        json!({"num_kv_shared_layers": 3, "use_double_wide_mlp": true}),
        json!({"num_global_key_value_heads": 1, "attention_k_eq_v": true}),
        json!({"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 70}),
        json!({"enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}),
        json!({"final_logit_softcapping": 30.0, "use_bidirectional_attention": "vision"}),
    ] {
        let config = read(changes).unwrap();
        let written = hf::write(&config).unwrap();
        assert_eq!(
            hf::read("config.json", &written).unwrap(),
            config,
            "{written}"
        );
        let metadata = gguf::write(&config).unwrap();
        let shared = metadata
            .get_usize("gemma4.attention.shared_kv_layers")
            .unwrap();
        assert_eq!(shared, Some(config.layers.n_shared_kv));
    }
}

#[test]
fn what_is_not_computed_is_named() {
    for (changes, words) in [
        (
            json!({"num_kv_shared_layers": 6}),
            "layers that share keys and values",
        ),
        // No sliding layer is left before those that share.
        (
            json!({"num_kv_shared_layers": 4, "layer_types": ["full_attention", "full_attention",
            "sliding_attention", "sliding_attention", "full_attention", "full_attention"]}),
            "layers that share keys and values",
        ),
        (
            json!({"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 69}),
            "vocab_size_per_layer_input",
        ),
        (
            json!({"use_bidirectional_attention": "all"}),
            "use_bidirectional_attention",
        ),
        (
            json!({"per_layer_config": {"2": {"head_dim": 64}}}),
            "differs among layers of one kind",
        ),
        (
            json!({"per_layer_config": {"0": {"head_dim": 8}, "1": {"head_dim": 8}, "3": {"head_dim": 8},
            "4": {"head_dim": 8}}}),
            "of sliding layers",
        ),
        (json!({"enable_moe_block": true}), "num_experts"),
        (json!({"num_key_value_heads": 3}), "divisor"),
        (json!({"head_dim": 15}), "even"),
        (
            json!({"hidden_size_per_layer_input": 4_000_000, "vocab_size_per_layer_input": 70}),
            "layer's embedding",
        ),
        (
            json!({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}}),
            "rope_parameters.sliding_attention",
        ),
        (
            json!({"rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
            "Linear",
        ),
    ] {
        let error = read(changes.clone()).expect_err(words).to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
}
