use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use millrace_format::{Source, TensorInfo, TensorType};
use millrace_quant::DType;
use serde_json::{Value, json};

use super::*;
use crate::arch;
use crate::catalog::Catalog;
use crate::names::{TensorName, WeightRole};
use crate::synth::ModelGeometry;
use rope::scaled_configs;

mod encoders;
mod hostile;
mod kimi;
mod kinds;
mod layers;
mod mamba;
mod mixtures;
mod older;
mod recurrent;
mod refusals;
mod relatives;
mod rope;
mod rwkv7;
mod scans_alone;
mod streams;
mod unseen;
mod various;
mod xielu;
mod yarn;

fn read_hf(config: &Value) -> Result<ModelConfig, Error> {
    hf::read("test", config)
}

/// `base` with some keys replaced; `null` is a value like others and removes nothing.
fn with(base: &Value, changes: Value) -> Value {
    let mut out = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        out[key] = value.clone();
    }
    out
}

fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 131072,
    })
}

/// Gemma 3 4B as published: almost everything is left to the defaults.
fn gemma_4b() -> Value {
    json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "num_attention_heads": 16},
    })
}

#[test]
fn published_gemma_gets_the_defaults_of_its_class() {
    let config = read_hf(&gemma_4b()).unwrap();
    let expected = ModelGeometry::named("gemma-3-4b").unwrap().config(None);
    assert_eq!(config, expected);
}

#[test]
fn absent_keys_follow_from_others() {
    let config = read_hf(&llama()).unwrap();
    assert_eq!((config.head_dim, config.n_kv_heads), (16, 2));
    assert!(!config.tied_head);
    assert_eq!(config.attention_scale, 0.25);
    let many = with(
        &llama(),
        json!({"num_key_value_heads": null, "head_dim": 32}),
    );
    let config = read_hf(&many).unwrap();
    assert_eq!((config.head_dim, config.n_kv_heads), (32, 4));
}

#[test]
fn windows_follow_each_class() {
    let windows = |config: Value| {
        let config = read_hf(&config).unwrap();
        (0..config.n_layers)
            .map(|layer| config.window_of(layer))
            .collect::<Vec<_>>()
    };
    let mistral = with(
        &llama(),
        json!({"architectures": ["MistralForCausalLM"], "model_type": "mistral"}),
    );
    // The class slides by default, `null` turns it off.
    assert_eq!(windows(mistral.clone()), [Some(4096); 2]);
    assert_eq!(
        windows(with(&mistral, json!({"sliding_window": null}))),
        [None; 2]
    );
    assert_eq!(
        windows(with(&mistral, json!({"sliding_window": 7}))),
        [Some(7); 2]
    );
    let qwen = with(
        &llama(),
        json!({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}),
    );
    assert_eq!(
        windows(with(&qwen, json!({"sliding_window": 7}))),
        [None; 2]
    );
    let used = json!({"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 1});
    assert_eq!(windows(with(&qwen, used)), [None, Some(7)]);
    // A key of another class has no meaning here.
    assert_eq!(
        windows(with(&llama(), json!({"sliding_window": 7}))),
        [None; 2]
    );
}

#[test]
fn refusals_name_what_they_refuse() {
    let scaled = |name: &str| json!({"rope_scaling": {"rope_type": name, "factor": 2.0}});
    let cases = [
        (json!({"model_type": "xlstm"}), "xlstm"),
        (json!({"model_type": "rwkv"}), "rwkv"),
        (json!({"model_type": "t5gemma"}), "t5gemma"),
        (
            json!({"architectures": ["LlamaForSequenceClassification"]}),
            "SequenceClass",
        ),
        (scaled("xpos"), "xpos"),
        (scaled("linear\u{0}"), "linear"),
        (json!({"hidden_act": "mish"}), "mish"),
        (json!({"num_local_experts": 8}), "num_local_experts"),
        (
            json!({"use_bidirectional_attention": true}),
            "bidirectional",
        ),
        (
            json!({"quantization_config": {"quant_method": "bitsandbytes"}}),
            "bitsandbytes",
        ),
        (
            json!({"quantization_config": {"quant_method": "gptq", "bits": 3}}),
            "bits",
        ),
        (
            json!({"quantization_config": {"quant_method": "awq", "version": "gemv"}}),
            "gemv",
        ),
        (
            json!({"no_rope_layer_interval": 4}),
            "no_rope_layer_interval",
        ),
        (
            json!({"layer_types": ["sliding_attention", "full_attention"]}),
            "layer_types",
        ),
        (
            json!({"layer_types": ["chunked_attention"]}),
            "chunked_attention",
        ),
    ];
    for (change, needle) in cases {
        let error = read_hf(&with(&llama(), change)).unwrap_err().to_string();
        assert!(
            error.contains(needle) && error.contains("supported"),
            "{needle}: {error}"
        );
    }
}

#[test]
fn senseless_values_are_errors() {
    let cases = [
        json!({"hidden_size": 0}),
        json!({"num_attention_heads": 0}),
        json!({"num_attention_heads": 3}),
        json!({"num_key_value_heads": 3}),
        json!({"num_key_value_heads": 0}),
        json!({"head_dim": 15}),
        json!({"head_dim": u64::MAX}),
        json!({"num_hidden_layers": u64::MAX}),
        json!({"num_hidden_layers": -1}),
        json!({"num_hidden_layers": "two"}),
        json!({"vocab_size": 1u64 << 40}),
        json!({"rms_norm_eps": -1.0}),
        json!({"rope_theta": 0.0}),
        json!({"rope_theta": "big"}),
        json!({"rope_scaling": {"rope_type": "linear"}}),
        json!({"rope_scaling": {"rope_type": "linear", "factor": 0.0}}),
        json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                                "high_freq_factor": 4.0}}),
        json!({"rope_scaling": 3}),
        json!({"text_config": []}),
    ];
    for change in cases {
        assert!(
            read_hf(&with(&llama(), change.clone())).is_err(),
            "{change}"
        );
    }
    for nothing in [
        json!(null),
        json!([]),
        json!({}),
        json!({"architectures": []}),
    ] {
        assert!(read_hf(&nothing).is_err(), "{nothing}");
    }
}

