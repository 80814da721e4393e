//! A family: its fixture is read, and gives what transformers gives, at every level of the CPU and on every target.

use millrace_graph::Op;
use millrace_kernels::Level;
use millrace_plan::{Settings, Target};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, LoadedModel, LogitsFor,
};
use millrace_testkit::Golden;
use millrace_testkit::compare::assert_logits_close;
use millrace_testkit::golden::GoldenMatrix;
use millrace_verify::ops::OpCheck;
use std::sync::Arc;

/// The least cosine between a device's logits, in 8 bits at worst, and those of transformers.
const MIN_COSINE: f64 = 0.98;

/// The fixture's model.
pub fn open(name: &str) -> LoadedModel {
    let golden = Golden::named(name);
    let model = LoadedModel::open(golden.hf()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!model.model().graph.nodes.is_empty());
    model
}

/// The logits of a prompt at a level, `[n_tokens, vocab]`.
pub fn logits(model: &Arc<LoadedModel>, level: Level, tokens: &[u32]) -> GoldenMatrix {
    let options = EngineOptions {
        level: Some(level),
        kv_type: KvType::F32,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(Arc::clone(model), options).expect("an engine");
    let sequence = engine.create().expect("room");
    let item = BatchItem::new(sequence, tokens, LogitsFor::All);
    let output = engine.compute(&[item]).expect("logits");
    GoldenMatrix {
        width: model.model().config.vocab_size,
        data: output.logits(0).to_vec(),
    }
}

/// Logits behind a prompt on a target, beside those that are expected; every op of the device by itself.
pub fn on_target(model: &Arc<LoadedModel>, target: &dyn Target, name: &str) {
    let expected = Golden::named(name).expected();
    let name = format!("{name} on {}", target.name());
    let planner = target.planner(&Settings::default()).expect("defaults");
    let options = NpuOptions {
        n_ctx: Some(128),
        n_threads: Some(2),
        ..NpuOptions::default()
    };
    let npu = NpuModel::load(Arc::clone(model), planner, options);
    let npu = Arc::new(npu.unwrap_or_else(|error| panic!("{name}: {error}")));
    let mut session = NpuSession::new(&npu).expect("a session");
    let (check, observer) = OpCheck::new(&npu);
    session.observe(Some(observer));
    let found = session.prefill(&expected.tokens).expect("logits").to_vec();
    session.decode(7).expect("logits");
    let expected = expected.logits.row(expected.tokens.len() - 1);
    let cosine = cosine(&found, expected);
    assert!(cosine > MIN_COSINE, "{name}: cosine {cosine}");
    let summary = check.summary().expect("a summary");
    assert!(summary.finding.is_none(), "{name}: {:?}", summary.finding);
    assert!(
        summary.unchecked.is_empty(),
        "{name}: {:?}",
        summary.unchecked
    );
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A family is whole.
pub fn check(name: &str) {
    let expected = Golden::named(name).expected();
    let model = Arc::new(open(name));
    assert_eq!(model.model().config.family, name);
    let is_choice = |op: &Op| matches!(op, Op::Route(_));
    let has_experts = model
        .model()
        .graph
        .nodes
        .iter()
        .any(|node| is_choice(&node.op));
    assert_eq!(has_experts, name == "dummy_experts");
    for level in Level::supported() {
        let found = logits(&model, level, &expected.tokens);
        assert_logits_close(&found, &expected.logits, &format!("{name} at {level}"));
    }
    for target in millrace_targets::ALL {
        on_target(&model, *target, name);
    }
}
