use serde_json::json;

use super::*;

/// Every scaling of RoPE, with values that differ from the defaults.
pub(super) fn scaled_configs() -> Vec<ModelConfig> {
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
