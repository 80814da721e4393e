//! Models whose blocks are scans and nothing else, Bamba and Jamba: keys that only their files have, and refusals by name.

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

fn jamba() -> Value {
    json!({
        "architectures": ["JambaForCausalLM"], "model_type": "jamba", "num_hidden_layers": 16,
    })
}

fn bamba() -> Value {
    json!({
        "architectures": ["BambaForCausalLM"], "model_type": "bamba", "num_hidden_layers": 8,
        "attn_layer_indices": [2, 5], "mamba_d_state": 128,
    })
}

#[test]
fn layers_attend_where_files_say() {
    let attending = |config: &ModelConfig| -> Vec<usize> {
        (0..config.n_layers)
            .filter(|layer| config.attends(*layer))
            .collect()
    };
    let config = read_hf(&bamba()).unwrap();
    assert_eq!(attending(&config), [2, 5]);
    assert_eq!((config.n_rot, config.head_dim), (64, 128));
    let config = read_hf(&jamba()).unwrap();
    assert_eq!(attending(&config), [4, 12]);
    assert!(!config.rotates(4));
    let has_experts = |layer: &usize| config.experts_of(*layer).is_some();
    assert_eq!((0..6).filter(has_experts).collect::<Vec<_>>(), [1, 3, 5]);
    let dense = with(&jamba(), json!({"num_experts": 1}));
    assert_eq!(read_hf(&dense).unwrap().experts, None);
}

#[test]
fn layers_without_a_period_have_no_words() {
    let mut config = read_hf(&jamba()).unwrap();
    config.recurrent.as_mut().unwrap().layers[7] = false;
    let error = hf::write(&config).unwrap_err().to_string();
    assert!(error.contains("[4, 7, 12]"), "{error}");
}

#[test]
fn widths_of_scans_are_times_that_of_the_stream() {
    for config in [mamba(), falcon(), mamba2(), bamba(), jamba()] {
        let mut config = read_hf(&config).unwrap();
        config.d_model += 1;
        let error = hf::write(&config).unwrap_err().to_string();
        assert!(error.contains("beside a stream of"), "{error}");
    }
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

/// The configuration after a trip through a GGUF file, as that of a folder.
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
        bamba(),
        with(
            &bamba(),
            json!({"attention_bias": true, "mlp_bias": true, "mamba_proj_bias": true}),
        ),
        jamba(),
        with(
            &jamba(),
            json!({"num_experts": 1, "mamba_dt_rank": 7, "mamba_proj_bias": true}),
        ),
        with(
            &jamba(),
            json!({"attn_layer_period": 20, "expert_layer_period": 1, "expert_layer_offset": 0}),
        ),
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
        (mamba(), json!({"hidden_act": "mish"}), "hidden_act"),
        (mamba(), json!({"state_size": 0}), "size of their keys"),
        (
            mamba(),
            json!({"state_size": 100_000}),
            "size of their keys",
        ),
        (
            mamba(),
            json!({"intermediate_size": 1_u64 << 62}),
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
        (
            bamba(),
            json!({"attn_layer_indices": [8]}),
            "attn_layer_indices",
        ),
        (
            jamba(),
            json!({"attn_layer_period": 0}),
            "attn_layer_offset",
        ),
        (
            jamba(),
            json!({"expert_layer_offset": 2}),
            "expert_layer_offset",
        ),
    ];
    for (config, changes, words) in cases {
        let error = read_hf(&with(&config, changes.clone()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
}
