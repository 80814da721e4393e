//! Mixtures of experts on devices: at several CPU levels of the host, which computes the experts, and the costs that
//! predictions charge for them.

use crate::goldens::{N_THREADS, problem, wrong_op};
use millrace_graph::Op;
use millrace_plan::predict::HostWork;
use millrace_plan::{Chunk, HostStep, PassKind, Settings, Target};
use millrace_rk3588::target::Rk3588Target;
use millrace_runtime::npu::{NpuModel, NpuOptions};
use millrace_runtime::{Level, LoadedModel};
use millrace_tcp::target::TcpTarget;
use millrace_testkit::golden::Golden;
use millrace_testkit::sample;
use millrace_xdna2::target::Xdna2Target;
use std::sync::Arc;

/// The lowest level, the highest, and one between.
fn levels() -> Vec<Level> {
    let all = Level::supported();
    let mut some = vec![all[0], all[all.len() / 2], all[all.len() - 1]];
    some.dedup();
    some
}

/// Softmax over all and over the chosen, sigmoid in groups with a shared expert and a latent: three ways to choose. Every op is checked
/// at every level. Probabilities are judged at one level for each model and device, in turn: they follow from the ops, and a level's own
/// sums do not depend on the device.
#[test]
fn mixtures_pass_at_every_level_on_every_device() {
    let levels = levels();
    for (i, name) in ["qwen3moe", "gpt-oss", "deepseek-v3"]
        .into_iter()
        .enumerate()
    {
        let model = Arc::new(LoadedModel::open(Golden::named(name).hf()).unwrap());
        let targets = [&Xdna2Target as &dyn Target, &Rk3588Target, &TcpTarget];
        for (j, target) in targets.into_iter().enumerate() {
            for (k, &level) in levels.iter().enumerate() {
                let options = NpuOptions {
                    n_ctx: Some(128),
                    n_threads: Some(N_THREADS),
                    prefill_tokens: Some(64),
                    level: Some(level),
                    ..NpuOptions::default()
                };
                let planner = target.planner(&Settings::default()).unwrap();
                let npu = NpuModel::load(model.clone(), planner, options).unwrap();
                let tolerated = match target.name() {
                    "rk3588" => &["95th percentile of KL", "choices beyond the first five"][..],
                    _ => &[],
                };
                let found = match sample::takes(k, levels.len(), i + j) {
                    true => problem(&model, npu, tolerated),
                    false => wrong_op(&model, &Arc::new(npu)),
                };
                assert_eq!(found, None, "{name} on {} at {level}", target.name());
            }
        }
    }
}

/// A prompt reads an expert once however many of its tokens choose it, not once for each.
#[test]
fn a_prompt_is_charged_for_distinct_experts() {
    let model = LoadedModel::open(Golden::named("qwen3moe").hf()).unwrap();
    let graph = &model.model().graph;
    let planner = Xdna2Target.planner(&Settings::default()).unwrap();
    let mut n_checked = 0;
    for (kind, n_tokens) in [(PassKind::prefill(64), 64u64), (PassKind::decode(), 1)] {
        let plan = planner.lower(graph, &kind).unwrap();
        let chunk = Chunk {
            first: 0,
            n_tokens,
            n_padded: n_tokens,
        };
        let work = HostWork {
            graph,
            plan: &plan,
            chunk,
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            let Op::ExpertLinear(op) = &node.op else {
                continue;
            };
            let weight = &graph.weights[op.weight.0];
            let all = (2 * weight.n_experts * weight.n * weight.k) as f64;
            let share = op.n_used as f64 / weight.n_experts as f64;
            let distinct = 1.0 - (1.0 - share).powf(n_tokens as f64);
            let values = node.inputs.iter().chain([&node.output]);
            let widths: usize = values.map(|value| graph.values[value.0].width).sum();
            let rows = plan.n_rows(node.output) * 2 * widths as u64;
            let found = work.bytes(HostStep::Op { node: index }) - rows;
            let expected = all * distinct;
            let error = (found as f64 - expected).abs();
            assert!(error <= 1.0, "{n_tokens} tokens: {found}, not {expected}");
            assert!(found as f64 <= all + 1.0);
            n_checked += 1;
        }
    }
    assert_eq!(n_checked, 2 * 3 * model.model().config.n_layers);
}
