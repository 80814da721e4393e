//! The head over every row of a prompt, as in the first published stack, compared with the single row.

use crate::support::{apart, demo, load, padded_to};
use millrace_runtime::npu::{NpuModel, NpuSession};
use millrace_verify::ops::{Mismatch, OpCheck};
use millrace_xdna2::lower::{Feature, Features, Mode};
use std::sync::Arc;

/// Logits of a prompt and of a token after it, every op checked on the way.
fn logits(npu: &Arc<NpuModel>, prompt: &[u32]) -> [Vec<f32>; 2] {
    let mut session = NpuSession::new(npu).unwrap();
    let (check, observer) = OpCheck::new(npu);
    session.observe(Some(observer));
    let first = session.prefill(prompt).unwrap().to_vec();
    let second = session.decode(55).unwrap().to_vec();
    let summary = check.summary().unwrap();
    let wrong = summary.finding.as_ref().map(|f| &f.what);
    let name = |what: &Mismatch| format!("{what:?}");
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
    for mode in [Mode::Fast, Mode::MlirAir] {
        let one = load(&model, Features::of(mode), padded_to(64));
        let all = load(
            &model,
            Features::of(mode).without(Feature::SingleRowHead),
            padded_to(64),
        );
        for n in [1, 6, 64, 65] {
            let [single, rows] = [&one, &all].map(|npu| logits(npu, &crate::support::noise(n, 3)));
            for (single, rows) in single.iter().zip(&rows) {
                let apart = apart(rows, single);
                assert!(apart < 0.02, "{mode:?} {n}: {apart} of the largest");
            }
            assert_eq!(single[1], rows[1], "a token has the same head in both");
            assert_ne!(single[0], rows[0], "the same bits: was it another head?");
        }
    }
}

/// The head of all rows is larger: a separate program, 64 rows of logits, one of which is read.
#[test]
fn one_row_of_the_logits_is_read() {
    let model = demo();
    let vocab = model.model().config.vocab_size as u64;
    for alias in [true, false] {
        let mut features = Features::of(Mode::Fast);
        if !alias {
            features = features.without(Feature::Alias);
        }
        let read = |features| {
            let mut session = NpuSession::new(&load(&model, features, padded_to(64))).unwrap();
            session.prefill(&crate::support::noise(6, 3)).unwrap();
            session.counters().prefill.traffic.read_bytes
        };
        let (single, rows) = (
            read(features),
            read(features.without(Feature::SingleRowHead)),
        );
        assert!(rows < single + 2 * vocab, "{rows} and {single} bytes");
    }
}

/// Logits of all tokens of a prompt, with every op checked on the way; the last row equals that of a prompt.
#[test]
fn logits_of_all_tokens_are_read_where_they_are_wanted() {
    let model = demo();
    let vocab = model.model().config.vocab_size;
    for mode in [Mode::Fast, Mode::MlirAir] {
        let npu = load(&model, Features::of(mode), padded_to(64));
        let prompt = crate::support::noise(70, 3);
        let mut session = NpuSession::new(&npu).unwrap();
        let (check, observer) = OpCheck::new(&npu);
        session.observe(Some(observer));
        let all = session.prefill_all(&prompt).unwrap().to_vec();
        assert_eq!(check.summary().unwrap().finding, None, "{mode:?}");
        assert_eq!(all.len(), 70 * vocab);
        session.truncate(0).unwrap();
        let last = session.prefill(&prompt).unwrap();
        let apart = apart(&all[69 * vocab..], last);
        assert!(apart < 0.02, "{mode:?}: {apart} of the largest");
    }
}
