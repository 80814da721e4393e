//! Adapters on weights of every format: their results equal those of the merged model, and a row has the same bits whatever shares its
//! batch.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use millrace_model::adapter::Adapter;
use millrace_model::convert::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::{AdapterSet, BatchItem, Engine, LoadedModel, LogitsFor, LoraAdapter};
use millrace_testkit::sample;

use super::fixture::*;
use super::merged::convert;

/// Allowed distance of an adapter from the merged model, as a multiple of the base's distance from its own F32 results. Levels that
/// multiply whole numbers round activations, and the adapter's change passes through that in later products.
const TIMES_THE_BASE: f32 = 3.0;

/// One recipe for each way of multiplying; `MILLRACE_TEST_ALL=1` runs all.
const SAMPLE: [&str; 5] = ["BF16", "Q4_0", "Q4_K_M", "MXFP4", "Q4NX"];

/// One layer whose rows are whole blocks of every format.
fn model(recipe: Recipe, dir: &Path) -> Arc<LoadedModel> {
    let name = if recipe.is_q4nx() {
        "bundle"
    } else {
        "model.gguf"
    };
    let options = SynthOptions {
        recipe,
        vocab: None,
        vision: false,
        n_layers: Some(1),
        seed: 1,
        n_threads: Some(2),
    };
    let geometry = ModelGeometry::named("qwen3-0.6b")
        .unwrap()
        .with_vocab_size(288);
    let path = dir.join(name);
    synth::write(geometry, &path, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    Arc::new(LoadedModel::open(&path).unwrap())
}

/// Halves for every matrix of the layer.
fn halves_of(seed: u64) -> Vec<Half> {
    let shapes = [
        ("attn_q", 2048, 1024),
        ("attn_k", 1024, 1024),
        ("attn_v", 1024, 1024),
        ("attn_output", 1024, 2048),
        ("ffn_gate", 3072, 1024),
        ("ffn_up", 3072, 1024),
        ("ffn_down", 1024, 3072),
    ];
    let halves = shapes
        .into_iter()
        .enumerate()
        .flat_map(|(i, (matrix, n, k))| {
            [("a", [RANK, k]), ("b", [n, RANK])].map(|(half, shape)| Half {
                name: format!("blk.0.{matrix}.weight.lora_{half}"),
                shape,
                data: numbers(
                    shape[0] * shape[1],
                    seed + 2 * i as u64 + u64::from(half == "b"),
                ),
            })
        });
    halves.collect()
}

/// Compares the logits of a text for several sets of adapters in one pass with the logits of each alone.
fn assert_batched(name: &str, model: &Arc<LoadedModel>, sets: &[AdapterSet]) {
    let text = tokens(9);
    let mut engine = engine(model, AdapterSet::default(), 512);
    let seqs: Vec<_> = sets.iter().map(|_| engine.create().unwrap()).collect();
    for (seq, set) in seqs.iter().zip(sets) {
        engine.set_adapters(*seq, set).unwrap();
    }
    let item = |seq| BatchItem::new(seq, &text, LogitsFor::All);
    let items: Vec<BatchItem<'_>> = seqs.iter().map(|seq| item(*seq)).collect();
    let together = engine.compute(&items).unwrap();
    let together: Vec<Vec<f32>> = (0..sets.len())
        .map(|i| together.logits(i).to_vec())
        .collect();
    for (set, together) in sets.iter().zip(&together) {
        let seq = engine.create().unwrap();
        engine.set_adapters(seq, set).unwrap();
        let alone = engine.compute(&[item(seq)]).unwrap().logits(0).to_vec();
        assert!(
            alone == *together,
            "{name}: {set:?} has other bits in a batch"
        );
        engine.release(seq).unwrap();
    }
    assert!(
        together[0] != together[1] && together[1] != together[2],
        "{name}"
    );
}

#[test]
fn adapters_compute_beside_every_format_what_merged_models_do() {
    let dir = tempfile::tempdir().unwrap();
    let files = [10, 30].map(|seed| {
        write_gguf(
            dir.path(),
            &format!("{seed}.gguf"),
            &halves_of(seed),
            "qwen3",
        )
    });
    let mut n_formats = 0;
    for recipe in Recipe::all() {
        let name = recipe.name();
        if !sample::is_whole() && !SAMPLE.contains(&name) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let model = model(recipe, dir.path());
        let [first, second] = files
            .each_ref()
            .map(|file| Adapter::open(file, model.model(), model.checkpoint()).unwrap());
        let to_merge = [(first.clone(), 1.0), (second.clone(), -0.5)];
        let [first, second] =
            [first, second].map(|adapter| Arc::new(LoraAdapter::new(adapter, &model)));
        let one = AdapterSet::new([(Arc::clone(&first), 1.0)]);
        let both = AdapterSet::new([(first, 1.0), (second, -0.5)]);
        let merged = |adapters: &[(Adapter, f32)], file: &str| {
            let path = dir.path().join(file);
            convert(model.checkpoint(), adapters, "F32", &path).unwrap();
            let found = logits(
                &Arc::new(LoadedModel::open(&path).unwrap()),
                AdapterSet::default(),
            );
            std::fs::remove_file(&path).unwrap();
            found
        };
        let (base, found) = (
            logits(&model, AdapterSet::default()),
            logits(&model, both.clone()),
        );
        assert!(distance(&found, &base) > FAR, "{name}: nothing changes");
        let of_base = distance(&base, &merged(&[], "base.gguf"));
        let of_both = distance(&found, &merged(&to_merge, "merged.gguf"));
        println!(
            "{name}: {of_both:.1e} from the merged model, its base {of_base:.1e} from its numbers"
        );
        assert!(
            of_both < TIMES_THE_BASE * of_base + NEAR,
            "{name}: {of_both} beside {of_base}"
        );
        assert_batched(name, &model, &[AdapterSet::default(), one, both]);
        n_formats += 1;
    }
    let least = if sample::is_whole() { 25 } else { SAMPLE.len() };
    assert!(n_formats >= least, "{n_formats} formats");
}
