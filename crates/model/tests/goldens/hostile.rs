//! Invalid configurations are errors that name the key, the found and the expected value.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_model::config::hf;
use millrace_testkit::Golden;
use serde_json::{Value, json};

/// The configuration of a fixture, its text model's, with other values.
fn with(golden: &str, changes: &Value) -> Value {
    let path = Golden::named(golden).hf().join("config.json");
    let text = std::fs::read_to_string(path).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let mut place = &mut config;
    if place.get("text_config").is_some() {
        place = &mut place["text_config"];
    }
    for (key, value) in changes.as_object().unwrap() {
        place[key] = value.clone();
    }
    config
}

fn refused(golden: &str, changes: Value, words: &[&str]) {
    let error = match hf::read("config.json", &with(golden, &changes)) {
        Ok(_) => panic!("{golden} with {changes} is read"),
        Err(error) => error.to_string(),
    };
    for word in ["config.json"].iter().chain(words) {
        assert!(error.contains(word), "{golden} with {changes}: {error}");
    }
}

#[test]
fn chunks_and_layers_of_llama_4() {
    refused(
        "llama4",
        json!({"attention_chunk_size": 0}),
        &["sliding window", "0", "at least 1"],
    );
    refused(
        "llama4",
        json!({"moe_layers": [1, 9]}),
        &["moe_layers", "9", "layers below 4"],
    );
    refused(
        "llama4",
        json!({"layer_types": ["full_attention"]}),
        &["number of layer types", "4"],
    );
    refused(
        "llama4",
        json!({"layer_types": vec!["sliding_attention"; 4]}),
        &["chunked_attention"],
    );
    refused(
        "llama4",
        json!({"floor_scale": 0}),
        &["factor on queries by position", "at least 1"],
    );
    refused(
        "llama4",
        json!({"num_key_value_heads": 3}),
        &["key/value heads", "3", "divisor"],
    );
    refused(
        "llama4",
        json!({"num_experts_per_tok": 9}),
        &["experts that a token uses", "9"],
    );
}

#[test]
fn the_factor_of_mistral_4() {
    let rope = json!({
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 0,
        "llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0,
    });
    refused("mistral4", json!({"rope_parameters": rope}), &["0", "1"]);
    refused(
        "mistral4",
        json!({"rope_parameters": null}),
        &["rope_parameters", "mistral4"],
    );
    refused(
        "mistral4",
        json!({"kv_lora_rank": 0}),
        &["rank of keys and values", "0"],
    );
}

#[test]
fn layers_of_smallthinker() {
    refused(
        "smallthinker",
        json!({"sliding_window_layout": [0, 1]}),
        &["sliding_window_layout", "0 or 1 for each of the 5 layers"],
    );
    refused(
        "smallthinker",
        json!({"rope_layout": [0, 1, 2, 1, 0]}),
        &["rope_layout", "0 or 1"],
    );
    refused(
        "smallthinker",
        json!({"sliding_window_size": 0}),
        &["sliding window", "at least 1"],
    );
    refused(
        "smallthinker",
        json!({"moe_layer_layout": [1, 1, 0, 1, 1]}),
        &["without experts"],
    );
    refused(
        "smallthinker",
        json!({"moe_enable_early_router": false}),
        &["moe_enable_early_router"],
    );
}

#[test]
fn heads_and_widths_by_layer() {
    refused(
        "openelm",
        json!({"num_query_heads": [2, 4]}),
        &["num_query_heads", "2 numbers", "3 layers"],
    );
    refused(
        "openelm",
        json!({"num_query_heads": [2, 4, 5]}),
        &["layer 2", "divisor of the 5"],
    );
    refused(
        "openelm",
        json!({"num_kv_heads": [1, 0, 2]}),
        &["layer 1 without attention"],
    );
    refused(
        "openelm",
        json!({"ffn_dim_divisor": 0}),
        &["ffn_dim_divisor", "at least 1"],
    );
    refused(
        "openelm",
        json!({"num_transformer_layers": 1_u64 << 60}),
        &["num_query_heads", "3 numbers"],
    );
    refused(
        "deci",
        json!({"block_configs": []}),
        &["block_configs", "0 layers", "5 layers"],
    );
    let block = |attention: Value, ffn: Value| json!([{"attention": attention, "ffn": ffn}]);
    let one = |block: Value| json!({"num_hidden_layers": 1, "block_configs": block});
    let attends = json!({"n_heads_in_group": 2, "replace_with_linear": false});
    let odd = json!({"n_heads_in_group": 3, "replace_with_linear": false});
    refused(
        "deci",
        one(block(odd, json!({"ffn_mult": 1.0}))),
        &["n_heads_in_group", "divisor of the 4"],
    );
    refused(
        "deci",
        one(block(attends.clone(), json!({"ffn_mult": 1e30}))),
        &["ffn_mult"],
    );
    refused(
        "deci",
        one(block(
            attends,
            json!({"ffn_mult": null, "replace_with_linear": true}),
        )),
        &["replace_with_linear"],
    );
    refused(
        "deci",
        json!({"block_configs": vec![json!({}); 5]}),
        &["attention", "an object each"],
    );
}

#[test]
fn bounds_and_shards_of_old_blocks() {
    refused(
        "olmo-clamped",
        json!({"clip_qkv": -1.0}),
        &["bound of queries", "-1"],
    );
    refused("starcoder", json!({"multi_query": false}), &["multi_query"]);
    refused(
        "codegen",
        json!({"n_embd": 30, "n_head": 5}),
        &["n_embd", "a multiple of 4"],
    );
    refused(
        "gptj",
        json!({"rotary_dim": 7}),
        &["RoPE rotates", "7", "even"],
    );
}

#[test]
fn heads_and_norms_of_rwkv_7() {
    for (changes, words) in [
        (json!({"head_dim": 0}), &["head_dim", "0", "divisor"][..]),
        (json!({"head_dim": 24}), &["head_dim", "24", "128"]),
        (json!({"num_heads": 4}), &["num_heads", "4", "2, of"]),
        (
            json!({"hidden_size": 0, "num_heads": null, "value_dim": null}),
            &["embedding size", "0"],
        ),
        (
            json!({"hidden_size": 1024, "head_dim": 512, "num_heads": 2, "value_dim": 1024, "norm_eps": 1.25e-6}),
            &["size of their heads", "512"],
        ),
        (json!({"norm_eps": 2e-5}), &["norm_eps", "0.00128"]),
        (json!({"norm_bias": false}), &["norm_bias"]),
        (json!({"norm_first": false}), &["norm_first"]),
        (json!({"hidden_act": "silu"}), &["hidden_act", "sqrelu"]),
        (json!({"attn": {"layers": [1]}}), &["attn"]),
        (
            json!({"value_dim": [64, 128, 64]}),
            &["value_dim", "128", "64"],
        ),
        (
            json!({"gate_low_rank_dim": 0}),
            &["rank of their gates", "0"],
        ),
        (
            json!({"intermediate_size": null, "hidden_ratio": 1e30}),
            &["feed-forward"],
        ),
        (
            json!({"num_hidden_layers": 1_u64 << 60, "value_dim": null}),
            &["layers"],
        ),
    ] {
        refused("rwkv7", changes, words);
    }
}
