//! A token's attention on the cores of its projections: compared with the host's, over rings, with sequences that go back
//! or take turns.

use crate::support::{apart, demo, noise, random};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_verify::ops::OpCheck;
use millrace_xdna2::lower::{Feature, Features, Mode};
use std::sync::Arc;

fn options() -> NpuOptions {
    NpuOptions {
        n_ctx: Some(600),
        prefill_tokens: Some(64),
        ..NpuOptions::default()
    }
}

fn load(model: &Arc<LoadedModel>, features: Features) -> Arc<NpuModel> {
    crate::support::load(model, features, options())
}

fn q4nx() -> Features {
    Features::of(Mode::Int4)
}

fn prompt(model: &LoadedModel, n: u32) -> Vec<u32> {
    let vocab = model.model().config.vocab_size as u32;
    noise(n, 7).into_iter().map(|t| t % vocab).collect()
}

/// Logits of some tokens after a prompt.
fn decoded(session: &mut NpuSession, tokens: std::ops::Range<u32>) -> Vec<Vec<f32>> {
    let logits = tokens.map(|token| session.decode(token).unwrap().to_vec());
    logits.collect()
}

#[test]
fn a_token_is_one_dispatch_and_what_the_host_computes() {
    for model in [
        demo(),
        random("gemma-tiny", None),
        random("qwen-tiny", None),
    ] {
        let [array, host] = [q4nx(), q4nx().without(Feature::ResidentAttention)].map(|features| {
            let mut session = NpuSession::new(&load(&model, features)).unwrap();
            session.prefill(&prompt(&model, 40)).unwrap();
            let logits = decoded(&mut session, 5..9);
            (logits, session.counters().decode.n_dispatches)
        });
        assert_eq!(array.1, 4, "{}", model.name());
        assert!(host.1 > array.1);
        for (array, host) in array.0.iter().zip(&host.0) {
            let apart = apart(array, host);
            assert!(apart < 0.05 && array != host, "{}: {apart}", model.name());
        }
    }
}

/// Gemma's local layers see 32 positions; the device has 160 rows of them, and the twelve decoded tokens cross that end. Every op is
/// within its tolerance while the ring goes round, when the sequence goes back, and with another sequence in between.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn a_ring_goes_round_and_back() {
    let model = random("gemma-tiny", None);
    let npu = load(&model, q4nx());
    let tokens = prompt(&model, 155);
    let mut session = NpuSession::new(&npu).unwrap();
    let (check, observer) = OpCheck::new(&npu);
    session.observe(Some(observer));
    session.prefill(&tokens).unwrap();
    let first = decoded(&mut session, 3..15);
    session.truncate(162).unwrap();
    assert!(decoded(&mut session, 10..15) == first[7..]);
    let mut other = NpuSession::new(&npu).unwrap();
    other.prefill(&tokens[..20]).unwrap();
    decoded(&mut other, 3..5);
    let after = decoded(&mut session, 40..42);
    let summary = check.summary().unwrap();
    assert!(summary.finding.is_none(), "{:?}", summary.finding);
    assert!(summary.n_ops > 100);
    // Undisturbed.
    let mut alone = NpuSession::new(&npu).unwrap();
    alone.prefill(&tokens).unwrap();
    assert!(decoded(&mut alone, 3..15) == first);
    assert!(decoded(&mut alone, 40..42) == after);
    // The host attends to the same keys.
    let host = load(&model, q4nx().without(Feature::ResidentAttention));
    let mut session = NpuSession::new(&host).unwrap();
    session.prefill(&tokens).unwrap();
    for (array, host) in first.iter().zip(decoded(&mut session, 3..15)) {
        let apart = apart(array, &host);
        assert!(apart < 0.05, "{apart}");
    }
}
