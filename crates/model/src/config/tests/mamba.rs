//! Layers with selective scans: keys that only their files have, and refusals by name.

use serde_json::{Value, json};

use super::{read_hf, through_gguf, with};
use crate::arch;
use crate::config::{BranchScales, MambaNorm, ModelConfig, RecurrentConfig, hf};
use crate::synth::ModelGeometry;

fn granite() -> Value {
    let mut types = vec!["mamba"; 40];
    for layer in [5, 15, 25, 35] {
        types[layer] = "attention";
    }
    json!({
        "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
        "vocab_size": 100_352, "hidden_size": 1536, "intermediate_size": 512,
        "num_hidden_layers": 40, "num_attention_heads": 12, "num_key_value_heads": 4,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "layer_types": types, "position_embedding_type": "nope",
        "attention_multiplier": 1.0 / f64::sqrt(128.0), "num_local_experts": 64,
        "num_experts_per_tok": 6, "shared_intermediate_size": 1024, "mamba_n_heads": 48,
        "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_head": 64,
        "time_step_limit": [0.0, "Infinity"],
    })
}

fn nemotron() -> Value {
    json!({
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h",
        "hybrid_override_pattern": "M-M*ME", "moe_latent_size": 256,
    })
}

fn falcon() -> Value {
    json!({
        "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": 1024,
        "num_hidden_layers": 3, "num_attention_heads": 8, "mamba_d_ssm": 1536,
        "mamba_n_heads": 24, "mamba_rms_norm": true, "mamba_norm_before_gate": false,
        "embedding_multiplier": 5.5, "lm_head_multiplier": 0.0195,
        "ssm_multipliers": [0.35, 0.25, 0.18, 0.5, 0.36], "tie_word_embeddings": true,
    })
}

#[test]
fn a_published_configuration_is_its_geometry() {
    let config = ModelGeometry::named("granite-4.0-h-tiny")
        .unwrap()
        .config(None);
    let read = read_hf(&granite()).unwrap();
    assert_eq!(read, config);
    assert_eq!(read.cache_of(15), 1);
    assert!(!read.rotates(5));
    let old = read_hf(&with(&granite(), json!({"layer_types": null}))).unwrap();
    assert_eq!(old.recurrent.unwrap().layers, [true; 40]);
}

#[test]
fn layers_of_one_thing_each_have_caches_where_they_attend() {
    let config = read_hf(&nemotron()).unwrap();
    assert_eq!((config.family, config.n_layers), ("nemotron_h", 6));
    let networks = (0..6).filter(|layer| config.is_network(*layer));
    assert_eq!(networks.collect::<Vec<_>>(), [1, 5]);
    let attending = (0..6).filter(|layer| config.attends(*layer));
    assert_eq!(attending.collect::<Vec<_>>(), [3]);
    assert_eq!(config.cache_of(3), 0);
    assert!(config.experts_of(1).is_none());
    assert_eq!(config.experts_of(5).unwrap().latent_dim, 256);
    // Of the same class, under the keys of its newest version and without experts.
    let listed = with(
        &nemotron(),
        json!({"layers_block_type": ["linear_attention", "mlp", "full_attention"]}),
    );
    let config = read_hf(&listed).unwrap();
    assert_eq!((config.family, config.n_layers), ("nemotron_h", 3));
    assert_eq!(config.experts, None);
    let gguf = [&read_hf(&nemotron()).unwrap(), &config].map(|config| folded(config).family);
    assert_eq!(gguf, ["nemotron_h_moe", "nemotron_h"]);
}

/// The configuration without the values that a GGUF file folds into its weights.
fn folded(config: &ModelConfig) -> ModelConfig {
    let mut config = arch::by_name(config.family).folded(config);
    if let Some(RecurrentConfig {
        beside_attention: Some(scales),
        ..
    }) = &mut config.recurrent
    {
        *scales = BranchScales::NONE;
    }
    config
}

