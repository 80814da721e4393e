//! LoRA adapters: beside the model that they are merged into, from either kind of file, on either layout, several in a batch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::safetensors::Writer;
use millrace_format::{Checkpoint, TensorSpec, gguf};
use millrace_model::names::permutation;
use millrace_quant::DType;
use millrace_runtime::disk::PageFolder;
use millrace_runtime::{
    AdapterSet, BatchItem, CpuEngine, Engine, EngineOptions, KvType, LoadedModel, LogitsFor,
    LoraAdapter,
};
use millrace_testkit::golden::Golden;
use serde_json::{Value, json};

const RANK: usize = 3;
const ALPHA: f32 = 6.0;
/// Queries of the fixture.
const HEAD_DIM: usize = 64;

/// A tensor of an adapter, row-major.
struct Half {
    name: String,
    shape: [usize; 2],
    data: Vec<f32>,
}

/// Numbers that look random, around 0.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
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
const MODULES: [(&str, &str, usize, usize, usize); 7] = [
    ("self_attn.q_proj", "attn_q", 256, 72, 4),
    ("self_attn.k_proj", "attn_k", 64, 72, 1),
    ("self_attn.v_proj", "attn_v", 64, 72, 0),
    ("self_attn.o_proj", "attn_output", 72, 256, 0),
    ("mlp.gate_proj", "ffn_gate", 104, 72, 0),
    ("mlp.up_proj", "ffn_up", 104, 72, 0),
    ("mlp.down_proj", "ffn_down", 72, 104, 0),
];

/// Halves for every matrix of the fixture, under the names of PEFT or of GGUF files.
fn halves(seed: u64, is_gguf: bool) -> Vec<Half> {
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

fn specs(halves: &[Half]) -> Vec<TensorSpec> {
    let spec = |half: &Half| TensorSpec::new(half.name.clone(), DType::F32, &half.shape);
    halves.iter().map(spec).collect()
}

fn bytes(data: &[f32]) -> Vec<u8> {
    data.iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn config() -> Value {
    json!({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "use_rslora": false,
           "use_dora": false, "fan_in_fan_out": false, "init_lora_weights": true,
           "target_modules": ["q_proj"], "modules_to_save": null, "rank_pattern": {}, "alpha_pattern": {}})
}

fn write_peft(dir: &Path, name: &str, halves: &[Half], config: &Value) -> PathBuf {
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

fn write_gguf(dir: &Path, name: &str, halves: &[Half], arch: &str) -> PathBuf {
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
fn merged(dir: &Path, name: &str, halves: &[Half], scale: f32) -> Arc<LoadedModel> {
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

fn folder() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap())
}

fn adapter(path: &Path, model: &LoadedModel) -> Arc<LoraAdapter> {
    Arc::new(LoraAdapter::open(path, model).unwrap_or_else(|error| panic!("{error}")))
}

fn engine(model: &Arc<LoadedModel>, adapters: AdapterSet, max_chunk: usize) -> CpuEngine {
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

fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 11) % 250).collect()
}

/// Logits of all tokens of a text.
fn logits(model: &Arc<LoadedModel>, adapters: AdapterSet) -> Vec<f32> {
    let mut engine = engine(model, adapters, 512);
    let seq = engine.create().unwrap();
    let text = tokens(40);
    let items = [BatchItem::new(seq, &text, LogitsFor::All)];
    engine.compute(&items).unwrap().logits(0).to_vec()
}

/// The largest difference, beside the largest number.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = |numbers: &mut dyn Iterator<Item = f32>| numbers.fold(0.0, f32::max);
    largest(&mut a.iter().zip(b).map(|(a, b)| (a - b).abs()))
        / largest(&mut a.iter().map(|a| a.abs()))
}

const NEAR: f32 = 2e-4;
const FAR: f32 = 2e-2;

#[test]
fn logits_are_those_of_peft() {
    let other = Golden::named("llama-llama3").gguf().unwrap();
    let models = [folder(), Arc::new(LoadedModel::open(&other).unwrap())];
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/adapters");
    for (fixture, file) in [
        ("llama-all", ""),
        ("llama-all", "adapter.f32.gguf"),
        ("llama-rslora", ""),
    ] {
        let dir = adapters.join(fixture);
        let expected = Checkpoint::open(&dir.join("expected.safetensors")).unwrap();
        let (numbers, _) = expected.require("logits").unwrap().bytes.as_chunks::<4>();
        let expected: Vec<f32> = numbers
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        for model in &models {
            let own = adapter(&dir.join(file), model);
            let found = logits(model, AdapterSet::new([(own, 1.0)]));
            let distance = distance(&expected, &found);
            assert!(
                distance < NEAR,
                "{fixture} {file} on {}: {distance}",
                model.name()
            );
        }
        let base = logits(&models[0], AdapterSet::default());
        assert!(
            distance(&expected, &base) > FAR,
            "{fixture} changes nothing"
        );
    }
}

