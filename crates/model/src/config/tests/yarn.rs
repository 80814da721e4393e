//! YaRN where families differ in it.

use super::*;

fn yarn_of(config: &ModelConfig) -> &YarnScaling {
    match &config.rope.scaling {
        RopeScaling::Yarn(yarn) => yarn,
        other => panic!("{other:?}"),
    }
}

fn deepseek(class: &str, rope: Value) -> Value {
    json!({
        "architectures": [class], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048,
        "q_lora_rank": null, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
        "first_k_dense_replace": 1, "rope_parameters": rope,
    })
}

const CLASSES: [&str; 3] = [
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Glm4MoeLiteForCausalLM",
];

#[test]
fn scores_of_latent_attention_grow_with_mscale_all_dim() {
    // Factor on cosines and sines, and on scores (transformers 5.24, `yarn_apply_mscale`), for a scaling by 40:
    // ln(40) = 3.688879.
    let cases = [
        (
            json!({"mscale": 1.0, "mscale_all_dim": 1.0}),
            1.0,
            1.873_854,
        ),
        (
            json!({"mscale": 0.707, "mscale_all_dim": 0.707}),
            1.0,
            1.589_626_2,
        ),
        (
            json!({"mscale": 1.0, "mscale_all_dim": 0.5}),
            1.155_722,
            1.402_907_5,
        ),
        (json!({"mscale_all_dim": 1.0}), 1.368_888, 1.873_854),
        (json!({"mscale": 1.0}), 1.368_888, 1.0),
        (
            json!({"mscale": 1.0, "mscale_all_dim": 0.0}),
            1.368_888,
            1.0,
        ),
        (
            json!({"mscale_all_dim": 1.0, "attention_factor": 0.75}),
            0.75,
            1.873_854,
        ),
    ];
    for (scales, on_turns, on_scores) in cases {
        let base =
            json!({"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64});
        let rope = with(&base, scales.clone());
        for class in CLASSES {
            let config = read_hf(&deepseek(class, rope.clone())).unwrap();
            let found = config.rope.attention_factor();
            assert!((found - on_turns).abs() < 1e-5, "{class} {scales}: {found}");
            let found = config.attention_scale * 24f32.sqrt();
            assert!(
                (found - on_scores).abs() < 1e-5,
                "{class} {scales}: {found}"
            );
            let again = read_hf(&hf::write(&config).unwrap()).unwrap();
            assert_eq!(
                (&again.rope, again.attention_scale),
                (&config.rope, config.attention_scale)
            );
        }
        // Llama's scores have no such factor.
        let llama = read_hf(&with(&llama(), json!({"rope_parameters": rope}))).unwrap();
        assert_eq!(llama.attention_scale, 0.25);
    }
}

#[test]
fn mscale_all_dim_is_yarns_alone() {
    let linear = json!({"rope_type": "linear", "factor": 4.0, "mscale_all_dim": 1.0});
    for class in CLASSES {
        let error = read_hf(&deepseek(class, linear.clone())).unwrap_err();
        assert!(error.to_string().contains("mscale_all_dim"), "{error}");
    }
}

#[test]
fn gpt_oss_takes_its_class_scaling() {
    let base = json!({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 2,
        "num_local_experts": 4,
    });
    let config = read_hf(&base).unwrap();
    let yarn = yarn_of(&config);
    assert_eq!(
        (yarn.factor, yarn.original_context, yarn.truncates),
        (32.0, 4096, false)
    );
    assert!((yarn.attention_factor - 1.346_573_6).abs() < 1e-6);
    let plain = json!({"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}});
    let config = read_hf(&with(&base, plain)).unwrap();
    assert_eq!(config.rope.scaling, RopeScaling::None);
}

/// The keys below `rope.scaling` that GGUF metadata of a configuration have.
fn written(config: &ModelConfig) -> impl Fn(&str) -> Option<GgufValue> + use<> {
    let metadata = gguf::write(config).unwrap();
    let arch = arch::by_name(config.family).gguf_arch;
    move |key| metadata.get(&format!("{arch}.rope.scaling.{key}")).cloned()
}

#[test]
fn gguf_metadata_say_mscale_as_llama_cpp_does() {
    let rope = json!({"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64,
        "mscale": 0.707, "mscale_all_dim": 0.707});
    let config = read_hf(&deepseek(CLASSES[0], rope.clone())).unwrap();
    let key = written(&config);
    assert_eq!(key("yarn_log_multiplier"), Some(GgufValue::F32(0.0707)));
    assert_eq!(key("yarn_attn_factor"), None);
    // Two scales that differ: the factor on cosines and sines follows from no other key.
    let config = read_hf(&deepseek(CLASSES[1], with(&rope, json!({"mscale": 1.0})))).unwrap();
    let key = written(&config);
    let factor = GgufValue::F32(config.rope.attention_factor());
    assert_eq!(key("yarn_attn_factor"), Some(factor));
    // Elsewhere the multiplier is `mscale_all_dim` itself.
    let ones = with(&rope, json!({"mscale": 1.0, "mscale_all_dim": 1.0}));
    let config = read_hf(&with(&llama(), json!({"rope_parameters": ones}))).unwrap();
    let key = written(&config);
    assert_eq!(key("yarn_log_multiplier"), Some(GgufValue::F32(1.0)));
    assert_eq!(key("yarn_attn_factor"), None);
}

#[test]
fn gguf_files_of_gpt_oss_mix_within_pairs() {
    let base = json!({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 2,
        "num_local_experts": 4,
    });
    let published = written(&read_hf(&base).unwrap());
    assert_eq!(published("yarn_truncate"), Some(GgufValue::Bool(false)));
    let whole =
        json!({"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096});
    let config = read_hf(&with(&base, json!({"rope_parameters": whole}))).unwrap();
    assert_eq!(
        written(&config)("yarn_truncate"),
        Some(GgufValue::Bool(true))
    );
}

/// transformers reads `truncate` beside the types of layers, where no file has it, and not within.
#[test]
fn a_rope_by_type_of_layer_mixes_whole_pairs() {
    let yarn = json!({"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "truncate": false,
        "original_max_position_embeddings": 64});
    let plain = json!({"rope_type": "default", "rope_theta": 1e4});
    let base = json!({"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "num_hidden_layers": 4});
    let by_type = json!({"full_attention": yarn, "sliding_attention": plain});
    for rope in [
        json!({"rope_parameters": by_type}),
        json!({"rope_scaling": yarn}),
    ] {
        let config = read_hf(&with(&base, rope)).unwrap();
        assert!(yarn_of(&config).truncates);
        hf::write(&config).unwrap();
        let mut fractions = config.clone();
        if let RopeScaling::Yarn(yarn) = &mut fractions.rope.scaling {
            yarn.truncates = false;
        }
        let error = hf::write(&fractions).unwrap_err().to_string();
        assert!(error.contains("truncate"), "{error}");
    }
    // A class with one RoPE reads it.
    for model_type in ["llama", "olmo2"] {
        let rope = json!({"model_type": model_type, "architectures": [], "rope_parameters": yarn});
        let config = read_hf(&with(&llama(), rope)).unwrap();
        assert!(!yarn_of(&config).truncates, "{model_type}");
    }
}
