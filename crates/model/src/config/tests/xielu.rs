//! Parameters of xIELU by layer, as keys of GGUF files, and refusals of bad ones.

use serde_json::json;

use super::{llama, read_hf, through_gguf, through_gguf_with, with};
use crate::config::{ModelConfig, RopeScaling, XieluParameters};
use millrace_format::gguf::{GgufArray, GgufValue};

fn apertus() -> ModelConfig {
    let words = json!({
        "architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_act": "xielu",
    });
    read_hf(&with(&llama(), words)).unwrap()
}

#[test]
fn numbers_of_layers_pass_through_metadata() {
    let mut config = apertus();
    // Files without the numbers have those of the class.
    let usual = config.xielu_of(1).op();
    assert!((usual.square - 0.8).abs() < 1e-6 && (usual.exponential - 0.8).abs() < 1e-6);
    let numbers = [[0.5, -0.25, 0.5, -1e-6], [1.0, 30.0, 0.25, -1e-3]];
    config.layers.xielu = numbers.map(XieluParameters::of).to_vec();
    assert_eq!(through_gguf(&config).unwrap(), config);
    // For large inputs a softplus is its input.
    assert!((config.xielu_of(1).op().exponential - 30.25).abs() < 1e-5);
}

#[test]
fn a_number_for_all_layers_and_numbers_that_do_not_fit() {
    let read = |value: GgufValue| {
        through_gguf_with(&apertus(), |metadata| {
            metadata.insert("xielu.alpha_p", value);
        })
    };
    let found = read(GgufValue::F32(0.75)).unwrap();
    let alphas: Vec<f32> = found
        .layers
        .xielu
        .iter()
        .map(|xielu| xielu.alpha_p)
        .collect();
    assert_eq!(alphas, [0.75, 0.75]);
    let list = |numbers: &[f32]| GgufValue::Array(GgufArray::F32(numbers.to_vec()));
    for (value, word) in [
        (list(&[0.5]), "one for each of the 2 layers"),
        (list(&[0.5, f32::NAN]), "layer 1"),
        (list(&[1e30, 0.5]), "layer 0"),
        (GgufValue::Str("much".into()), "alpha_p"),
    ] {
        let error = read(value).unwrap_err().to_string();
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[test]
fn another_activation_is_refused_and_absent_rotations_are_the_classs() {
    let words = json!({
        "architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_act": "silu",
    });
    let error = read_hf(&with(&llama(), words)).unwrap_err().to_string();
    assert!(error.contains("`silu`"), "{error}");
    let mut bare = llama();
    bare.as_object_mut().unwrap().remove("rope_theta");
    let words = json!({"architectures": ["ApertusForCausalLM"], "model_type": "apertus"});
    let config = read_hf(&with(&bare, words)).unwrap();
    assert_eq!(config.rope.theta, 12_000_000.0);
    assert!(matches!(
        config.rope.scaling,
        RopeScaling::Llama3 { factor: 8.0, .. }
    ));
}
