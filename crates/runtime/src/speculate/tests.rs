//! The rule of acceptance keeps the distribution, and the test of that finds rules that do not.

use super::*;
use crate::sampling::{Sampler, SamplingParams, log_softmax};

const N_VOCAB: usize = 6;

/// Tokens of a text.
const N_TEXT: usize = 3;

/// Texts that are drawn: over 10⁵ tokens.
const N_TRIALS: usize = 40_000;

/// Logits after each token, for a model and for another that agrees with it by half.
fn models() -> [Vec<[f32; N_VOCAB]>; 2] {
    let wave = |a: usize, b: usize, c: f32| ((a * 7 + b * 13) as f32 * c).sin();
    let row = |a: usize, of_draft: f32| {
        std::array::from_fn(|b| 0.9 * wave(a, b, 0.37) + of_draft * 0.9 * wave(a, b, 1.13))
    };
    [0.0, 1.0].map(|of_draft| (0..N_VOCAB).map(|a| row(a, of_draft)).collect())
}

fn sampler(seed: u64) -> Sampler {
    let params = SamplingParams {
        temperature: 1.0,
        seed,
        ..SamplingParams::default()
    };
    Sampler::new(&params, None).unwrap()
}

/// Whether an undrawn draft is accepted all the same; the right rule never does.
type AcceptanceRule = fn(p: f64, q: f64) -> bool;

/// A text that begins after token 0, written with drafts, and the number of drafts drawn.
fn write(seed: u64, rule: AcceptanceRule) -> (Vec<u32>, usize) {
    let [target, draft] = models();
    let mut sampler = sampler(seed);
    let (mut text, mut n_accepted) = (vec![0], 0);
    while text.len() <= N_TEXT {
        let (mut copy, mut drafts) = (sampler.clone(), Vec::<u32>::new());
        for _ in 0..2 {
            let last = *drafts.last().or(text.last()).unwrap();
            drafts.push(copy.sample(&draft[last as usize]));
        }
        let behind = text.last().into_iter().chain(&drafts);
        let rows: Vec<f32> = behind.flat_map(|t| target[*t as usize]).collect();
        let mut i = 0;
        let n = follow(&drafts, &rows, |row| -> Result<Option<u32>, ()> {
            let mut token = sampler.sample(row);
            if let Some(guess) = drafts.get(i) {
                let last = *text.last().unwrap() as usize;
                let q = log_softmax(&draft[last])(*guess).exp();
                let p = log_softmax(row)(*guess).exp();
                if rule(p, q) {
                    token = *guess;
                }
            }
            i += 1;
            text.push(token);
            Ok(Some(token))
        });
        n_accepted += n.unwrap();
    }
    text.truncate(N_TEXT + 1);
    (text, n_accepted)
}

/// Pearson's statistic of the texts' frequencies against the model's probabilities; 215 degrees of freedom.
fn chi_square(rule: AcceptanceRule) -> f64 {
    let [target, _] = models();
    let mut counts = [0u32; N_VOCAB.pow(N_TEXT as u32)];
    let index = |text: &[u32]| text[1..].iter().fold(0, |i, t| i * N_VOCAB + *t as usize);
    for seed in 0..N_TRIALS {
        counts[index(&write(seed as u64, rule).0)] += 1;
    }
    let cell = |i: usize| {
        let text = [0, i / 36, i / 6 % 6, i % 6];
        let steps = text.windows(2);
        steps
            .map(|s| log_softmax(&target[s[0]])(s[1] as u32))
            .sum::<f64>()
            .exp()
    };
    let term = |(i, count): (usize, &u32)| {
        let expected = cell(i) * N_TRIALS as f64;
        assert!(expected > 5.0, "cell {i} is too rare");
        (f64::from(*count) - expected).powi(2) / expected
    };
    counts.iter().enumerate().map(term).sum()
}

/// Mean 215 and standard deviation 20.7: five of them above.
const CRITICAL: f64 = 320.0;

#[test]
fn drafts_keep_the_distribution() {
    let right = chi_square(|_, _| false);
    assert!(right < CRITICAL, "{right}");
    let drawn: usize = (0..2000).map(|seed| write(seed, |_, _| false).1).sum();
    assert!(
        drawn > 1000,
        "only {drawn} drafts were drawn: nothing was tested"
    );
}

/// The test above can fail: it does with rules that accept drafts too often.
#[test]
fn wrong_rules_are_found() {
    for (what, rule) in [
        ("takes any draft", (|_, _| true) as AcceptanceRule),
        ("takes likely drafts", |p, _| p > 0.25),
        (
            "takes drafts by the ratio and then draws from all",
            |p, q| p > q,
        ),
    ] {
        let wrong = chi_square(rule);
        assert!(wrong > CRITICAL, "{what}: {wrong}");
    }
}

/// Stronger than the distribution: the very tokens.
#[test]
fn a_seed_gives_the_text_of_plain_decoding() {
    let [target, _] = models();
    for seed in 0..200 {
        let mut sampler = sampler(seed);
        let mut text = vec![0];
        for _ in 0..N_TEXT {
            let last = *text.last().unwrap() as usize;
            text.push(sampler.sample(&target[last]));
        }
        assert_eq!(write(seed, |_, _| false).0, text);
    }
}
