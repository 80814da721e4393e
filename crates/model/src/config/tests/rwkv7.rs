//! RWKV 7: its published configuration, and refusals of GGUF files by name.

use millrace_format::gguf::GgufValue;
use serde_json::{Value, json};

use super::{read_hf, through_gguf_with, with};
use crate::config::{ModelConfig, RecurrentMixer, Rwkv7Config};

fn published() -> Value {
    json!({
        "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "attn": null, "attn_mode": "chunk",
        "a_low_rank_dim": 96, "decay_low_rank_dim": 96, "gate_low_rank_dim": 256, "v_low_rank_dim": 64,
        "head_dim": 64, "hidden_act": "sqrelu", "hidden_ratio": 4.0, "hidden_size": 2048,
        "intermediate_size": 8192, "max_position_embeddings": 2048, "norm_bias": true, "norm_eps": 1e-5,
        "norm_first": true, "num_heads": 32, "num_hidden_layers": 24, "tie_word_embeddings": false,
        "vocab_size": 65_536,
    })
}

fn config() -> ModelConfig {
    read_hf(&published()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_published_configuration_says_heads_and_ranks() {
    let config = config();
    let mixer = RecurrentMixer::Rwkv7(Rwkv7Config {
        n_heads: 32,
        head_dim: 64,
        decay_rank: 96,
        rate_rank: 96,
        value_rank: 64,
        gate_rank: 256,
    });
    assert!((0..24).all(|layer| config.mixer_of(layer) == Some(mixer)));
    assert_eq!((config.d_ff, config.context_length), (8192, 1 << 20));
    // Values that follow from the stream's width may be left out.
    let silent = json!({
        "a_low_rank_dim": null, "decay_low_rank_dim": null, "gate_low_rank_dim": null, "v_low_rank_dim": null,
        "num_heads": null, "intermediate_size": null,
    });
    let read = read_hf(&with(&published(), silent));
    assert_eq!(read.unwrap_or_else(|error| panic!("{error}")), config);
}

#[test]
fn gguf_files_that_do_not_fit_are_refused_by_name() {
    let config = config();
    let found = through_gguf_with(&config, |_| {});
    assert_eq!(found.unwrap_or_else(|error| panic!("{error}")), config);
    for (key, number, words) in [
        ("wkv.head_size", 0, ["wkv.head_size", "divisor"]),
        ("wkv.head_size", 96, ["wkv.head_size", "2048"]),
        ("wkv.head_size", 512, ["size of their heads", "512"]),
        ("token_shift_count", 1, ["token_shift_count", "2"]),
        ("attention.gate_lora_rank", 0, ["rank of their gates", "0"]),
    ] {
        let error = through_gguf_with(&config, |metadata| {
            metadata.insert(format!("rwkv7.{key}"), GgufValue::U32(number));
        });
        let error = error.unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
