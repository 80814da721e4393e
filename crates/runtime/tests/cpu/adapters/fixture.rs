//! Adapters from numbers, written as either kind of file, and a small model for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::safetensors::Writer;
use millrace_format::{Checkpoint, TensorSpec, gguf};
use millrace_model::names::permutation;
use millrace_quant::DType;
use millrace_runtime::{
    AdapterSet, BatchItem, CpuEngine, Engine, EngineOptions, KvType, LoadedModel, LogitsFor,
    LoraAdapter,
};
use millrace_testkit::golden::Golden;
use serde_json::{Value, json};

pub(super) const RANK: usize = 3;
pub(super) const ALPHA: f32 = 6.0;
/// Queries of the fixture.
pub(super) const HEAD_DIM: usize = 64;

/// A tensor of an adapter, row-major.
pub(super) struct Half {
    pub(super) name: String,
    pub(super) shape: [usize; 2],
    pub(super) data: Vec<f32>,
}

/// Numbers that look random, around 0.
pub(super) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| 0.3 * next()).collect()
}

/// The matrices of a block: module, name in GGUF files, rows, columns, heads whose rows GGUF files permute.
pub(super) const MODULES: [(&str, &str, usize, usize, usize); 7] = [
    ("self_attn.q_proj", "attn_q", 256, 72, 4),
    ("self_attn.k_proj", "attn_k", 64, 72, 1),
    ("self_attn.v_proj", "attn_v", 64, 72, 0),
    ("self_attn.o_proj", "attn_output", 72, 256, 0),
    ("mlp.gate_proj", "ffn_gate", 104, 72, 0),
    ("mlp.up_proj", "ffn_up", 104, 72, 0),
    ("mlp.down_proj", "ffn_down", 72, 104, 0),
];

/// Halves for every matrix of the fixture, under the names of PEFT or of GGUF files.
pub(super) fn halves(seed: u64, is_gguf: bool) -> Vec<Half> {
    let mut out = Vec::new();
    for layer in 0..2 {
        for (i, (module, gguf, n, k, n_heads)) in MODULES.into_iter().enumerate() {
            let seed = seed + 100 * layer + i as u64;
            let (a, mut b) = (numbers(RANK * k, 2 * seed), numbers(n * RANK, 2 * seed + 1));
            let names = match is_gguf {
                true => ["a", "b"].map(|half| format!("blk.{layer}.{gguf}.weight.lora_{half}")),
                false => ["A", "B"].map(|half| {
                    format!("base_model.model.model.layers.{layer}.{module}.lora_{half}.weight")
                }),
            };
            if is_gguf && n_heads > 0 {
                let rows = permutation(n_heads, HEAD_DIM);
                b = rows
                    .iter()
                    .flat_map(|row| b[row * RANK..][..RANK].to_vec())
                    .collect();
            }
            let [of_a, of_b] = names;
            out.push(Half {
                name: of_a,
                shape: [RANK, k],
                data: a,
            });
            out.push(Half {
                name: of_b,
                shape: [n, RANK],
                data: b,
            });
        }
    }
    out
}

pub(super) fn specs(halves: &[Half]) -> Vec<TensorSpec> {
    let spec = |half: &Half| TensorSpec::new(half.name.clone(), DType::F32, &half.shape);
    halves.iter().map(spec).collect()
}

pub(super) fn bytes(data: &[f32]) -> Vec<u8> {
    data.iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

pub(super) fn config() -> Value {
    json!({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "use_rslora": false,
           "use_dora": false, "fan_in_fan_out": false, "init_lora_weights": true,
           "target_modules": ["q_proj"], "modules_to_save": null, "rank_pattern": {}, "alpha_pattern": {}})
}

pub(super) fn write_peft(dir: &Path, name: &str, halves: &[Half], config: &Value) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir(&path).unwrap();
    let weights = path.join("adapter_model.safetensors");
    let mut writer = Writer::create(&weights, &BTreeMap::new(), &specs(halves)).unwrap();
    for half in halves {
        writer.write(&half.name, &bytes(&half.data)).unwrap();
    }
    writer.commit().unwrap();
    std::fs::write(path.join("adapter_config.json"), config.to_string()).unwrap();
    path
}