#[test]
fn an_adapter_computes_what_the_merged_model_does() {
    let dir = tempfile::tempdir().unwrap();
    let (halves, model) = (halves(1, false), folder());
    let path = write_peft(dir.path(), "peft", &halves, &config());
    let own = adapter(&path, &model);
    let base = logits(&model, AdapterSet::default());
    for scale in [1.0, -0.5] {
        let merged = merged(dir.path(), &format!("merged {scale}"), &halves, scale);
        let expected = logits(&merged, AdapterSet::default());
        let found = logits(&model, AdapterSet::new([(Arc::clone(&own), scale)]));
        assert!(
            distance(&expected, &base) > FAR,
            "the adapter changes nothing"
        );
        let distance = distance(&expected, &found);
        assert!(distance < NEAR, "times {scale}: {distance}");
    }
    // Two are summed.
    let twice = AdapterSet::new([(Arc::clone(&own), 0.25), (own, 0.75)]);
    let whole = merged(dir.path(), "whole", &halves, 1.0);
    let expected = logits(&whole, AdapterSet::default());
    assert!(distance(&expected, &logits(&model, twice)) < NEAR);
}

#[test]
fn either_kind_of_file_goes_with_either_layout() {
    let dir = tempfile::tempdir().unwrap();
    let peft = write_peft(dir.path(), "peft", &halves(2, false), &config());
    let gguf = write_gguf(dir.path(), "adapter.gguf", &halves(2, true), "llama");
    let other = Golden::named("llama-llama3").gguf().unwrap();
    let models = [folder(), Arc::new(LoadedModel::open(&other).unwrap())];
    let expected = logits(
        &models[0],
        AdapterSet::new([(adapter(&peft, &models[0]), 1.0)]),
    );
    assert!(distance(&expected, &logits(&models[0], AdapterSet::default())) > FAR);
    for model in &models {
        for path in [&peft, &gguf] {
            let found = logits(model, AdapterSet::new([(adapter(path, model), 1.0)]));
            let distance = distance(&expected, &found);
            assert!(
                distance < NEAR,
                "{} on {}: {distance}",
                path.display(),
                model.name()
            );
        }
    }
}

#[test]
fn factors_are_those_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (halves, model) = (halves(3, false), folder());
    let plain = adapter(&write_peft(dir.path(), "plain", &halves, &config()), &model);
    let own = |name: &str, key: &str, value: Value| {
        let mut config = config();
        config[key] = value;
        let adapter = adapter(&write_peft(dir.path(), name, &halves, &config), &model);
        logits(&model, AdapterSet::new([(adapter, 1.0)]))
    };
    let times = |factor: f32| logits(&model, AdapterSet::new([(Arc::clone(&plain), factor)]));
    let root = (RANK as f32).sqrt();
    assert!(distance(&times(root), &own("rslora", "use_rslora", true.into())) < NEAR);
    assert!(
        distance(
            &times(0.5),
            &own("alpha", "lora_alpha", (ALPHA / 2.0).into())
        ) < NEAR
    );
    // Of some modules.
    let patterns = json!({"q_proj": 0.5 * ALPHA, "layers.1.mlp.up_proj": 3});
    let pattern = own("pattern", "alpha_pattern", patterns);
    assert!(distance(&times(1.0), &pattern) > 1e-3);
    assert!(distance(&times(0.5), &pattern) > 1e-3);
}

#[test]
fn rows_have_the_same_bits_whatever_shares_their_batch() {
    let dir = tempfile::tempdir().unwrap();
    let model = folder();
    let [a, b] = [4, 5].map(|seed| {
        let path = write_peft(
            dir.path(),
            &format!("{seed}"),
            &halves(seed, false),
            &config(),
        );
        adapter(&path, &model)
    });
    let sets = [
        AdapterSet::default(),
        AdapterSet::new([(Arc::clone(&a), 1.0)]),
        AdapterSet::new([(Arc::clone(&b), 1.0), (Arc::clone(&a), 0.5)]),
        AdapterSet::default(),
    ];
    let texts = [tokens(50), tokens(23), tokens(41), tokens(17)];
    let alone: Vec<Vec<f32>> = sets
        .iter()
        .zip(&texts)
        .map(|(set, text)| {
            let mut engine = engine(&model, AdapterSet::default(), 512);
            let seq = engine.create().unwrap();
            engine.set_adapters(seq, set).unwrap();
            let items = [BatchItem::new(seq, text, LogitsFor::All)];
            engine.compute(&items).unwrap().logits(0).to_vec()
        })
        .collect();
    let plain = logits(&model, AdapterSet::default());
    assert!(
        plain == alone[0][..plain.len()],
        "rows without an adapter keep their bits"
    );
    for max_chunk in [512, 60, 7] {
        let mut engine = engine(&model, AdapterSet::default(), max_chunk);
        let seqs = [0; 4].map(|_| engine.create().unwrap());
        for (seq, set) in seqs.iter().zip(&sets) {
            engine.set_adapters(*seq, set).unwrap();
        }
        // All but the last token, then the last one of each: rows without logits are dropped amid the last layer.
        let width = engine.model().model().config.vocab_size;
        let items: Vec<BatchItem<'_>> = seqs
            .iter()
            .zip(&texts)
            .map(|(seq, text)| BatchItem::last(*seq, &text[..text.len() - 1]))
            .collect();
        let first = engine.compute(&items).unwrap();
        let items: Vec<BatchItem<'_>> = seqs
            .iter()
            .zip(&texts)
            .map(|(seq, text)| BatchItem::last(*seq, &text[text.len() - 1..]))
            .collect();
        let second = engine.compute(&items).unwrap();
        for (i, alone) in alone.iter().enumerate() {
            let last = alone.len() - width;
            assert!(
                first.logits(i) == &alone[last - width..last],
                "{max_chunk}: {i}"
            );
            assert!(second.logits(i) == &alone[last..], "{max_chunk}: {i}");
        }
    }
}

