//! Draws of every sampler, compared with the distribution from its formula. The formulas are written out here and
//! share nothing with the stages.

use std::borrow::Cow;
use std::sync::Arc;

use super::*;

mod texts;

const N_DRAWS: usize = 20_000;

/// A vocabulary of these words.
#[derive(Debug)]
struct WordTexts(&'static [&'static str]);

impl TokenTexts for WordTexts {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        self.0
            .get(token as usize)
            .map_or(Cow::default(), |word| word.as_bytes().into())
    }
}

fn words(words: &'static [&'static str]) -> Option<Arc<dyn TokenTexts>> {
    Some(Arc::new(WordTexts(words)))
}

fn warm() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        seed: 11,
        ..SamplingParams::default()
    }
}

/// Each draw follows `prompt` and `answer`; drawn tokens do not become part of them.
fn drawn(
    params: &SamplingParams,
    texts: Option<Arc<dyn TokenTexts>>,
    [prompt, answer]: [&[u32]; 2],
    logits: &[f32],
) -> Vec<f64> {
    let mut sampler = Sampler::new(params, texts.as_ref()).unwrap();
    sampler.read(prompt.iter().copied());
    answer.iter().for_each(|token| sampler.accept(*token));
    let mut shares = vec![0.0; logits.len()];
    for _ in 0..N_DRAWS {
        shares[sampler.sample(logits) as usize] += 1.0 / N_DRAWS as f64;
    }
    shares
}

/// Five standard deviations of a binomial.
fn agree(found: &[f64], expected: &[f64], what: &str) {
    assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{what}");
    for (token, (found, p)) in found.iter().zip(expected).enumerate() {
        let bound = 5.0 * (p * (1.0 - p) / N_DRAWS as f64).sqrt() + 1e-9;
        assert!(
            (found - p).abs() <= bound,
            "{what}: token {token}: {found}, expected {p}"
        );
    }
}