pub(super) fn write_gguf(dir: &Path, name: &str, halves: &[Half], arch: &str) -> PathBuf {
    let path = dir.join(name);
    let mut metadata = gguf::Metadata::new();
    metadata.insert("general.type", "adapter");
    metadata.insert("general.architecture", arch);
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", ALPHA);
    let mut writer = gguf::Writer::create(&path, &metadata, &specs(halves)).unwrap();
    for half in halves {
        writer.write(&half.name, &bytes(&half.data)).unwrap();
    }
    writer.commit().unwrap();
    path
}

/// The fixture with an adapter merged into its weights, times a factor.
pub(super) fn merged(dir: &Path, name: &str, halves: &[Half], scale: f32) -> Arc<LoadedModel> {
    let golden = Golden::named("llama-llama3");
    let base = Checkpoint::open(&golden.hf().join("model.safetensors")).unwrap();
    let path = dir.join(name);
    std::fs::create_dir(&path).unwrap();
    let specs: Vec<TensorSpec> = base
        .tensors()
        .iter()
        .map(|info| TensorSpec::new(info.name.clone(), DType::F32, &info.shape))
        .collect();
    let file = path.join("model.safetensors");
    let mut writer = Writer::create(&file, &BTreeMap::new(), &specs).unwrap();
    for tensor in base.iter() {
        let (numbers, _) = tensor.bytes.as_chunks::<4>();
        let mut numbers: Vec<f32> = numbers
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let module = tensor.info.name.trim_end_matches(".weight");
        let of = |half: &str| {
            let name = format!("base_model.model.{module}.lora_{half}.weight");
            halves.iter().find(|half| half.name == name)
        };
        if let (Some(a), Some(b)) = (of("A"), of("B")) {
            let (k, factor) = (a.shape[1], f64::from(scale * ALPHA / RANK as f32));
            for (at, number) in numbers.iter_mut().enumerate() {
                let (row, column) = (at / k, at % k);
                let products = (0..RANK)
                    .map(|i| f64::from(b.data[row * RANK + i]) * f64::from(a.data[i * k + column]));
                *number = (f64::from(*number) + factor * products.sum::<f64>()) as f32;
            }
        }
        writer.write(&tensor.info.name, &bytes(&numbers)).unwrap();
    }
    writer.commit().unwrap();
    std::fs::copy(golden.hf().join("config.json"), path.join("config.json")).unwrap();
    Arc::new(LoadedModel::open(&path).unwrap())
}

pub(super) fn folder() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap())
}

pub(super) fn adapter(path: &Path, model: &LoadedModel) -> Arc<LoraAdapter> {
    Arc::new(LoraAdapter::open(path, model).unwrap_or_else(|error| panic!("{error}")))
}

pub(super) fn engine(
    model: &Arc<LoadedModel>,
    adapters: AdapterSet,
    max_chunk: usize,
) -> CpuEngine {
    let options = EngineOptions {
        n_threads: Some(2),
        n_ctx: Some(256),
        kv_type: KvType::F32,
        max_sequences: 5,
        max_chunk,
        keep_prefixes: true,
        adapters,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::clone(model), options).unwrap()
}

pub(super) fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 11) % 250).collect()
}

/// Logits of all tokens of a text.
pub(super) fn logits(model: &Arc<LoadedModel>, adapters: AdapterSet) -> Vec<f32> {
    let mut engine = engine(model, adapters, 512);
    let seq = engine.create().unwrap();
    let text = tokens(40);
    let items = [BatchItem::new(seq, &text, LogitsFor::All)];
    engine.compute(&items).unwrap().logits(0).to_vec()
}

/// The largest difference, and the largest number.
pub(super) fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = |numbers: &mut dyn Iterator<Item = f32>| numbers.fold(0.0, f32::max);
    largest(&mut a.iter().zip(b).map(|(a, b)| (a - b).abs()))
        / largest(&mut a.iter().map(|a| a.abs()))
}

pub(super) const NEAR: f32 = 2e-4;
pub(super) const FAR: f32 = 2e-2;
