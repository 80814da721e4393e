//! An op from outside, with a state: the engine computes what its definition says, however a text is cut.

use std::sync::Arc;

use millrace_graph::{Sequence, Weight, WeightId, WeightValues, exact};
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
    let sequence = Sequence {
        graph,
        weights: &Numbers(graph.weights.iter().map(load).collect()),
        tokens,
        round: exact,
    };
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
    // The state matters: without it the logits are others.
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