#[test]
fn a_prefix_is_found_by_those_with_the_same_adapters() {
    let dir = tempfile::tempdir().unwrap();
    let model = folder();
    let path = write_peft(dir.path(), "peft", &halves(6, false), &config());
    let own = adapter(&path, &model);
    let set = |scale: f32| AdapterSet::new([(Arc::clone(&own), scale)]);
    let mut engine = engine(&model, AdapterSet::default(), 512);
    let text = tokens(150);
    let mut found = |scope: u64, adapters: &AdapterSet| {
        let seq = engine.create().unwrap();
        engine.set_scope(seq, scope).unwrap();
        engine.set_adapters(seq, adapters).unwrap();
        let n_held = engine.reuse_prefix(seq, &text).unwrap();
        engine
            .compute(&[BatchItem::last(seq, &text[n_held..])])
            .unwrap();
        // A fork has them as well, and a change gives up what is held.
        let fork = engine.fork(seq).unwrap();
        engine.set_adapters(fork, adapters).unwrap();
        assert_eq!(engine.len(fork).unwrap(), text.len());
        engine.set_adapters(fork, &set(9.0)).unwrap();
        assert_eq!(engine.len(fork).unwrap(), 0);
        engine.release(fork).unwrap();
        engine.release(seq).unwrap();
        n_held
    };
    let none = AdapterSet::default();
    assert_eq!(found(0, &none), 0);
    assert_eq!(found(0, &set(1.0)), 0);
    assert_eq!(found(1, &set(1.0)), 0);
    assert_eq!(found(0, &set(0.5)), 0);
    for (scope, adapters) in [(0, &none), (0, &set(1.0)), (1, &set(1.0)), (0, &set(0.0))] {
        assert_eq!(found(scope, adapters), 128, "{scope} {adapters:?}");
    }
}

