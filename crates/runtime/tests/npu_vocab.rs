//! Vocabularies that are no whole number of the head's parts: logits of the array beside the host's.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_runtime::npu::{Features, Mode, NpuModel, NpuOptions, NpuSession};
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel};
use millrace_xdna2::{Machine, Profile};
use serde_json::{Map, json};
use std::path::Path;
use std::sync::Arc;

const D_MODEL: u64 = 64;
const D_FF: u64 = 128;

/// A model of one layer with that vocabulary.
fn write_model(dir: &Path, vocab: u64) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_hidden_layers": 1, "hidden_size": D_MODEL, "intermediate_size": D_FF,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": D_MODEL,
        "vocab_size": vocab, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0, "tie_word_embeddings": true, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false, "torch_dtype": "bfloat16"
    });
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![vocab, D_MODEL]),
        ("model.norm.weight".to_owned(), vec![D_MODEL]),
        (layer("input_layernorm"), vec![D_MODEL]),
        (layer("post_attention_layernorm"), vec![D_MODEL]),
        (layer("mlp.gate_proj"), vec![D_FF, D_MODEL]),
        (layer("mlp.up_proj"), vec![D_FF, D_MODEL]),
        (layer("mlp.down_proj"), vec![D_MODEL, D_FF]),
    ];
    for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        shapes.push((layer(&format!("self_attn.{name}")), vec![D_MODEL, D_MODEL]));
    }
    let mut state = vocab;
    let mut header = Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, shape) in shapes {
        let (start, n) = (data.len(), shape.iter().product::<u64>());
        let size = match shape[..] {
            [_, k] => 3.0 / (k as f32).sqrt(),
            _ => 1.0,
        };
        for _ in 0..n {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let uniform = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            data.extend(half::bf16::from_f32(uniform * size).to_le_bytes());
        }
        let tensor =
            json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name, tensor);
    }
    let header = serde_json::to_string(&header).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &data].concat();
    std::fs::write(dir.join("model.safetensors"), file).unwrap();
}

/// Logits after the prompt, then after one token more.
fn on_the_array(model: &Arc<LoadedModel>, mode: Mode, prompt: &[u32]) -> [Vec<f32>; 2] {
    let options = NpuOptions {
        features: Features::of(mode),
        prefill_tokens: Some(64),
        ..NpuOptions::default()
    };
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let npu = NpuModel::load(model.clone(), Machine::npu2(), profile, options);
    let mut session = NpuSession::new(&Arc::new(npu.unwrap_or_else(|e| panic!("{e}"))));
    let last = session.prefill(prompt).unwrap().to_vec();
    [last, session.decode(prompt[0]).unwrap().to_vec()]
}

#[test]
fn logits_of_odd_vocabularies_are_the_hosts() {
    // Seven parts empty, three, two, one and none.
    for vocab in [2_u64, 257, 513, 600, 1025, 3000, 4097, 8193] {
        let dir = tempfile::tempdir().unwrap();
        write_model(dir.path(), vocab);
        let model = Arc::new(LoadedModel::open(dir.path()).unwrap());
        let prompt: Vec<u32> = (0..20).map(|i| (i * 41 + 3) % vocab as u32).collect();
        let mut engine = CpuEngine::new(model.clone(), EngineOptions::default()).unwrap();
        let sequence = engine.create().unwrap();
        let mut logits = |tokens: &[u32]| {
            let item = BatchItem::last(sequence, tokens);
            engine.compute(&[item]).unwrap().logits(0).to_vec()
        };
        let host = [logits(&prompt), logits(&prompt[..1])];
        for mode in [Mode::Best, Mode::Reference] {
            let array = on_the_array(&model, mode, &prompt);
            for (array, host) in array.iter().zip(&host) {
                assert_eq!((array.len(), host.len()), (vocab as usize, vocab as usize));
                let largest = host.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                for (row, (a, b)) in array.iter().zip(host).enumerate() {
                    let apart = (a - b).abs();
                    assert!(
                        apart < 0.05 * largest,
                        "{vocab}, {mode:?}, row {row}: {a} for {b}"
                    );
                }
            }
        }
    }
}