/// Weights to probabilities.
fn normal(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn logits(p: &[f64]) -> Vec<f32> {
    p.iter().map(|p| p.ln() as f32).collect()
}

#[test]
fn cuts_leave_what_their_formulas_say() {
    let p = [0.05, 0.4, 0.15, 0.3, 0.1];
    let cases: [(&str, SamplingParams, [f64; 5]); 5] = [
        (
            "top-k",
            SamplingParams { top_k: 3, ..warm() },
            [0.0, 0.4, 0.15, 0.3, 0.0],
        ),
        (
            "top-p",
            SamplingParams {
                top_p: 0.8,
                ..warm()
            },
            [0.0, 0.4, 0.15, 0.3, 0.0],
        ),
        (
            "min-p",
            SamplingParams {
                min_p: 0.3,
                ..warm()
            },
            [0.0, 0.4, 0.15, 0.3, 0.0],
        ),
        // Entropy 1.3923; distances 1.60, 0.476, 0.505, 0.188, 0.910: tokens 3, 1, 2 reach 0.85.
        (
            "typical",
            SamplingParams {
                typical_p: 0.75,
                ..warm()
            },
            [0.0, 0.4, 0.15, 0.3, 0.0],
        ),
        (
            "bias",
            SamplingParams {
                logit_bias: vec![(0, 3.0_f32.ln()), (1, f32::NEG_INFINITY)],
                ..warm()
            },
            [0.15, 0.0, 0.15, 0.3, 0.1],
        ),
    ];
    for (name, params, weights) in cases {
        let found = drawn(&params, None, [&[], &[]], &logits(&p));
        agree(&found, &normal(&weights), name);
    }
}

#[test]
fn penalties_reach_as_far_as_their_window() {
    let logits = [1.0_f32, 1.0, -1.0, 0.5];
    let params = |last_n| SamplingParams {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        penalty_last_n: last_n,
        ..warm()
    };
    // Behind 0 3 1 2 2 2 the last four are one 1 and three 2.
    let history: [&[u32]; 2] = [&[0, 3, 1], &[2, 2, 2]];
    let of = |x: [f64; 4]| normal(&x.map(f64::exp));
    let two = -2.0 - 0.5 - 0.75;
    for (last_n, expected) in [
        (0, of([1.0, 1.0, -1.0, 0.5])),
        (4, of([1.0, 0.5 - 0.75, two, 0.5])),
        (5, of([1.0, 0.5 - 0.75, two, 0.25 - 0.75])),
        (usize::MAX, of([0.5 - 0.75, 0.5 - 0.75, two, 0.25 - 0.75])),
    ] {
        let found = drawn(&params(last_n), None, history, &logits);
        agree(&found, &expected, &format!("the last {last_n}"));
    }
}

#[test]
fn top_n_sigma_keeps_what_is_near_the_largest() {
    // Mean 1, standard deviation sqrt(8 / 5) = 1.265.
    let row = [3.0_f32, 2.0, 1.0, -1.0, 0.0];
    let kept = |n: usize| {
        let weights: Vec<f64> = row.iter().map(|x| f64::from(*x).exp()).collect();
        let mut order = vec![0, 1, 2, 4, 3];
        order.truncate(n);
        normal(
            &(0..5)
                .map(|i| if order.contains(&i) { weights[i] } else { 0.0 })
                .collect::<Vec<_>>(),
        )
    };
    // The largest sqrt(2) standard deviations of all five: 3 - 1.4142 n.
    let sigma = (row.iter().map(|x| f64::from(x - 1.0).powi(2)).sum::<f64>() / 5.0).sqrt();
    for (n, n_kept) in [(0.5, 1), (0.9, 2), (1.5, 3), (2.5, 4), (3.0, 5)] {
        let bound = 3.0 - n * sigma;
        assert_eq!(
            row.iter().filter(|x| f64::from(**x) >= bound).count(),
            n_kept,
            "{n}"
        );
        let params = SamplingParams {
            top_n_sigma: n as f32,
            ..warm()
        };
        agree(
            &drawn(&params, None, [&[], &[]], &row),
            &kept(n_kept),
            "top-n-sigma",
        );
        // Tokens masked by a grammar are no part of the deviation.
        let masked: Vec<f32> = row.iter().copied().chain([f32::MIN; 3]).collect();
        let mut expected = kept(n_kept);
        expected.extend([0.0; 3]);
        agree(
            &drawn(&params, None, [&[], &[]], &masked),
            &expected,
            "masked",
        );
    }
}

#[test]
fn xtc_excludes_top_choices_now_and_then() {
    let p = [0.2, 0.4, 0.05, 0.3, 0.05];
    // Without those of 0.15 and more except the smallest of them, with probability 0.25.
    let cut = normal(&[0.2, 0.0, 0.05, 0.0, 0.05]);
    let mixed = |often: f64| {
        let both = p.iter().zip(&cut);
        both.map(|(p, cut)| (1.0 - often) * p + often * cut)
            .collect::<Vec<f64>>()
    };
    for (probability, threshold, expected) in [
        (0.25, 0.15, mixed(0.25)),
        (1.0, 0.15, mixed(1.0)),
        (0.0, 0.15, p.to_vec()),
        // One top choice, and none.
        (1.0, 0.35, p.to_vec()),
        (1.0, 0.45, p.to_vec()),
        (1.0, 0.6, p.to_vec()),
    ] {
        let xtc = Xtc {
            probability,
            threshold,
        };
        let found = drawn(
            &SamplingParams { xtc, ..warm() },
            None,
            [&[], &[]],
            &logits(&p),
        );
        agree(&found, &expected, &format!("{xtc:?}"));
    }
}

#[test]
fn the_temperature_follows_the_entropy() {
    let p = [0.9_f64, 0.06, 0.04];
    let entropy = -p.iter().map(|p| p * p.ln()).sum::<f64>();
    for (middle, range, exponent) in [(1.0, 0.5, 1.0), (1.0, 0.9, 2.0), (0.5, 2.0, 0.5)] {
        let (least, most) = (f64::max(middle - range, 0.0), middle + range);
        let temperature = least + (most - least) * (entropy / 3.0_f64.ln()).powf(exponent);
        let expected = normal(&p.map(|p| p.powf(1.0 / temperature)));
        let params = SamplingParams {
            temperature: middle as f32,
            dynatemp: DynamicTemperature {
                range: range as f32,
                exponent: exponent as f32,
            },
            ..warm()
        };
        let found = drawn(&params, None, [&[], &[]], &logits(&p));
        agree(&found, &expected, &format!("{middle} ± {range}"));
    }
    // No entropy at all, and the lowest temperature is 0.
    let dynatemp = DynamicTemperature {
        range: 2.0,
        exponent: 1.0,
    };
    let found = drawn(
        &SamplingParams { dynatemp, ..warm() },
        None,
        [&[], &[]],
        &[0.0, 200.0],
    );
    assert_eq!(found[0], 0.0);
}

#[test]
fn mirostat_keeps_the_surprise_near_its_target() {
    let p: Vec<f64> = normal(&(1..=200).map(|i| 1.0 / f64::from(i)).collect::<Vec<f64>>());
    let row = logits(&p);
    for tau in [1.5, 3.0, 4.5] {
        let mirostat = Mirostat { tau, eta: 0.05 };
        let params = SamplingParams {
            mirostat: Some(mirostat),
            // Has no effect together with mirostat.
            top_k: 1,
            ..warm()
        };
        let mut sampler = Sampler::new(&params, None).unwrap();
        // The algorithm of the paper, run in parallel on the same draws.
        let (mut bound, mut total) = (2.0 * f64::from(tau), 0.0);
        for i in 0..4000 {
            let kept: Vec<f64> = p.iter().copied().filter(|p| -p.log2() <= bound).collect();
            let n_kept = kept.len().max(1);
            let token = sampler.sample(&row) as usize;
            assert!(token < n_kept, "draw {i}: {token} of {n_kept}");
            let surprise = -(p[token] / p[..n_kept].iter().sum::<f64>()).log2();
            bound -= f64::from(mirostat.eta) * (surprise - f64::from(tau));
            total += surprise;
        }
        let mean = total / 4000.0;
        assert!((mean - f64::from(tau)).abs() < 0.05, "{tau}: {mean}");
    }
}

#[test]
fn the_order_of_stages_matters_and_can_be_said() {
    let p = [0.5_f64, 0.3, 0.15, 0.05];
    let params = |order: &str| SamplingParams {
        temperature: 4.0,
        top_p: 0.7,
        order: StageKind::order(order).unwrap(),
        ..warm()
    };
    let flat = |n: usize| {
        let weight = |i: usize| if i < n { p[i].powf(0.25) } else { 0.0 };
        normal(&(0..4).map(weight).collect::<Vec<f64>>())
    };
    // Before the temperature two tokens reach 0.7; after it three do.
    for (order, expected) in [
        ("top_p;temperature", flat(2)),
        ("temperature;top_p", flat(3)),
        ("temperature", flat(4)),
        ("top_p", normal(&[0.5, 0.3, 0.0, 0.0])),
        ("", p.to_vec()),
    ] {
        let found = drawn(&params(order), None, [&[], &[]], &logits(&p));
        agree(&found, &expected, order);
    }
}

/// A draft model draws with a copy, which must draw the same as the text's own sampler.
#[test]
fn a_copy_draws_what_the_original_will() {
    let params = SamplingParams {
        xtc: Xtc {
            probability: 0.5,
            threshold: 0.1,
        },
        mirostat: Some(Mirostat::default()),
        banned_texts: vec!["ab".to_owned()],
        order: StageKind::order("xt").unwrap(),
        ..warm()
    };
    for params in [
        params.clone(),
        SamplingParams {
            mirostat: None,
            ..params
        },
    ] {
        let mut sampler = Sampler::new(&params, words(&["a", "b", "c", "d"]).as_ref()).unwrap();
        let mut copy = Sampler::with_stages(Vec::new(), 0);
        for _ in 0..200 {
            copy.copy_from(&sampler);
            let row = [0.5, 0.4, 0.3, 0.2];
            for _ in 0..3 {
                let token = sampler.sample(&row);
                assert_eq!(copy.sample(&row), token);
                sampler.accept(token);
                copy.accept(token);
            }
        }
    }
}
