//! Switches of OLMo Hybrid, Jais, Refact, JetMoE, NeoBERT and Llama Embed that their fixtures do not have.

use serde_json::{Value, json};

use super::{read_hf, with};
use crate::Error;
use crate::config::{EncoderPooling, ModelConfig};

/// The configuration of a tiny model of this type, with these keys.
fn read(model_type: &str, keys: Value) -> Result<ModelConfig, Error> {
    let config =
        json!({ "model_type": model_type, "vocab_size": 64, "tie_word_embeddings": false });
    read_hf(&with(&config, keys))
}

fn olmo(changes: Value) -> ModelConfig {
    let sizes = json!({
        "hidden_size": 48, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
    });
    read("olmo_hybrid", with(&sizes, changes)).unwrap()
}

#[test]
fn heads_of_olmo_hybrid_rotate_unless_a_file_has_null() {
    for rotated in [
        json!({}),
        json!({ "rope_parameters": { "rope_type": "default" } }),
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 5e5 } }),
    ] {
        assert!(olmo(rotated.clone()).rotates(0), "{rotated}");
    }
    for unrotated in [
        json!({ "rope_parameters": null }),
        json!({ "rope_parameters": { "rope_type": null } }),
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": null } }),
    ] {
        assert!(!olmo(unrotated.clone()).rotates(0), "{unrotated}");
    }
}

#[test]
fn sizes_that_olmo_hybrid_leaves_out_follow_from_others() {
    let config = olmo(json!({}));
    let recurrent = config.recurrent.as_ref().unwrap();
    // Where no fourth layer is, the last one attends.
    assert_eq!(recurrent.layers, [true, true, false]);
    let delta = recurrent.delta().unwrap();
    assert_eq!((delta.n_k_heads, delta.n_v_heads), (2, 2));
    assert_eq!((delta.k_dim, delta.v_dim), (18, 36));
    assert!(delta.negative_eigenvalues);
    let config = olmo(json!({ "linear_allow_neg_eigval": false, "num_hidden_layers": 8 }));
    let recurrent = config.recurrent.as_ref().unwrap();
    assert!(!recurrent.delta().unwrap().negative_eigenvalues);
    let attending = recurrent.layers.iter().filter(|recurs| !**recurs).count();
    assert_eq!(attending, 2);
}

fn jais(changes: Value) -> Result<ModelConfig, Error> {
    let sizes = json!({
        "n_embd": 48, "n_layer": 2, "n_head": 3, "n_inner": 40, "n_positions": 128,
        "activation_function": "swiglu", "position_embedding_type": "alibi",
    });
    read("jais", with(&sizes, changes))
}

#[test]
fn factors_of_jais_have_names_of_two_ages() {
    let newer = jais(json!({
        "mup_embeddings_scale": 14.5, "mup_output_alpha": 2.0, "mup_width_scale": 0.25, "mup_scale_qk_dot_by_d": true,
    }));
    let older = jais(json!({
        "embeddings_scale": 14.5, "width_scale": 0.5, "scale_qk_dot_by_d": true, "alibi_scaling": null,
    }));
    let (newer, older) = (newer.unwrap(), older.unwrap());
    assert_eq!(newer, older);
    assert_eq!((newer.embed_scale, newer.logit_scale), (14.5, 0.5));
    assert_eq!(newer.attention_scale, 1.0 / 16.0);
    assert_eq!(jais(json!({})).unwrap().attention_scale, 0.25);
}

#[test]
fn models_that_share_these_names_and_compute_otherwise_are_refused() {
    let cases = [
        jais(json!({ "activation_function": "gelu" })),
        jais(json!({ "position_embedding_type": "learned" })),
        jais(json!({ "alibi_scaling": { "type": "linear", "train_seq_len": 8192 } })),
        read("gpt_refact", json!({ "multi_query": false })),
        read("neobert", json!({ "ngpt": true })),
        read("neobert", json!({ "rope": false })),
        read("neobert", json!({ "hidden_act": "gelu" })),
        read("llama_bidirec", json!({ "pooling": "weighted_avg" })),
        read("spark2_5", json!({ "gate_attn_act_mode": "sigmoid" })),
    ];
    let words = [
        "activation_function",
        "position_embedding_type",
        "alibi_scaling",
        "multi_query",
        "ngpt",
        "rope",
        "hidden_act",
        "pooling",
        "headwise_attn_output_gate",
    ];
    for (case, word) in cases.into_iter().zip(words) {
        let error = case.unwrap_err().to_string();
        assert!(error.contains(&format!("`{word}`")), "{error}");
    }
}

#[test]
fn widths_and_heads_follow_from_other_keys() {
    let sizes = json!({ "n_embd": 96, "n_layer": 2, "n_head": 3, "n_positions": 128 });
    let refact = |changes| read("gpt_refact", with(&sizes, changes)).unwrap();
    assert_eq!(refact(json!({})).d_ff, 256);
    assert_eq!(refact(json!({ "n_inner": 700 })).d_ff, 512);
    let neo = json!({ "hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 100 });
    assert_eq!(read("neobert", neo).unwrap().d_ff, 72);
    let jetmoe = json!({ "hidden_size": 48, "num_key_value_heads": 3, "kv_channels": 8, "num_experts_per_tok": 4 });
    let jetmoe = read("jetmoe", jetmoe).unwrap();
    assert_eq!(
        (jetmoe.n_heads, jetmoe.n_kv_heads, jetmoe.head_dim),
        (12, 3, 8)
    );
    let embed = json!({ "hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2, "pooling": "last" });
    let embed = read("llama_bidirec", embed).unwrap().encoder.unwrap();
    assert_eq!(embed.pooling, Some(EncoderPooling::Last));
}
