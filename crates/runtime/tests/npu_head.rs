//! The head over every row of a prompt, as the published stack first had it, beside the single row.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{
    Feature, Features, Mode, NpuModel, NpuOptions, NpuSession, OpCheck, Wrong,
};
use millrace_xdna2::{Machine, Profile};
use std::path::Path;
use std::sync::Arc;

fn demo() -> Arc<LoadedModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf");
    Arc::new(LoadedModel::open(&path).unwrap())
}

fn load(model: &Arc<LoadedModel>, features: Features) -> Arc<NpuModel> {
    let options = NpuOptions {
        features,
        prefill_tokens: Some(64),
        ..NpuOptions::default()
    };
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    Arc::new(NpuModel::load(model.clone(), Machine::npu2(), profile, options).unwrap())
}

fn noise(n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 41 + 3) % 2048).collect()
}

/// Logits of a prompt and of a token after it, every op checked on the way.
fn logits(npu: &Arc<NpuModel>, prompt: &[u32]) -> [Vec<f32>; 2] {
    let mut session = NpuSession::new(npu);
    let (check, observer) = OpCheck::new(npu);
    session.observe(Some(observer));
    let first = session.prefill(prompt).unwrap().to_vec();
    let second = session.decode(55).unwrap().to_vec();
    let summary = check.summary().unwrap();
    let wrong = summary.finding.as_ref().map(|f| &f.what);
    let name = |what: &Wrong| format!("{what:?}");
    assert_eq!(wrong.map(name), None);
    assert!(summary.unchecked.is_empty(), "{summary:?}");
    assert!(summary.worst.contains_key("lm_head"), "{summary:?}");
    [first, second]
}

/// Both round the same sums to bf16, in another order, and the norm before them elsewhere. Prompts end
/// within, at the end of and beyond a chunk of 64.
#[test]
fn all_rows_through_the_head_give_the_row_that_is_wanted() {
    let model = demo();
    for mode in [Mode::Best, Mode::Reference] {
        let one = load(&model, Features::of(mode));
        let all = load(&model, Features::of(mode).without(Feature::SingleRowHead));
        for n in [1, 6, 64, 65] {
            let [single, rows] = [&one, &all].map(|npu| logits(npu, &noise(n)));
            for (single, rows) in single.iter().zip(&rows) {
                let largest = single.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                let apart = single.iter().zip(rows).map(|(a, b)| (a - b).abs());
                let apart = apart.fold(0.0_f32, f32::max);
                assert!(apart < 0.02 * largest, "{mode:?} {n}: {apart} of {largest}");
            }
            assert_eq!(single[1], rows[1], "a token has the same head in both");
            assert_ne!(single[0], rows[0], "the same bits: was it another head?");
        }
    }
}

/// The head of all rows has more to do: its own program, 64 rows of logits, of which one is read.
#[test]
fn one_row_of_the_logits_is_read() {
    let model = demo();
    let vocab = model.model().config.vocab_size as u64;
    for alias in [true, false] {
        let mut features = Features::of(Mode::Best);
        if !alias {
            features = features.without(Feature::Alias);
        }
        let read = |features| {
            let mut session = NpuSession::new(&load(&model, features));
            session.prefill(&noise(6)).unwrap();
            session.counters().prefill.traffic.read_bytes
        };
        let (single, rows) = (
            read(features),
            read(features.without(Feature::SingleRowHead)),
        );
        assert!(rows < single + 2 * vocab, "{rows} and {single} bytes");
    }
}
