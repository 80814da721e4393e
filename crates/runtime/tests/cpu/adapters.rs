//! LoRA adapters: compared with the model that they are merged into, from either kind of file, on either layout, several in a batch.

mod fixture;
mod formats;
mod merged;

use std::path::Path;
use std::sync::Arc;

use millrace_format::Checkpoint;
use millrace_runtime::disk::PageFolder;
use millrace_runtime::{AdapterSet, BatchItem, Engine, LoadedModel, LogitsFor, LoraAdapter};
use millrace_testkit::golden::Golden;
use serde_json::{Value, json};

use crate::scales::with_scales;
use fixture::*;

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

/// The factor multiplies the adapter's contribution, too: the adapter's own factor makes up for that.
#[test]
fn an_adapter_adds_the_same_beside_a_weight_with_a_scale() {
    let plain = Golden::named("llama-llama3").gguf().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let scaled = dir.path().join("scaled.gguf");
    with_scales(&plain, &scaled);
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/adapters");
    let [expected, found] = [&plain, &scaled].map(|path| {
        let model = Arc::new(LoadedModel::open(path).unwrap());
        let own = adapter(&adapters.join("llama-all"), &model);
        logits(&model, AdapterSet::new([(own, 1.0)]))
    });
    assert_eq!(expected, found);
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
    // For some modules.
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
        // All but the last token, then the last token of each: rows without logits are dropped within the last layer.
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
        // A fork has the same adapters, and changing them gives up the tokens held.
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
    let demo =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let other = Arc::new(LoadedModel::open(&demo).unwrap());
    let mut engine = engine(&other, AdapterSet::default(), 512);
    let seq = engine.create().unwrap();
    let error = engine.set_adapters(seq, &own).unwrap_err().to_string();
    assert!(error.contains("adapters"), "{error}");
}