#[test]
fn what_is_on_disk_is_found_with_the_same_adapters_alone() {
    let dir = tempfile::tempdir().unwrap();
    let model = folder();
    let files = [6, 7].map(|seed| {
        write_peft(
            dir.path(),
            &format!("peft{seed}"),
            &halves(seed, false),
            &config(),
        )
    });
    // Each engine reads its adapters again, as another process would.
    let set = |which: usize, scale: f32| {
        let adapter = adapter(&files[which], &model);
        AdapterSet::new([(adapter, scale)])
    };
    let pages = PageFolder {
        path: dir.path().join("pages"),
        max_bytes: u64::MAX,
        warn: Arc::new(|line| panic!("{line}")),
    };
    let text = tokens(150);
    let found = |adapters: AdapterSet| {
        let mut engine = engine(&model, AdapterSet::default(), 512);
        engine.keep_pages_in(&pages).unwrap();
        let seq = engine.create().unwrap();
        engine.set_adapters(seq, &adapters).unwrap();
        let n_held = engine.reuse_prefix(seq, &text).unwrap();
        let rest = [BatchItem::last(seq, &text[n_held..])];
        let logits = engine.compute(&rest).unwrap().logits(0).to_vec();
        engine.release(seq).unwrap();
        (n_held, logits)
    };
    // A file read twice, another file, another factor, no adapter: each finds its own pages.
    let sets = || [set(0, 1.0), set(1, 1.0), set(0, 0.5), AdapterSet::default()];
    let computed = sets().map(&found);
    for ((first, again), adapters) in computed.iter().zip(sets().map(&found)).zip(sets()) {
        assert_eq!((first.0, again.0), (0, 128), "{adapters:?}");
        assert!(first.1 == again.1, "{adapters:?}");
    }
    let session = dir.path().join("session");
    let open = |adapters: AdapterSet| {
        let mut engine = engine(&model, adapters, 512);
        let seq = engine.create().unwrap();
        (engine, seq)
    };
    let (mut engine, seq) = open(set(0, 1.0));
    engine.compute(&[BatchItem::last(seq, &text)]).unwrap();
    engine.save_sequence(seq, b"", &session).unwrap();
    let (mut engine, seq) = open(set(0, 1.0));
    assert!(engine.load_sequence(seq, &session).unwrap().is_some());
    for other in [set(1, 1.0), AdapterSet::default()] {
        let (mut engine, seq) = open(other);
        let error = engine.load_sequence(seq, &session).unwrap_err().to_string();
        assert!(error.contains("LoRA adapters"), "{error}");
        assert!(error.contains("--lora"), "{error}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let model = folder();
    let mut n = 0;
    let mut refused = |halves: &[Half], config: &Value, words: &[&str]| {
        n += 1;
        let path = write_peft(dir.path(), &format!("{n}"), halves, config);
        let error = LoraAdapter::open(&path, &model).err();
        let error = error
            .unwrap_or_else(|| panic!("{words:?} was taken"))
            .to_string();
        for word in words {
            assert!(error.contains(word), "{error} has no {word}");
        }
    };
    let plain = || halves(7, false);
    let with = |key: &str, value: Value| {
        let mut config = config();
        config[key] = value;
        config
    };
    for (key, value, word) in [
        ("use_dora", json!(true), "DoRA"),
        ("bias", json!("all"), "bias"),
        ("modules_to_save", json!(["lm_head"]), "modules_to_save"),
        ("peft_type", json!("LOHA"), "LOHA"),
        ("init_lora_weights", json!("pissa"), "pissa"),
        ("r", json!(8), "rank 3"),
        ("lora_alpha", json!("x"), "lora_alpha"),
        ("alpha_pattern", json!({".*q_proj": 3}), "alpha_pattern"),
    ] {
        refused(&plain(), &with(key, value), &[word]);
    }
    let renamed = |from: &str, to: &str| {
        let mut halves = plain();
        for half in &mut halves {
            half.name = half.name.replace(from, to);
        }
        halves
    };
    refused(
        &renamed("layers.1.", "layers.7."),
        &config(),
        &["model.layers.7.", "llama"],
    );
    refused(
        &renamed("mlp.up_proj", "mlp.c_fc"),
        &config(),
        &["mlp.c_fc"],
    );
    refused(
        &renamed(
            "model.layers.0.self_attn.q_proj.lora_A.weight",
            "model.embed_tokens.lora_embedding_A",
        ),
        &config(),
        &["lora_embedding_A", "embeddings"],
    );
    let table = |name: &str| {
        let mut halves = plain();
        let names = ["A", "B"].map(|half| format!("base_model.model.{name}.lora_{half}.weight"));
        let shapes = [[RANK, 72], [263, RANK]];
        for (name, shape) in names.into_iter().zip(shapes) {
            let data = numbers(shape[0] * shape[1], 1);
            halves.push(Half { name, shape, data });
        }
        halves
    };
    refused(
        &table("model.embed_tokens"),
        &config(),
        &["model.embed_tokens", "embeddings"],
    );
    refused(&table("lm_head"), &config(), &["lm_head"]);
    let mut short = plain();
    short.remove(1);
    refused(&short, &config(), &["lora_B"]);
    let mut wide = plain();
    wide[0] = Half {
        name: wide[0].name.clone(),
        shape: [RANK, 80],
        data: numbers(RANK * 80, 1),
    };
    refused(&wide, &config(), &["[3, 80]", "[rank, 72]"]);
    let mut endless = plain();
    endless[0].data[5] = f32::NAN;
    refused(&endless, &config(), &["finite"]);
    refused(&[], &config(), &["no LoRA tensors"]);

    let gguf = write_gguf(dir.path(), "other.gguf", &halves(7, true), "qwen2");
    let error = LoraAdapter::open(&gguf, &model).err().unwrap().to_string();
    assert!(
        error.contains("general.architecture") && error.contains("qwen2"),
        "{error}"
    );
    let error = LoraAdapter::open(&Golden::named("llama-llama3").gguf().unwrap(), &model);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("general.type"), "{error}");
    // An adapter of one model is not another's.
    let path = write_peft(dir.path(), "own", &plain(), &config());
    let own = AdapterSet::new([(adapter(&path, &model), 1.0)]);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf");
    let other = Arc::new(LoadedModel::open(&demo).unwrap());
    let mut engine = engine(&other, AdapterSet::default(), 512);
    let seq = engine.create().unwrap();
    let error = engine.set_adapters(seq, &own).unwrap_err().to_string();
    assert!(error.contains("adapters"), "{error}");
}
