//! An op from outside, with a state, in a plan: the host computes it between the device's programs.

use crate::support::{append, load, padded_to};
use millrace_plan::{NodePlace, PassKind};
use millrace_runtime::npu::{NpuOptions, PlannedEngine};
use millrace_runtime::{CpuEngine, Engine, EngineOptions, KvType, LoadedModel};
use millrace_testkit::Golden;
use millrace_testkit::ops::add_leaky_sums;
use millrace_xdna2::lower::Features;
use std::sync::Arc;

fn model(has_states: bool) -> Arc<LoadedModel> {
    let model = LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap();
    let model = model.with_graph(|graph| {
        if has_states {
            add_leaky_sums(graph, "attn_residual");
        }
    });
    Arc::new(model.unwrap())
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 29 % 97) as u32).collect()
}

fn on_cpu(model: &Arc<LoadedModel>, tokens: &[u32]) -> Vec<f32> {
    let options = EngineOptions {
        kv_type: KvType::BF16,
        n_ctx: Some(256),
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(model.clone(), options).unwrap();
    let seq = engine.create().unwrap();
    append(&mut engine, seq, tokens)
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
    let apart = squares(&mut a.iter().zip(b).map(|(a, b)| a - b));
    apart / squares(&mut b.iter().copied())
}

#[test]
fn a_plan_leaves_it_to_the_host_and_computes_what_the_cpu_does() {
    let model = model(true);
    let options = NpuOptions {
        n_ctx: Some(256),
        ..padded_to(64)
    };
    let npu = load(&model, Features::NONE, options);
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let seq = engine.create().unwrap();
    let text = tokens(90);
    // Two prompts' passes, the second padded, then tokens one by one.
    append(&mut engine, seq, &text[..64]);
    append(&mut engine, seq, &text[64..85]);
    let mut found = Vec::new();
    for token in &text[85..] {
        found = append(&mut engine, seq, &[*token]);
    }
    let expected = on_cpu(&model, &text);
    let apart = distance(&found, &expected);
    assert!(apart < 0.05, "{apart}");
    let without = distance(&on_cpu(&self::model(false), &text), &expected);
    assert!(without > 4.0 * apart, "{without} beside {apart}");
    // Cut within a page: the tokens after the page's beginning are computed again.
    engine.truncate(seq, 80).unwrap();
    let found = append(&mut engine, seq, &text[80..]);
    let again = distance(&found, &expected);
    assert!(again < 0.05, "{again}");
    let number = |label: &str| {
        let nodes = &model.model().graph.nodes;
        nodes.iter().position(|node| node.label == label).unwrap()
    };
    let plan = npu.plan(0, &PassKind::prefill(64)).unwrap();
    let leaky = number("leaky_sum");
    let placed = plan.placement.iter().find(|p| p.node == leaky).unwrap();
    assert!(matches!(placed.place, NodePlace::Host));
    assert!(placed.reason.contains("leaky_sum"), "{}", placed.reason);
}
