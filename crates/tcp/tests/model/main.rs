//! Whole models on the virtual chip beside Llama in f64.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)] // A test may panic.

mod chip;
mod reference;

use chip::Chips;
use millrace_tcp::lower::{TcpLowerOptions, Weights};
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
    (0..n)
        .map(|_| ((random.next() + 1.0) * 47.0) as usize)
        .collect()
}

/// Signal to noise of logits, in dB.
fn snr(found: &[f32], expected: &[f64]) -> f64 {
    let signal: f64 = expected.iter().map(|x| x * x).sum();
    let noise: f64 = found
        .iter()
        .zip(expected)
        .map(|(f, e)| (f64::from(*f) - e).powi(2))
        .sum();
    10.0 * (signal / noise).log10()
}

/// A prompt, then tokens one by one: the worst SNR of any step's logits.
fn worst(sizes: Sizes, options: TcpLowerOptions, prompt: usize, n_more: usize) -> f64 {
    let model = reference::Weights::random(sizes, 3);
    let all = tokens(prompt + n_more, 5);
    let expected = model.logits(&all);
    let mut chips = Chips::new(&model, options, 256, 1);
    let mut worst = snr(
        &chips.step(&[all[..prompt].to_vec()])[0],
        &expected[prompt - 1],
    );
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
        let snr = worst(SMALL, TcpLowerOptions::plain(Weights::Bf16), prompt, 2);
        println!("bf16, prompt of {prompt}: {snr:.1} dB");
        assert!(snr > 35.0, "prompt of {prompt}: {snr} dB");
    }
}

#[test]
fn heads_of_128_and_rows_over_rings() {
    let sizes = Sizes {
        n_layers: 1,
        d_model: 256,
        d_ff: 9216,
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 128,
        vocab_size: 96,
    };
    // 9,216 columns fill more than a lane: the down projection meets over slices.
    let snr = worst(
        sizes,
        TcpLowerOptions::plain(Weights::Bf16).read_ahead(),
        9,
        1,
    );
    assert!(snr > 35.0, "{snr} dB");
}

#[test]
fn narrow_weights_lose_what_their_format_does() {
    let snr = |weights| worst(SMALL, TcpLowerOptions::plain(weights), 6, 2);
    let (fp8, int4) = (snr(Weights::Fp8), snr(Weights::Int4));
    println!("fp8 {fp8:.1} dB, int4 {int4:.1} dB");
    assert!((16.0..30.0).contains(&fp8), "{fp8} dB");
    assert!((10.0..fp8).contains(&int4), "{int4} dB");
}

/// The six tokens that a model goes on with behind six others, always the likeliest.
fn greedy(mut chips: Chips<'_>) -> Vec<usize> {
    let mut next = tokens(6, 7);
    let mut all = Vec::new();
    for _ in 0..6 {
        let logits = chips.step(&[next]).remove(0);
        let best = (0..logits.len())
            .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
            .unwrap();
        all.push(best);
        next = vec![best];
    }
    all
}

#[test]
fn shards_give_the_tokens_of_one_chip() {
    let sizes = Sizes {
        n_heads: 8,
        n_kv_heads: 4,
        head_dim: 32,
        ..SMALL
    };
    let model = reference::Weights::random(sizes, 11);
    let one = TcpLowerOptions::plain(Weights::Bf16);
    let chips = |n_shards| Chips::new(&model, TcpLowerOptions { n_shards, ..one }, 256, 1);
    let expected = greedy(chips(1));
    for n_shards in [2, 4] {
        assert_eq!(greedy(chips(n_shards)), expected, "{n_shards} shards");
    }
}

/// Chips of a pipeline have separate layers and caches, and get activations from the chip before.
#[test]
fn stages_give_the_tokens_of_one_chip() {
    let sizes = Sizes {
        n_layers: 4,
        ..SMALL
    };
    let model = reference::Weights::random(sizes, 23);
    let chips = |n_chips, spoil_stage| {
        let mut chips = Chips::new(&model, TcpLowerOptions::plain(Weights::Bf16), 256, 1);
        chips.plan.n_chips = n_chips;
        chips.spoil_stage = spoil_stage;
        greedy(chips)
    };
    let expected = chips(1, None);
    for n_chips in [2, 3, 4] {
        assert_eq!(chips(n_chips, None), expected, "{n_chips} stages");
        assert_ne!(chips(n_chips, Some(1)), expected, "{n_chips} stages");
    }
}

#[test]
fn what_shares_a_batch_changes_nothing() {
    let model = reference::Weights::random(SMALL, 13);
    let options = TcpLowerOptions::plain(Weights::Bf16);
    let (a, b) = (tokens(5, 1), tokens(5, 2));
    let alone = |all: &[usize]| {
        let mut chips = Chips::new(&model, options, 128, 1);
        let first = chips.step(&[all[..4].to_vec()]).remove(0);
        (first, chips.step(&[all[4..].to_vec()]).remove(0))
    };
    // One token at a time, both together.
    let mut chips = Chips::new(&model, options, 128, 2);
    let mut last = Vec::new();
    for at in 0..5 {
        last = chips.step(&[vec![a[at]], vec![b[at]]]);
    }
    for (found, all) in last.iter().zip([&a, &b]) {
        let (_, expected) = alone(all);
        let expected: Vec<f64> = expected.iter().map(|x| f64::from(*x)).collect();
        let snr = snr(found, &expected);
        assert!(snr > 40.0, "{snr} dB");
    }
}

#[test]
fn a_wrong_slot_shows() {
    // The mask lets every token see padding: the error exceeds the bound of the other tests.
    let model = reference::Weights::random(SMALL, 3);
    let all = tokens(6, 5);
    let expected = model.logits(&all);
    let mut chips = Chips::new(&model, TcpLowerOptions::plain(Weights::Bf16), 256, 1);
    chips.spoil_mask = true;
    let snr = snr(&chips.step(&[all])[0], &expected[5]);
    assert!(snr < 30.0, "{snr} dB");
}

#[test]
fn keys_in_chunks_are_added_up() {
    // Four slices share a head of 1,024 keys: more than one of them holds.
    let sizes = Sizes {
        n_heads: 2,
        head_dim: 32,
        ..SMALL
    };
    let model = reference::Weights::random(sizes, 17);
    let all = tokens(9, 19);
    let expected = model.logits(&all);
    let mut chips = Chips::new(&model, TcpLowerOptions::plain(Weights::Bf16), 1024, 1);
    chips.min_keys = 1024;
    let first = snr(&chips.step(&[all[..8].to_vec()])[0], &expected[7]);
    let second = snr(&chips.step(&[all[8..].to_vec()])[0], &expected[8]);
    assert!(first.min(second) > 35.0, "{first} {second} dB");
}