#[test]
fn what_is_written_reads_back() {
    let steps = json!({"time_step_limit": [0.01, {"__float__": "Infinity"}]});
    let dense = json!({"num_local_experts": 0, "mamba_conv_bias": false, "mamba_proj_bias": true});
    let experts_alone = json!({"hybrid_override_pattern": "ME*", "time_step_min": 0.25});
    let plain = json!({"hybrid_override_pattern": "M-*", "use_bias": true, "mlp_bias": true});
    for config in [
        granite(),
        with(&granite(), steps),
        with(&granite(), dense),
        with(&nemotron(), experts_alone),
        with(&nemotron(), plain),
        falcon(),
        with(&falcon(), json!({"mamba_norm_before_gate": true})),
        with(
            &falcon(),
            json!({"mamba_rms_norm": false, "projectors_bias": true}),
        ),
    ] {
        let read = read_hf(&config).unwrap();
        let written = hf::write(&read).unwrap();
        assert_eq!(read_hf(&written).unwrap(), read, "{written}");
        let expected = folded(&read);
        assert_eq!(through_gguf(&expected).unwrap(), expected, "{written}");
    }
    // One matrix cannot have two factors.
    assert!(!folded(&read_hf(&falcon()).unwrap()).tied_head);
}

#[test]
fn a_norm_behind_no_gate_is_none() {
    let norm = |changes: Value| {
        let config = read_hf(&with(&falcon(), changes)).unwrap();
        config.recurrent.unwrap().mamba().unwrap().norm
    };
    assert_eq!(norm(json!({})), MambaNorm::BehindGate);
    assert_eq!(norm(json!({"mamba_rms_norm": false})), MambaNorm::Absent);
    let before = json!({"mamba_norm_before_gate": null});
    assert_eq!(norm(before), MambaNorm::BeforeGate);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let cases = [
        (granite(), json!({"mamba_n_heads": 0}), "mamba_n_heads"),
        (granite(), json!({"mamba_d_head": 32}), "mamba_n_heads"),
        (
            granite(),
            json!({"mamba_d_state": 257}),
            "size of their keys",
        ),
        (
            granite(),
            json!({"mamba_n_groups": 5}),
            "a multiple of the 5 key heads",
        ),
        (
            granite(),
            json!({"mamba_n_groups": 0}),
            "groups of recurrent layers",
        ),
        (
            granite(),
            json!({"mamba_d_conv": 9}),
            "length of the convolution",
        ),
        (
            granite(),
            json!({"layer_types": ["mlp"]}),
            "layer type \"mlp\"",
        ),
        (
            granite(),
            json!({"layer_types": ["mamba"]}),
            "number of layer types",
        ),
        (
            granite(),
            json!({"position_embedding_type": "alibi"}),
            "alibi",
        ),
        (
            granite(),
            json!({"time_step_limit": [0.5]}),
            "time_step_limit",
        ),
        (
            granite(),
            json!({"time_step_limit": [0.5, 0.1]}),
            "limits of steps",
        ),
        (
            granite(),
            json!({"time_step_limit": ["NaN", 1.0]}),
            "time_step_limit",
        ),
        (
            nemotron(),
            json!({"hybrid_override_pattern": "MX"}),
            "letters M, *, - and E",
        ),
        (nemotron(), json!({"mlp_hidden_act": "mish"}), "mish"),
        (
            nemotron(),
            json!({"mamba_hidden_act": "gelu"}),
            "mamba_hidden_act",
        ),
        (
            nemotron(),
            json!({"moe_latent_size": 1_u64 << 40}),
            "width before experts",
        ),
        (
            nemotron(),
            json!({"layers_block_type": [3]}),
            "layer type 3",
        ),
        (falcon(), json!({"ssm_multipliers": [1.0]}), "5 numbers"),
        (
            falcon(),
            json!({"mlp_multipliers": [1.0, "x"]}),
            "2 numbers",
        ),
        (
            falcon(),
            json!({"key_multiplier": 1e300}),
            "factors on branches",
        ),
    ];
    for (config, changes, words) in cases {
        let error = read_hf(&with(&config, changes.clone()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{changes}: {error}");
    }
    // GGUF files cannot express dense layers beside experts.
    let error = through_gguf(&folded(&read_hf(&nemotron()).unwrap())).unwrap_err();
    assert!(error.to_string().contains("without experts"), "{error}");
}