/// Every configuration that the families here can have, from their geometries.
fn configs() -> Vec<ModelConfig> {
    let mut out: Vec<ModelConfig> = ModelGeometry::all()
        .map(|geometry| geometry.config(None))
        .collect();
    let mut biased = read_hf(&with(&llama(), json!({"attention_bias": true}))).unwrap();
    biased.biases.ffn = true;
    out.push(biased);
    let qwen = json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": true,
        "sliding_window": 7, "max_window_layers": 1,
    });
    out.push(read_hf(&with(&llama(), qwen)).unwrap());
    let mistral = json!({"architectures": ["MistralForCausalLM"], "model_type": "mistral"});
    out.push(read_hf(&with(&llama(), mistral)).unwrap());
    let mut gemma = ModelGeometry::named("gemma-tiny").unwrap().config(None);
    gemma.attention_scale = 1.0 / 168f32.sqrt();
    gemma.layer_windowed[0] = false;
    out.push(gemma);
    out.extend(scaled_configs());
    out
}

#[test]
fn config_json_reads_back() {
    for config in configs() {
        let written = hf::write(&config).unwrap();
        assert_eq!(read_hf(&written).unwrap(), config, "{written}");
    }
}

/// A configuration as the metadata and the tensor list of a GGUF file, read back.
fn through_gguf(config: &ModelConfig) -> Result<ModelConfig, Error> {
    through_gguf_with(config, |_| ())
}

/// The same with other metadata.
fn through_gguf_with(
    config: &ModelConfig,
    change: impl FnOnce(&mut Metadata),
) -> Result<ModelConfig, Error> {
    let info = |name: TensorName| TensorInfo {
        name: name.gguf(),
        tensor_type: TensorType::Weights(DType::F32),
        shape: config.shape_of(name),
        nominal_shape: false,
        file: 0,
        offset: 0,
        size_bytes: 0,
    };
    let names = config.tensors(arch::WeightConvention::Gguf);
    let tensors: Vec<TensorInfo> = names.into_iter().map(info).collect();
    let catalog = Catalog::new("test", Source::Gguf, &tensors);
    let mut tables = gguf::RopeTables::default();
    for (role, values) in config.rope_tables() {
        let table = match role {
            WeightRole::RopeFactors => &mut tables.factors,
            WeightRole::RopeFactorsShort => &mut tables.short,
            _ => &mut tables.long,
        };
        *table = Some(values);
    }
    let mut metadata = gguf::write(config)?;
    change(&mut metadata);
    gguf::read(&metadata, &catalog, tables)
}

#[test]
fn gguf_metadata_read_back() {
    for config in configs() {
        let mut found = through_gguf(&config).unwrap();
        if let Some(named) = found.rope.as_named(config.n_rot) {
            found.rope = named;
        }
        // GGUF has one name for both.
        if config.family == "mistral" {
            found.family = "mistral";
        }
        assert_eq!(found, config);
    }
}
