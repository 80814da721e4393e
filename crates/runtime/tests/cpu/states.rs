//! A user-defined op with a state: the engine computes its definition, however a text is cut.

use std::sync::Arc;

use millrace_graph::{Sequence, Weight, WeightId, WeightValues};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, LoadedModel, LogitsFor,
};
use millrace_testkit::golden::Golden;
use millrace_testkit::ops::add_leaky_sums;

fn model() -> Arc<LoadedModel> {
    let model = LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap();
    let model = model.with_graph(|graph| add_leaky_sums(graph, "attn_residual"));
    Arc::new(model.unwrap())
}

fn engine(max_chunk: usize) -> CpuEngine {
    let options = EngineOptions {
        n_ctx: Some(400),
        max_chunk,
        max_sequences: 3,
        kv_type: KvType::F32,
        ..EngineOptions::default()
    };
    CpuEngine::new(model(), options).unwrap()
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 37 % 101) as u32).collect()
}

struct Numbers(Vec<(usize, Vec<f64>)>);

impl WeightValues<f64> for Numbers {
    fn row(&self, id: WeightId, row: usize, out: &mut [f64]) {
        let (k, values) = &self.0[id.0];
        out.copy_from_slice(&values[row * k..][..*k]);
    }

    fn vector(&self, id: WeightId) -> &[f64] {
        &self.0[id.0].1
    }
}

/// Logits of every token by the graph's definition, in f64.
fn defined(model: &LoadedModel, tokens: &[u32]) -> Vec<f64> {
    let graph = &model.model().graph;
    let load = |weight: &Weight| {
        let bytes = model.checkpoint().tensor(&weight.name).unwrap().bytes;
        let mut out = vec![0.0; weight.n * weight.k];
        millrace_quant::decode_blocks(weight.dtype, bytes, &mut out).unwrap();
        (weight.k, out.into_iter().map(f64::from).collect())
    };
    let numbers = Numbers(graph.weights.iter().map(load).collect());
    let sequence = Sequence::exact(graph, &numbers, tokens);
    sequence.values().swap_remove(graph.logits.unwrap().0)
}

#[test]
fn the_engine_computes_the_definition() {
    let mut engine = engine(512);
    let tokens = tokens(150);
    let seq = engine.create().unwrap();
    let output = engine.compute(&[BatchItem::new(seq, &tokens, LogitsFor::All)]);
    let output = output.unwrap();
    let expected = defined(engine.model(), &tokens);
    let worst = output.logits(0).iter().zip(&expected);
    let worst = worst
        .map(|(a, b)| (f64::from(*a) - b).abs())
        .fold(0.0, f64::max);
    assert!(worst < 2e-3, "{worst}");
    // The state matters: without it the logits differ.
    let plain = LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap();
    let without = defined(&plain, &tokens);
    let moved = expected.iter().zip(&without).map(|(a, b)| (a - b).abs());
    assert!(moved.fold(0.0, f64::max) > 0.1);
}

#[test]
fn chunks_cuts_and_forks_change_no_bit() {
    let tokens = tokens(200);
    let mut whole = engine(512);
    let seq = whole.create().unwrap();
    let expected = whole.compute(&[BatchItem::new(seq, &tokens, LogitsFor::All)]);
    let expected = expected.unwrap().logits(0).to_vec();
    let vocab = expected.len() / tokens.len();
    for max_chunk in [1, 7, 64, 100] {
        let mut engine = engine(max_chunk);
        let seq = engine.create().unwrap();
        let found = engine.compute(&[BatchItem::new(seq, &tokens, LogitsFor::All)]);
        assert!(
            found.unwrap().logits(0) == expected,
            "chunks of {max_chunk}"
        );
        // Another end, given up again, within a page and at one's end.
        for len in [190, 192, 150] {
            engine.truncate(seq, len).unwrap();
            let fork = engine.fork(seq).unwrap();
            engine
                .compute(&[BatchItem::last(fork, &[5, 6, 7])])
                .unwrap();
            engine.release(fork).unwrap();
            let item = BatchItem::new(seq, &tokens[len..], LogitsFor::All);
            let found = engine.compute(&[item]).unwrap();
            assert!(
                found.logits(0) == &expected[len * vocab..],
                "{max_chunk}, {len}"
            );
        }
    }
}

/// Families with states of every kind: gated delta nets, short convolutions, selective scans.
const WITH_STATES: [&str; 12] = [
    "bamba",
    "falcon_h1",
    "falcon_mamba",
    "granitehybrid",
    "jamba",
    "lfm2",
    "lfm2moe",
    "mamba",
    "mamba2",
    "nemotron_h",
    "qwen35",
    "qwen3next",
];

