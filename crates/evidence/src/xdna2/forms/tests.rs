use super::*;
use crate::xdna2::fidelity;
use crate::xdna2::geometry::{find, models};

const STREAM: Weights = Weights::Stream { channels: 2 };

fn profile(name: &str) -> Profile {
    Profile::builtin(name).expect("built in")
}

fn token_ns(model: &str, context: u64, weights: Weights, profile: &Profile) -> f64 {
    let model = find(model).expect("a model");
    decode_token_ns(model, context, weights, &Machine::npu2(), profile).expect("calibrated")
}

#[test]
fn streamed_weights_are_the_published_sizes() {
    let rows = fidelity::measurements();
    let sizes: Vec<_> = rows
        .iter()
        .filter(|m| m.metric == "int16_elements")
        .collect();
    assert!(sizes.len() >= 3);
    for row in sizes {
        let model = find(&row.model).expect("in the table");
        let int16 = model.streamed_weights() as f64 * Q4NX_BYTES / 2.0;
        assert_eq!(int16, row.value, "{}", row.model);
    }
}

#[test]
fn dimensions_are_those_of_the_models() {
    // Parameters in billions as published, embedding counted once, norms and biases left out.
    for (name, billions) in [
        ("Llama-3.2-1B", 1.24),
        ("llama 3.2 3b", 3.21),
        ("Gemma3-1B", 1.00),
        ("Gemma3-4B", 3.88),
        ("Qwen3-0.6B", 0.60),
        ("Qwen3-1.7B", 1.72),
        ("Qwen3-4B", 4.02),
        ("Qwen2.5-0.5B", 0.49),
        ("Qwen2.5-1.5B", 1.54),
        ("Qwen2.5-3B", 3.09),
        ("SmolLM2-1.7B", 1.71),
        ("Phi-4", 3.84),
    ] {
        let model = find(name).expect(name);
        let found = (model.linear_weights() + model.vocab * model.d_model) as f64 / 1e9;
        assert!((found / billions - 1.0).abs() < 0.01, "{name}: {found}");
    }
    assert!(models().iter().all(|m| m.head_rows >= m.vocab));
    assert!(find("Gemma3-270M").is_none());
}

#[test]
fn windows_bound_what_a_layer_attends_to() {
    let model = find("Gemma3-4B").expect("a model");
    assert_eq!(model.attention_lengths(4096, true), [(5, 4096), (29, 1024)]);
    assert_eq!(model.attention_lengths(512, true), [(5, 512), (29, 512)]);
    assert_eq!(model.attention_lengths(4096, false), [(34, 4096), (0, 0)]);
    let brute: u64 = (1..=3000u64).map(|i| 5 * i + 29 * i.min(1024)).sum();
    assert_eq!(model.causal_pairs(3000), brute);
}

#[test]
fn a_token_is_weights_layers_and_cache() {
    let mut p = profile("air-krackan-2026");
    for set in [
        "decode.weight_gb_per_s=1000",
        "shim.port_gb_per_s=20",
        "decode.layer_ns=1000",
        "kernel.decode_attention.d64.call_cycles=1800",
    ] {
        p.set(set).expect("a key");
    }
    let model = find("Llama-3.2-1B").expect("a model");
    let weights = model.streamed_weights() as f64 * 0.625;
    // 17 positions are two blocks of 16 keys, 1 us each, in 16 layers.
    let at = |channels| token_ns("Llama-3.2-1B", 17, Weights::Stream { channels }, &p);
    assert!((at(2) - (weights / 160.0 + 16e3 + 32e3)).abs() < 1.0);
    assert!((at(1) - (weights / 80.0 + 16e3 + 32e3)).abs() < 1.0);
    let bundles = token_ns("Llama-3.2-1B", 17, Weights::Bundles(144.0), &p);
    let blocks = model.streamed_weights() as f64 / 8192.0;
    assert!((bundles - (blocks * 80.0 + 48e3)).abs() < 1.0);
}

#[test]
fn software_with_windows_decodes_long_contexts_faster() {
    let mut with = profile("paper-kraken");
    let long = token_ns("Gemma3-4B", 32_768, STREAM, &with);
    with.set("decode.windows=0").expect("a key");
    assert!(token_ns("Gemma3-4B", 32_768, STREAM, &with) > 1.5 * long);
}

#[test]
fn a_profile_without_constants_predicts_nothing() {
    let machine = Machine::npu2();
    let model = find("Llama-3.2-1B").expect("a model");
    let mut p = profile("air-strix-2026");
    let error = prefill_ns(model, 1024, &machine, &p).expect_err("no prefill constants");
    assert!(
        error
            .to_string()
            .contains("`air-strix-2026` has no `prefill.")
    );
    p.kernels.remove("decode_attention.d64");
    let error = decode_token_ns(model, 1024, STREAM, &machine, &p).expect_err("no object");
    assert_eq!(error.key, "kernel.decode_attention.d64");
}

#[test]
fn a_prompt_grows_with_its_length_and_with_padded_groups() {
    let machine = Machine::npu2();
    let model = find("Qwen3-0.6B").expect("a model");
    let mut p = profile("paper-kraken");
    let ns = |length, p: &Profile| prefill_ns(model, length, &machine, p).expect("calibrated");
    let layers = model.n_layers as f64 * p.prefill.layer_ns;
    let (short, long) = (ns(1024, &p) - layers, ns(2048, &p) - layers);
    assert!(short > 0.0 && long > 1.5 * short);
    let plain = ns(32_768, &p);
    p.set("prefill.group_heads=4").expect("a key");
    assert!(ns(32_768, &p) > 1.5 * plain);
}
