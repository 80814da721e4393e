//! Models whose blocks are scans and nothing else: what files say in their own words, and what is refused by name.

use serde_json::{Value, json};

use super::{read_hf, through_gguf, with};
use crate::arch;
use crate::config::{ModelConfig, RecurrentConfig, ScanNorms, hf};

/// As published for state-spaces/mamba-130m-hf.
fn mamba() -> Value {
    json!({
        "architectures": ["MambaForCausalLM"], "model_type": "mamba", "vocab_size": 50_280,
        "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 24, "state_size": 16,
        "layer_norm_epsilon": 1e-5, "expand": 2, "conv_kernel": 4, "use_bias": false,
        "use_conv_bias": true, "hidden_act": "silu", "time_step_rank": 48,
    })
}

fn falcon() -> Value {
    json!({
        "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba",
        "hidden_size": 4096, "num_hidden_layers": 64, "tie_word_embeddings": false,
    })
}

fn mamba2() -> Value {
    json!({
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 4096,
        "num_heads": 128, "head_dim": 64, "n_groups": 8, "time_step_limit": [0.0, "Infinity"],
    })
}

#[test]
fn sizes_are_those_of_published_models() {
    let config = read_hf(&mamba()).unwrap();
    let scan = config
        .recurrent
        .as_ref()
        .and_then(RecurrentConfig::channel_scan);
    let scan = scan.copied().unwrap();
    assert_eq!((scan.d_inner, scan.d_state, scan.dt_rank), (1536, 16, 48));
    assert!((0..24).all(|layer| !config.attends(layer)) && config.tied_head);
    assert_eq!(scan.norms, ScanNorms::Absent);
    let config = read_hf(&falcon()).unwrap();
    let scan = config
        .recurrent
        .as_ref()
        .and_then(RecurrentConfig::channel_scan);
    assert_eq!(scan.unwrap().dt_rank, 256);
    assert_eq!(scan.unwrap().norms, ScanNorms::Bare { eps: 1e-6 });
    let config = read_hf(&mamba2()).unwrap();
    let mamba = config.recurrent.as_ref().and_then(RecurrentConfig::mamba);
    assert_eq!(
        (mamba.unwrap().d_inner(), mamba.unwrap().in_width()),
        (8192, 18_560)
    );
    assert!(!config.tied_head);
}

/// What a GGUF file says, as the configuration of a folder.
fn read_back(config: &ModelConfig) -> ModelConfig {
    let found = through_gguf(&arch::by_name(config.family).folded(config)).unwrap();
    let in_folders = (arch::by_name(found.family).hf_family)(&found);
    ModelConfig {
        family: in_folders.unwrap_or(found.family),
        ..found
    }
}

#[test]
fn what_is_written_reads_back() {
    for config in [
        mamba(),
        with(
            &mamba(),
            json!({"time_step_rank": "auto", "use_bias": true, "expand": 1}),
        ),
        falcon(),
        with(
            &falcon(),
            json!({"mixer_rms_eps": 1e-4, "use_conv_bias": false}),
        ),
        mamba2(),
        with(
            &mamba2(),
            json!({"time_step_limit": [0.5, 2.0], "use_bias": true}),
        ),
    ] {
        let read = read_hf(&config).unwrap();
        let written = hf::write(&read).unwrap();
        assert_eq!(read_hf(&written).unwrap(), read, "{written}");
        assert_eq!(read_back(&read), read, "{written}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let cases = [
        (mamba(), json!({"hidden_act": "gelu"}), "hidden_act"),
        (mamba(), json!({"state_size": 0}), "size of their keys"),
        (
            mamba(),
            json!({"state_size": 100_000}),
            "size of their keys",
        ),
        (
            mamba(),
            json!({"expand": 1_u64 << 62}),
            "channels of recurrent layers",
        ),
        (mamba(), json!({"time_step_rank": 0}), "rank of their steps"),
        (
            mamba(),
            json!({"conv_kernel": 99}),
            "length of the convolution",
        ),
        (
            falcon(),
            json!({"mixer_rms_eps": 0.0}),
            "epsilon within scans",
        ),
        (mamba2(), json!({"num_heads": 127}), "num_heads"),
        (mamba2(), json!({"n_groups": 3}), "key heads"),
    ];
    for (config, changes, words) in cases {
        let error = read_hf(&with(&config, changes.clone()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
}