/// Within a page, at its end and after a cut, both sides of a fork go on as if they were alone.
#[test]
fn forks_of_every_family_go_their_own_way() {
    for name in WITH_STATES {
        let model = Arc::new(LoadedModel::open(Golden::named(name).hf()).unwrap());
        assert!(
            CpuEngine::memory(&model, &EngineOptions::default())
                .unwrap()
                .n_state_slots
                > 0
        );
        let options = EngineOptions {
            n_ctx: Some(256),
            max_sequences: 3,
            ..EngineOptions::default()
        };
        let new = || CpuEngine::new(Arc::clone(&model), options.clone()).unwrap();
        let all = tokens(170);
        let other: Vec<u32> = all.iter().map(|token| (token * 3 + 1) % 101).collect();
        let rows = |engine: &mut CpuEngine, seq, tokens: &[u32]| {
            let item = BatchItem::new(seq, tokens, LogitsFor::All);
            engine.compute(&[item]).unwrap().logits(0).to_vec()
        };
        let mut plain = new();
        for at in [70, 128, 131] {
            let alone = |plain: &mut CpuEngine, behind: &[u32]| {
                let seq = plain.create().unwrap();
                let whole = [&all[..at], behind].concat();
                let found = rows(plain, seq, &whole);
                plain.release(seq).unwrap();
                found[at * (found.len() / whole.len())..].to_vec()
            };
            let mut engine = new();
            let seq = engine.create().unwrap();
            rows(&mut engine, seq, &all[..at + 5]);
            engine.truncate(seq, at).unwrap();
            let fork = engine.fork(seq).unwrap();
            let second = engine.fork(fork).unwrap();
            // Both in one step, then one after the other.
            let items = [(seq, &all[at..at + 30]), (fork, &other[at..at + 30])];
            let items = items.map(|(seq, tokens)| BatchItem::new(seq, tokens, LogitsFor::All));
            let output = engine.compute(&items).unwrap();
            let first = alone(&mut plain, &all[at..at + 30]);
            assert!(output.logits(0) == first, "{name} at {at}");
            let expected = alone(&mut plain, &other[at..at + 30]);
            assert!(output.logits(1) == expected, "{name} at {at}, the fork");
            let found = rows(&mut engine, second, &all[at..at + 30]);
            assert!(found == first, "{name} at {at}, the fork's fork");
        }
    }
}

#[test]
fn states_are_in_the_count_of_memory() {
    let plain = LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap();
    let options = EngineOptions {
        n_ctx: Some(400),
        ..EngineOptions::default()
    };
    let [with, without] =
        [&*model(), &plain].map(|m| CpuEngine::memory(m, &options).unwrap().kv_bytes);
    let config = &plain.model().config;
    let slot_bytes = config.n_layers * config.d_model * 4;
    assert!(with > without && (with - without).is_multiple_of(slot_bytes));
    let mut engine = CpuEngine::new(model(), options.clone()).unwrap();
    assert_eq!(engine.kv_usage().capacity_bytes, with);
    let seq = engine.create().unwrap();
    engine.compute(&[BatchItem::last(seq, &[1])]).unwrap();
    assert!(engine.kv_usage().used_bytes > slot_bytes);
}

/// Rejected drafts cost a recomputation of the drawn ones, in the pass of the next step, and nothing else.
#[test]
fn what_is_computed_again_after_a_rejection_is_what_was_accepted() {
    for name in ["qwen35", "lfm2", "qwen3next"] {
        let model = Arc::new(LoadedModel::open(Golden::named(name).hf()).unwrap());
        let new = || {
            let options = EngineOptions {
                n_ctx: Some(400),
                max_sequences: 2,
                ..EngineOptions::default()
            };
            CpuEngine::new(Arc::clone(&model), options).unwrap()
        };
        let (mut engine, mut plain) = (new(), new());
        let all = tokens(200);
        let whole = {
            let seq = plain.create().unwrap();
            let item = BatchItem::new(seq, &all, LogitsFor::All);
            plain.compute(&[item]).unwrap().logits(0).to_vec()
        };
        let width = whole.len() / all.len();
        let row = |i: usize| &whole[i * width..(i + 1) * width];
        let seq = engine.create().unwrap();
        engine
            .compute(&[BatchItem::last(seq, &all[..100])])
            .unwrap();
        let mut len = 100;
        // Within a page, all rejected, over a page's end, none rejected, and back to the beginning of the page.
        for (n_right, n_wrong) in [
            (2, 3),
            (1, 4),
            (3, 0),
            (4, 2),
            (17, 5),
            (2, 2),
            (1, 3),
            (9, 40),
            (3, 7),
        ] {
            let wrong = vec![7; n_wrong];
            let step = [&all[len..len + n_right], &wrong].concat();
            let before = engine.counters();
            let output = engine
                .compute(&[BatchItem::new(seq, &step, LogitsFor::All)])
                .unwrap();
            let after = engine.counters();
            for i in 0..n_right {
                let found = &output.logits(0)[i * width..(i + 1) * width];
                assert!(found == row(len + i), "{name} at {}", len + i);
            }
            assert_eq!(after.n_passes - before.n_passes, 1, "{name} at {len}");
            let n_again = after.n_tokens - before.n_tokens - step.len() as u64;
            // At most the tokens drawn in the previous step; over a page's end, from that end.
            assert!(n_again <= 17, "{name} at {len}: {n_again}");
            len += n_right;
            engine.truncate(seq, len).unwrap();
        }
        let before = engine.counters().n_tokens;
        let output = engine
            .compute(&[BatchItem::last(seq, &all[len..len + 1])])
            .unwrap();
        assert!(output.logits(0) == row(len), "{name} at the end");
        assert_eq!(engine.counters().n_tokens - before, 1 + 3, "{name}");
    }
}
