//! Results at a prompt's real positions have the same bits at every length that it is padded to,
//! including its own.

use crate::support::{demo, load, noise, padded_to};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuOptions, NpuSession};
use millrace_testkit::sample;
use millrace_xdna2::lower::{BUCKETS, Features, Mode};
use std::sync::Arc;

/// Logits of the prompt's last token, then of two tokens decoded after it, which read every layer's
/// keys and values at every position of the prompt.
fn logits(model: &Arc<LoadedModel>, mode: Mode, n_padded: u64, prompt: &[u32]) -> [Vec<f32>; 3] {
    let npu = load(model, Features::of(mode), padded_to(n_padded));
    let mut session = NpuSession::new(&npu).unwrap();
    let last = session.prefill(prompt).unwrap().to_vec();
    let [first, second] = [900, 901].map(|token| session.decode(token).unwrap().to_vec());
    [last, first, second]
}

/// The same prompt at its own length and padded to others; another prompt differs.
fn check(mode: Mode, n_tokens: u32, lengths: &[u64]) {
    let model = demo();
    let prompt = noise(n_tokens, 3);
    let own = logits(&model, mode, u64::from(n_tokens), &prompt);
    for &n_padded in lengths {
        let padded = logits(&model, mode, n_padded, &prompt);
        for (step, (padded, own)) in padded.iter().zip(&own).enumerate() {
            let differ = padded
                .iter()
                .zip(own)
                .filter(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(
                differ.count(),
                0,
                "{mode:?}: {n_tokens} in {n_padded}, step {step}"
            );
        }
    }
    let other = logits(&model, mode, lengths[0], &noise(n_tokens, 4));
    assert!(other != own, "{mode:?}: the prompt makes no difference");
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn mode_fast_has_the_same_bits_at_every_length() {
    // Each length in one of the modes, in turn; with `MILLRACE_TEST_ALL=1` in both.
    for (i, mode) in [Mode::Fast, Mode::Int4].into_iter().enumerate() {
        let lengths: Vec<u64> = sample::part(BUCKETS.into_iter().skip(1), 2, i).collect();
        check(mode, 64, &lengths);
        check(mode, 192, &[256, 1024]);
    }
}

#[test]
fn mode_reference_has_the_same_bits_at_every_length() {
    check(Mode::MlirAir, 64, &[128, 256, 512, 2048]);
    check(Mode::MlirAir, 192, &[256, 1024]);
}

/// Prompts of many lengths, one after the other. Only the most recently used plans keep their buffers; a prompt of an
/// evicted length gives the same results as before.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn lengths_make_room_for_each_other() {
    let model = demo();
    for mode in [Mode::Fast, Mode::MlirAir] {
        let npu = load(&model, Features::of(mode), NpuOptions::default());
        let run = |n_tokens: u32| {
            let mut session = NpuSession::new(&npu).unwrap();
            let last = session.prefill(&noise(n_tokens, 5)).unwrap().to_vec();
            let next = session.decode(900).unwrap().to_vec();
            (last, next, npu.memory().activation_bytes)
        };
        // The last mode has one length for all prompts, which take long: two show that none disturbs the other.
        let lengths = match mode {
            Mode::MlirAir => &[40, 300][..],
            _ => &[40, 100, 190, 250, 300, 380, 500],
        };
        let first: Vec<_> = lengths.iter().map(|n| run(*n)).collect();
        let again: Vec<_> = lengths.iter().map(|n| run(*n)).collect();
        for (a, b) in first.iter().zip(&again) {
            assert!((&a.0, &a.1) == (&b.0, &b.1), "{mode:?}");
        }
        // Without aliases no buffers are shared, and all prompts have one length.
        let most = first.iter().map(|run| run.2).max();
        assert!(again.iter().map(|run| run.2).max() <= most, "{mode:?}");
        let last = again.last().map(|run| run.2);
        let short = run(40).2;
        assert!(Some(short) < last || mode == Mode::MlirAir, "{short}");
    }
}

/// Real prompts are not a multiple of any length: buckets agree on those.
#[test]
fn buckets_agree_on_a_prompt_of_any_length() {
    let model = demo();
    for mode in [Mode::Fast, Mode::MlirAir] {
        for n_tokens in [1, 39] {
            let prompt = noise(n_tokens, 5);
            let short = logits(&model, mode, 64, &prompt);
            assert!(
                logits(&model, mode, 128, &prompt) == short,
                "{mode:?} {n_tokens}"
            );
            assert!(
                logits(&model, mode, 512, &prompt) == short,
                "{mode:?} {n_tokens}"
            );
        }
    }
}
