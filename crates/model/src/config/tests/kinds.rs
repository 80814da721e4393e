//! Families whose layers differ in heads, rotations and gates: published configurations, what of them is refused.

use serde_json::{Value, json};

use super::{read_hf, with};
use crate::config::{GluBounds, HeadGates, RopeScaling, hf};

/// Keys of the published MiMo-V2-Flash, of fewer layers.
fn mimo() -> Value {
    json!({"model_type": "mimo_v2_flash", "architectures": ["MiMoV2FlashForCausalLM"],
        "add_full_attention_sink_bias": false, "add_swa_attention_sink_bias": true, "attention_bias": false,
        "attention_value_scale": 0.707, "head_dim": 192, "hidden_size": 4096,
        "hybrid_layer_pattern": [0, 1, 1, 0], "intermediate_size": 16_384, "layernorm_epsilon": 1e-5,
        "moe_intermediate_size": 2048, "moe_layer_freq": [0, 1, 1, 1], "n_group": 1, "n_routed_experts": 256,
        "n_shared_experts": null, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8,
        "num_hidden_layers": 4, "num_key_value_heads": 4, "partial_rotary_factor": 0.334,
        "rope_theta": 5_000_000, "routed_scaling_factor": null, "scoring_func": "sigmoid",
        "sliding_window": 128, "sliding_window_size": 128, "swa_head_dim": 192, "swa_num_attention_heads": 64,
        "swa_num_key_value_heads": 8, "swa_rope_theta": 10_000, "swa_v_head_dim": 128, "topk_group": 1,
        "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 152_576})
}

/// Keys of the published Step-3.5-Flash, of fewer layers.
fn step() -> Value {
    json!({"model_type": "step3p5", "architectures": ["Step3p5ForCausalLM"],
        "attention_other_setting": {"attention_type": "sliding_attention", "head_dim": 128,
            "num_attention_groups": 8, "num_attention_heads": 96},
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 11_264,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention",
            "sliding_attention"],
        "max_position_embeddings": 262_144, "moe_intermediate_size": 1280, "moe_layers_enum": "2,3",
        "moe_num_experts": 288, "moe_router_scaling_factor": 3.0, "moe_top_k": 8, "norm_expert_weight": true,
        "num_attention_groups": 8, "num_attention_heads": 64, "num_hidden_layers": 4,
        "num_nextn_predict_layers": 1, "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5, 1.0],
        "rope_scaling": {"factor": 2.0, "high_freq_factor": 32.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 131_072, "rope_type": "llama3"},
        "rope_theta": [5e6, 1e4, 1e4, 5e6, 1e4], "share_expert_dim": 1280, "sliding_window": 512,
        "swiglu_limits": [0.0, 0.0, 0.0, 7.0, 0.0], "swiglu_limits_shared": [0.0, 0.0, 0.0, 16.0, 0.0],
        "use_head_wise_attn_gate": true, "use_moe_router_bias": true, "vocab_size": 128_896})
}

#[test]
fn published_keys_mean_what_the_class_reads() {
    let config = read_hf(&mimo()).unwrap();
    let heads = |layer| {
        let heads = config.heads_of(layer);
        [heads.n_kv_heads, heads.head_dim, heads.n_rot]
    };
    assert_eq!((heads(0), heads(1)), ([4, 192, 64], [8, 192, 64]));
    assert_eq!((config.v_dim_of(0), config.window), (128, Some(129)));
    assert_eq!(config.layers.without_sinks, [0, 3]);
    assert_eq!(config.rope_of(1).theta, 10_000.0);
    assert!(config.experts_of(0).is_none() && config.experts_of(1).is_some());
    assert_eq!(config.experts.as_ref().unwrap().scale, 1.0);

    let config = read_hf(&step()).unwrap();
    let heads = |layer| (config.n_heads_of(layer), config.heads_of(layer).n_rot);
    assert_eq!((heads(0), heads(1)), ((64, 64), (96, 128)));
    assert_eq!(config.layer_windowed, [false, true, true, false]);
    assert_eq!(
        (config.n_kv_heads, config.layers.head_gates),
        (8, HeadGates::Heads)
    );
    let bounds = GluBounds {
        experts: 7.0,
        network: 16.0,
    };
    assert_eq!(config.glu_bounds_of(3), bounds);
    assert_eq!(config.glu_bounds_of(2), GluBounds::default());
    assert!(matches!(config.rope.scaling, RopeScaling::Llama3 { .. }));
    assert_eq!(config.rope_of(1).scaling, RopeScaling::None);
    let experts = config.experts.as_ref().unwrap();
    assert_eq!((experts.n_dense_layers, experts.n_used), (2, 8));
}

#[test]
fn what_is_left_unsaid_is_computed_as_the_class_does() {
    let named = |model_type: &str| read_hf(&json!({"model_type": model_type})).unwrap();
    let mimo = named("mimo_v2_flash");
    assert_eq!(mimo.global_layers(), [0, 5, 11, 17, 23, 29, 35, 41, 47]);
    assert_eq!((mimo.window, mimo.layers.v_dim), (Some(129), Some(128)));
    assert_eq!(mimo.layers.value_scale, Some(0.707));
    let laguna = named("laguna");
    assert_eq!((laguna.global_layers().len(), laguna.n_rot), (40, 64));
    assert_eq!(laguna.experts.as_ref().unwrap().n_dense_layers, 1);
    assert_eq!(laguna.layers.head_gates, HeadGates::Heads);
    let lfm = named("lfm3");
    let attends: Vec<usize> = (0..8).filter(|layer| lfm.attends(*layer)).collect();
    assert_eq!(attends, [2, 4, 6]);
    assert_eq!((lfm.window_of(4), lfm.window_of(2)), (Some(256), None));
    let n_rotated = 32;
    let factor = 1.0;
    assert_eq!(
        lfm.rope.scaling,
        RopeScaling::Proportional { factor, n_rotated }
    );
    let nano = named("nanochat");
    assert_eq!(nano.logit_softcap, Some(15.0));
    let unbounded = json!({"model_type": "nanochat", "final_logit_softcapping": null});
    assert_eq!(read_hf(&unbounded).unwrap().logit_softcap, None);
    // Without a table of layers, the first three are dense.
    let step = named("step3p5");
    assert_eq!(step.experts.as_ref().unwrap().n_dense_layers, 3);
}

#[test]
fn objects_within_a_configuration_of_dbrx_are_read() {
    let published = json!({"model_type": "dbrx", "architectures": ["DbrxForCausalLM"],
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500_000}, "d_model": 6144,
        "ffn_config": {"ffn_hidden_size": 10_752, "moe_num_experts": 16, "moe_top_k": 4},
        "max_seq_len": 32_768, "n_heads": 48, "n_layers": 40, "vocab_size": 100_352});
    let config = read_hf(&published).unwrap();
    assert_eq!((config.n_kv_heads, config.head_dim), (8, 128));
    assert_eq!(
        (config.rope.theta, config.layers.qkv_bound),
        (5e5, Some(8.0))
    );
    let experts = config.experts.as_ref().unwrap();
    assert_eq!(
        (experts.n_experts, experts.n_used, experts.d_ff),
        (16, 4, 10_752)
    );
    assert_eq!(experts.normalized, Some(0.0));
    assert_eq!(read_hf(&hf::write(&config).unwrap()).unwrap(), config);
    let squared = json!({"ffn_config": {"moe_normalize_expert_weights": 2.0}});
    let error = read_hf(&with(&published, squared)).unwrap_err().to_string();
    assert!(error.contains("moe_normalize_expert_weights"), "{error}");
}

