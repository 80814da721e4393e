//! Attention over the cache on the array: beside the host's, with sessions that take turns, and what
//! crosses for it.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_model::graph::Op;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{Feature, Features, Mode, NpuModel, NpuOptions, NpuSession};
use millrace_xdna2::{Machine, Profile};
use serde_json::{Map, json};
use std::path::Path;
use std::sync::Arc;

fn demo() -> Arc<LoadedModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf");
    Arc::new(LoadedModel::open(&path).unwrap())
}

fn load(model: &Arc<LoadedModel>, features: Features, n_padded: u64) -> Arc<NpuModel> {
    let options = NpuOptions {
        features,
        n_ctx: Some(8000),
        prefill_tokens: Some(n_padded),
        ..NpuOptions::default()
    };
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let npu = NpuModel::load(model.clone(), Machine::npu2(), profile, options);
    Arc::new(npu.unwrap_or_else(|error| panic!("{error}")))
}

fn both(model: &Arc<LoadedModel>, n_padded: u64) -> [Arc<NpuModel>; 2] {
    let all = Features::of(Mode::Best);
    [all, all.without(Feature::CachedAttention)].map(|f| load(model, f, n_padded))
}

/// Some tokens, and different ones by salt.
fn noise(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 41 + salt) % 2048).collect()
}

fn n_layers(model: &LoadedModel) -> u64 {
    let nodes = model.model().graph.nodes.iter();
    nodes.filter(|n| matches!(n.op, Op::Attention(_))).count() as u64
}

/// The host computes in f32, the array in bf16 tiles: as close as flash attention is.
fn assert_close(array: &[f32], host: &[f32]) {
    let largest = host.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let apart = array.iter().zip(host).map(|(a, b)| (a - b).abs());
    let apart = apart.fold(0.0_f32, f32::max);
    assert!(apart < 0.05 * largest, "{apart} of {largest}");
    assert!(array != host, "the same bits: was it the array?");
}

#[test]
fn later_chunks_attend_on_the_array() {
    let model = demo();
    let prompt = noise(200, 3);
    let [array, host] = both(&model, 64).map(|npu| {
        let mut session = NpuSession::new(&npu);
        let logits = session.prefill(&prompt).unwrap().to_vec();
        (logits, *session.counters())
    });
    assert_close(&array.0, &host.0);
    let more = array.1.prefill.n_dispatches - host.1.prefill.n_dispatches;
    assert_eq!(more, 3 * n_layers(&model));
}

const D_MODEL: u64 = 64;
const HEADS: u64 = 32;
const HEAD_DIM: u64 = 128;

/// A model of one layer with a wide cache, so that the array is faster from the first keys on.
fn write_wide(dir: &Path) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_hidden_layers": 1, "hidden_size": D_MODEL, "intermediate_size": 64,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
        "vocab_size": 512, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0, "tie_word_embeddings": true, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false, "torch_dtype": "bfloat16"
    });
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let width = HEADS * HEAD_DIM;
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let shapes = [
        ("model.embed_tokens.weight".to_owned(), vec![512, D_MODEL]),
        ("model.norm.weight".to_owned(), vec![D_MODEL]),
        (layer("input_layernorm"), vec![D_MODEL]),
        (layer("self_attn.q_proj"), vec![width, D_MODEL]),
        (layer("self_attn.k_proj"), vec![width, D_MODEL]),
        (layer("self_attn.v_proj"), vec![width, D_MODEL]),
        (layer("self_attn.o_proj"), vec![D_MODEL, width]),
        (layer("post_attention_layernorm"), vec![D_MODEL]),
        (layer("mlp.gate_proj"), vec![64, D_MODEL]),
        (layer("mlp.up_proj"), vec![64, D_MODEL]),
        (layer("mlp.down_proj"), vec![D_MODEL, 64]),
    ];
    let mut state = 1_u64;
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

#[test]
fn a_token_attends_on_the_array_and_brings_its_own_row() {
    let dir = tempfile::tempdir().unwrap();
    write_wide(dir.path());
    let model = Arc::new(LoadedModel::open(dir.path()).unwrap());
    let prompt: Vec<u32> = noise(40, 5).into_iter().map(|t| t % 512).collect();
    let [array, host] = both(&model, 64).map(|npu| {
        let mut session = NpuSession::new(&npu);
        session.prefill(&prompt).unwrap();
        session.decode(77).unwrap();
        let first = session.counters().decode;
        let logits = session.decode(78).unwrap().to_vec();
        let second = session.counters().decode;
        let n_dispatches = second.n_dispatches - first.n_dispatches;
        (
            logits,
            n_dispatches,
            second.traffic - first.traffic,
            first.traffic,
        )
    });
    assert_close(&array.0, &host.0);
    assert_eq!(array.1 - host.1, 1);
    // The first token found nothing of the cache on the device and brought the prompt's rows, the
    // second its own.
    let row = 4 * HEADS * HEAD_DIM;
    let other = 16 * 1024;
    assert!(
        (row..row + other).contains(&array.2.to_device_bytes),
        "{:?}",
        array.2
    );
    let all = 41 * row;
    assert!(
        (all..all + other).contains(&array.3.to_device_bytes),
        "{:?}",
        array.3
    );
}

#[test]
fn sessions_take_turns_with_the_devices_cache() {
    let model = demo();
    let npu = load(&model, Features::of(Mode::Best), 64);
    let alone = |salt: u32| {
        let mut session = NpuSession::new(&npu);
        session.prefill(&noise(100, salt)).unwrap();
        session.prefill(&noise(50, salt + 1)).unwrap().to_vec()
    };
    let (first, second) = (alone(1), alone(2));
    assert!(first != second);
    let [mut a, mut b] = [1, 2].map(|salt| {
        let mut session = NpuSession::new(&npu);
        session.prefill(&noise(100, salt)).unwrap();
        session
    });
    assert!(a.prefill(&noise(50, 2)).unwrap() == first);
    assert!(b.prefill(&noise(50, 3)).unwrap() == second);
    // What is cut off and computed anew, from another place, leaves nothing behind.
    a.truncate(30);
    a.prefill(&noise(80, 9)).unwrap();
    a.truncate(0);
    a.prefill(&noise(100, 1)).unwrap();
    assert!(a.prefill(&noise(50, 2)).unwrap() == first);
}
