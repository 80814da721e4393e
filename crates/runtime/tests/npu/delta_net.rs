//! Gated delta nets of tokens on the array: the states are those of the host's pages, so forks, cuts and page ends see no difference.

use crate::support::{apart, append, load, padded_to, random};
use millrace_plan::{Binding, NodePlace};
use millrace_runtime::npu::{NpuModel, NpuOptions, PlannedEngine};
use millrace_runtime::{CpuEngine, Engine, EngineOptions, KvType, LoadedModel, SeqId};
use millrace_xdna2::lower::{Feature, Features, Mode};
use std::sync::Arc;

/// Tokens of a page.
const PAGE: usize = 64;

fn npu(model: &Arc<LoadedModel>, features: Features) -> Arc<NpuModel> {
    let options = NpuOptions {
        n_ctx: Some(256),
        max_sequences: 3,
        ..padded_to(64)
    };
    load(model, features, options)
}

fn features() -> Features {
    Features::of(Mode::Fast).with(Feature::DeltaNets)
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 29 % 509) as u32).collect()
}

/// Logits after each of these tokens, one by one.
fn one_by_one(engine: &mut PlannedEngine, seq: SeqId, tokens: &[u32]) -> Vec<Vec<f32>> {
    let rows = tokens.iter().map(|token| append(engine, seq, &[*token]));
    rows.collect()
}

#[test]
fn a_token_on_the_array_is_the_hosts_across_a_pages_end() {
    let model = random("qwen35-tiny", None);
    let text = tokens(PAGE + 8);
    let start = PAGE - 4;
    let run = |features: Features| {
        let npu = npu(&model, features);
        let mut engine = PlannedEngine::new(&npu).unwrap();
        let seq = engine.create().unwrap();
        append(&mut engine, seq, &text[..start]);
        let plan = npu.plan(0, &npu.sequences().decode(0)).unwrap();
        let calls = plan.calls().filter(|call| {
            let takes = |b: &Binding| matches!(b, Binding::StateBefore { .. });
            call.bindings.iter().any(takes)
        });
        let n_calls = calls.count();
        let labels = plan.placement.iter().filter(|p| {
            let label = model.model().graph.nodes[p.node].label;
            label == "delta_net" && p.place != NodePlace::Host
        });
        assert_eq!(labels.count(), n_calls);
        (n_calls, one_by_one(&mut engine, seq, &text[start..]))
    };
    let (n_calls, found) = run(features());
    let (none, host) = run(features().without(Feature::DeltaNets));
    assert!(n_calls >= 3 && none == 0, "{n_calls} {none}");
    let options = EngineOptions {
        kv_type: KvType::BF16,
        n_ctx: Some(256),
        ..EngineOptions::default()
    };
    let mut cpu = CpuEngine::new(model.clone(), options).unwrap();
    let seq = cpu.create().unwrap();
    append(&mut cpu, seq, &text[..start]);
    for (i, (found, host)) in found.iter().zip(&host).enumerate() {
        let exact = append(&mut cpu, seq, &[text[start + i]]);
        let (beside, by_cpu) = (apart(found, host), apart(found, &exact));
        let of_host = apart(host, &exact);
        assert!(beside < 0.02, "token {i}: {beside} beside the host's");
        assert!(
            by_cpu < 2.0 * of_host + 0.01,
            "token {i}: {by_cpu}, {of_host}"
        );
    }
}

#[test]
fn forks_cuts_and_company_change_no_bit() {
    let model = random("qwen35-tiny", None);
    let npu = npu(&model, features());
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let text = tokens(PAGE + 16);
    let start = PAGE - 4;
    let alone = engine.create().unwrap();
    append(&mut engine, alone, &text[..start]);
    let expected = one_by_one(&mut engine, alone, &text[start..]);
    // A cut to a page's end goes on from the state that stayed in that page's slot.
    engine.truncate(alone, PAGE).unwrap();
    let again = one_by_one(&mut engine, alone, &text[PAGE..]);
    assert!(again == expected[PAGE - start..]);
    engine.release(alone).unwrap();
    // In the slots of a released sequence, taking turns with another and forked within a page and at its end.
    let (seq, other) = (engine.create().unwrap(), engine.create().unwrap());
    append(&mut engine, seq, &text[..start]);
    append(&mut engine, other, &text[7..30]);
    let mut fork = None;
    for (i, token) in text[start..].iter().enumerate() {
        if [2, PAGE - start, PAGE - start + 5].contains(&i) {
            if let Some(gone) = fork.take() {
                engine.release(gone).unwrap();
            }
            fork = Some(engine.fork(seq).unwrap());
        }
        assert!(
            append(&mut engine, seq, &[*token]) == expected[i],
            "token {i}"
        );
        append(&mut engine, other, &[*token + 1]);
        if let Some(fork) = fork {
            assert!(
                append(&mut engine, fork, &[*token]) == expected[i],
                "fork, {i}"
            );
        }
    }
    // Each sequence sees only its own tokens.
    let fork = fork.unwrap();
    let written = append(&mut engine, fork, &[500]);
    assert!(written != append(&mut engine, seq, &[501]));
    assert!(append(&mut engine, fork, &[3]) != append(&mut engine, seq, &[3]));
}

/// Behind a cut within a page the host computes the page's tokens again.
#[test]
fn a_cut_within_a_page_is_replayed() {
    let model = random("qwen35-tiny", None);
    let npu = npu(&model, features());
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let text = tokens(40);
    let seq = engine.create().unwrap();
    append(&mut engine, seq, &text[..20]);
    let expected = one_by_one(&mut engine, seq, &text[20..]);
    engine.truncate(seq, 30).unwrap();
    let found = one_by_one(&mut engine, seq, &text[30..]);
    for (found, expected) in found.iter().zip(&expected[10..]) {
        let off = apart(found, expected);
        assert!(off < 0.03, "{off}");
    }
}