#[test]
fn what_these_families_do_not_compute_is_named() {
    let laguna = json!({"model_type": "laguna"});
    for (base, change, word) in [
        (mimo(), json!({"swa_head_dim": 128}), "swa_head_dim"),
        (mimo(), json!({"scoring_func": "softmax"}), "scoring_func"),
        (
            mimo(),
            json!({"v_head_dim": 256, "swa_v_head_dim": 256}),
            "value heads",
        ),
        (
            mimo(),
            json!({"num_hidden_layers": 1_u64 << 40}),
            "num_hidden_layers",
        ),
        (step(), json!({"zero_centered": false}), "zero_centered"),
        (
            step(),
            json!({"swiglu_limits": [0.1, 0, 0, 0]}),
            "gated network",
        ),
        (step(), json!({"swiglu_limits": [7.0]}), "swiglu_limits"),
        (step(), json!({"moe_layers_enum": "1,x"}), "moe_layers_enum"),
        (
            step(),
            json!({"rope_theta": [5e6, 1e4, 2e4, 5e6, 1e4]}),
            "rope_theta",
        ),
        (laguna.clone(), json!({"gating": "per-row"}), "gating"),
        (
            laguna,
            json!({"moe_apply_router_weight_on_input": true}),
            "moe_apply_router_weight_on_input",
        ),
    ] {
        let error = read_hf(&with(&base, change)).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}
