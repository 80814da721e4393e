//! Whole models on the virtual chip beside Llama in f64.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)] // A test may panic.

mod chip;
mod reference;

use chip::Chips;
use millrace_tcp::lower::{Options, Weights};
use reference::{Random, Sizes};

const SMALL: Sizes = Sizes {
    n_layers: 2,
    d_model: 128,
    d_ff: 256,
    n_heads: 4,
    n_kv_heads: 2,
    head_dim: 64,
    vocab_size: 96,
};

fn tokens(n: usize, seed: u64) -> Vec<usize> {
    let mut random = Random(seed * 2 + 1);
    (0..n).map(|_| ((random.next() + 1.0) * 47.0) as usize).collect()
}

/// Signal to noise of logits, in dB.
fn snr(found: &[f32], expected: &[f64]) -> f64 {
    let signal: f64 = expected.iter().map(|x| x * x).sum();
    let noise: f64 = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - e).powi(2)).sum();
    10.0 * (signal / noise).log10()
}

/// A prompt, then tokens one by one: the worst SNR of any step's logits.
fn worst(sizes: Sizes, options: Options, prompt: usize, n_more: usize) -> f64 {
    let model = reference::Weights::random(sizes, 3);
    let all = tokens(prompt + n_more, 5);
    let expected = model.logits(&all);
    let mut chips = Chips::new(&model, options, 256, 1);
    let mut worst = snr(&chips.step(&[all[..prompt].to_vec()])[0], &expected[prompt - 1]);
    for at in prompt..all.len() {
        let logits = chips.step(&[vec![all[at]]]);
        worst = worst.min(snr(&logits[0], &expected[at]));
    }
    worst
}

#[test]
fn bf16_gives_the_references_logits() {
    // Held tokens, and streamed ones with padding behind.
    for prompt in [5, 70] {
        let snr = worst(SMALL, Options::plain(Weights::Bf16), prompt, 2);
        println!("bf16, prompt of {prompt}: {snr:.1} dB");
        assert!(snr > 35.0, "prompt of {prompt}: {snr} dB");
    }
}
