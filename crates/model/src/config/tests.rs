use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use millrace_format::{Source, TensorInfo, TensorType};
use millrace_quant::DType;
use serde_json::{Value, json};

use super::*;
use crate::arch;
use crate::catalog::Catalog;
use crate::names::{TensorName, WeightRole};
use crate::synth::ModelGeometry;

mod hostile;
mod layers;
mod recurrent;
mod yarn;

fn read_hf(config: &Value) -> Result<ModelConfig, Error> {
    hf::read("test", config)
}

/// `base` with some keys replaced; `null` removes nothing, it is a value.
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
fn rope_spellings_agree() {
    let scaling = json!({
        "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let typed = |key: &str| with(&scaling, json!({ key: "llama3" }));
    let v4 = with(&llama(), json!({"rope_scaling": typed("rope_type")}));
    let older = with(&llama(), json!({"rope_scaling": typed("type")}));
    let flat = with(&typed("rope_type"), json!({"rope_theta": 500000.0}));
    let v5 = with(
        &llama(),
        json!({"rope_theta": null, "rope_parameters": flat}),
    );
    let nested = json!({"full_attention": flat, "sliding_attention": flat});
    let by_type = with(
        &llama(),
        json!({"rope_theta": null, "rope_parameters": nested}),
    );
    let expected = read_hf(&v4).unwrap();
    assert!(matches!(
        expected.rope.scaling,
        RopeScaling::Llama3 { factor: 32.0, .. }
    ));
    for other in [older, v5, by_type] {
        assert_eq!(read_hf(&other).unwrap(), expected, "{other}");
    }
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
    // A stray key of another class means nothing.
    assert_eq!(
        windows(with(&llama(), json!({"sliding_window": 7}))),
        [None; 2]
    );
}

#[test]
fn refusals_name_what_they_refuse() {
    let scaled = |name: &str| json!({"rope_scaling": {"rope_type": name, "factor": 2.0}});
    let cases = [
        (json!({"model_type": "mamba"}), "mamba"),
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
            json!({"quantization_config": {"quant_method": "awq"}}),
            "awq",
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

/// Every scaling of RoPE, with values that are no defaults.
fn scaled_configs() -> Vec<ModelConfig> {
    let list = |from: f64| -> Vec<f64> { (0..8).map(|i| from + 0.25 * f64::from(i)).collect() };
    let scalings = [
        json!({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "beta_fast": 24.0,
               "beta_slow": 2.0, "attention_factor": 1.1, "truncate": false}),
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}),
        json!({"rope_type": "longrope", "original_max_position_embeddings": 512, "short_factor": list(1.0),
               "long_factor": list(3.0), "attention_factor": 1.25}),
        json!({"rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.5}),
    ];
    let of =
        |scaling: Value| read_hf(&with(&llama(), json!({"rope_parameters": scaling}))).unwrap();
    scalings.into_iter().map(of).collect()
}

#[test]
fn attention_factors_of_rope() {
    // transformers 5.24, `modeling_rope_utils.py`.
    let cases = [
        (json!({"rope_type": "yarn", "factor": 4.0}), 1.138_629_4),
        (json!({"rope_type": "yarn", "factor": 0.5}), 1.0),
        (
            json!({"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}),
            1.0,
        ),
        (
            json!({"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.0}),
            1.138_629_4,
        ),
        (
            json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.9}),
            0.9,
        ),
        (
            json!({"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                "long_factor": [2, 2, 2, 2, 2, 2, 2, 2], "original_max_position_embeddings": 4096}),
            1.190_238,
        ),
        (
            json!({"rope_type": "longrope", "factor": 1.0, "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]}),
            1.0,
        ),
        (json!({"rope_type": "linear", "factor": 4.0}), 1.0),
    ];
    for (scaling, expected) in cases {
        let change = json!({"rope_parameters": scaling, "max_position_embeddings": 131_072});
        let found = read_hf(&with(&llama(), change))
            .unwrap()
            .rope
            .attention_factor();
        assert!((found - expected).abs() < 1e-5, "{scaling}: {found}");
    }
}

#[test]
fn a_context_beyond_the_original_takes_the_long_list() {
    let mut config = scaled_configs().remove(2);
    let short = config.rope.inv_freq(config.n_rot);
    assert_eq!(
        (config.position_limit(), config.usual_context()),
        (Some(512), 512)
    );
    config.choose_rope(512);
    assert_eq!(config.rope.inv_freq(config.n_rot), short);
    config.choose_rope(513);
    assert_eq!(
        (config.position_limit(), config.usual_context()),
        (None, 131_072)
    );
    assert_eq!(config.rope.inv_freq(config.n_rot)[0], 1.0 / 3.0);
    let dynamic = json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}});
    let dynamic = read_hf(&with(&llama(), dynamic)).unwrap();
    assert_eq!(dynamic.position_limit(), Some(131_072));
    assert_eq!(
        dynamic.rope.inv_freq(16),
        RopeConfig::plain(dynamic.rope.theta).inv_freq(16)
    );
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
    gguf::read(&gguf::write(config)?, &catalog, tables)
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

fn read_gguf(change: impl FnOnce(&mut Metadata)) -> Result<ModelConfig, Error> {
    let config = ModelGeometry::named("llama-tiny").unwrap().config(None);
    let mut metadata = gguf::write(&config).unwrap();
    change(&mut metadata);
    let name = TensorName::global(WeightRole::TokenEmbedding);
    let tensors = [TensorInfo {
        name: name.gguf(),
        tensor_type: TensorType::Weights(DType::F32),
        shape: config.shape_of(name),
        nominal_shape: false,
        file: 0,
        offset: 0,
        size_bytes: 0,
    }];
    gguf::read(
        &metadata,
        &Catalog::new("test", Source::Gguf, &tensors),
        gguf::RopeTables::default(),
    )
}

#[test]
fn gguf_refusals_name_the_key() {
    assert!(read_gguf(|_| {}).is_ok());
    let text = |value: &str| GgufValue::Str(value.into());
    let cases = [
        ("general.architecture", text("mamba")),
        ("llama.expert_count", GgufValue::U32(8)),
        ("llama.attention.causal", GgufValue::Bool(false)),
        ("llama.attention.value_length", GgufValue::U32(32)),
        ("llama.rope.scaling.type", text("xpos")),
        (
            "llama.attention.head_count",
            GgufValue::Array(GgufArray::U32(vec![4, 8])),
        ),
        ("llama.block_count", GgufValue::Str("four".into())),
        ("llama.rope.scaling.attn_factor", GgufValue::F32(1.2)),
    ];
    for (key, value) in cases {
        let error = read_gguf(|metadata| {
            metadata.insert(key, value);
        });
        let error = error.unwrap_err().to_string();
        assert!(
            ["mamba", "expert"].iter().any(|word| error.contains(word)) || error.contains(key),
            "{key}: {error}"
        );
    }
    for key in [
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
    ] {
        let error = read_gguf(|metadata| metadata.retain(|other| other != key)).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    let uniform = GgufValue::Array(GgufArray::U32(vec![4; 4]));
    let config = read_gguf(|metadata| {
        metadata.insert("llama.attention.head_count", uniform);
    });
    assert_eq!(config.unwrap().n_heads, 4);
}

#[test]
fn llama3_frequencies() {
    // transformers 5.23, `_compute_llama3_parameters`, head of 16.
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 64,
    };
    let rope = RopeConfig {
        theta: 10_000.0,
        scaling,
    };
    let expected = [
        1.0,
        0.244_384_59,
        0.013_042_256,
        0.003_952_847_3,
        0.00125,
        0.000_395_284_73,
        0.000_125,
        0.000_039_528_473,
    ];
    for (found, expected) in rope.inv_freq(16).into_iter().zip(expected) {
        assert!(
            (found - expected).abs() <= 2e-7 * expected,
            "{found} {expected}"
        );
    }
    let linear = RopeScaling::Linear { factor: 4.0 };
    let linear = RopeConfig {
        theta: 10_000.0,
        scaling: linear,
    }
    .inv_freq(4);
    assert_eq!(linear, [0.25, 0.0025]);
}
