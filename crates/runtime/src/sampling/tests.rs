use std::collections::HashMap;

use super::*;

fn candidates(logits: &[f32]) -> Vec<TokenCandidate> {
    let all = logits.iter().enumerate();
    all.map(|(i, &logit)| TokenCandidate {
        token: i as u32,
        logit,
    })
    .collect()
}

fn apply(stage: BuiltinStage, logits: &[f32], history: &[u32]) -> Vec<TokenCandidate> {
    let mut list = candidates(logits);
    let mut context = StageContext {
        history,
        n_prompt: 0,
        rng: &mut Rng::new(0),
    };
    stage.apply(&mut list, &mut context);
    list
}

fn tokens(stage: BuiltinStage, probabilities: &[f32]) -> Vec<u32> {
    let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
    let mut tokens: Vec<u32> = apply(stage, &logits, &[]).iter().map(|c| c.token).collect();
    tokens.sort();
    tokens
}

#[test]
fn stages_keep_what_their_definitions_say() {
    let p = [0.05, 0.5, 0.15, 0.3];
    let cases = [
        (BuiltinStage::TopK(2), vec![1, 3]),
        (BuiltinStage::TopK(9), vec![0, 1, 2, 3]),
        (BuiltinStage::TopK(0), vec![1]),
        (BuiltinStage::TopP(0.79), vec![1, 3]),
        (BuiltinStage::TopP(0.81), vec![1, 2, 3]),
        (BuiltinStage::TopP(0.01), vec![1]),
        (BuiltinStage::TopP(1.0), vec![0, 1, 2, 3]),
        (BuiltinStage::MinP(0.59), vec![1, 3]),
        (BuiltinStage::MinP(0.61), vec![1]),
        (BuiltinStage::MinP(1.0), vec![1]),
        // Entropy 1.142; surprises 2.996, 0.693, 1.897, 1.204: nearest first 3, 1, 2, 0.
        (BuiltinStage::Typical(0.2), vec![3]),
        (BuiltinStage::Typical(0.5), vec![1, 3]),
        (BuiltinStage::Typical(0.85), vec![1, 2, 3]),
    ];
    for (stage, expected) in cases {
        assert_eq!(tokens(stage.clone(), &p), expected, "{stage:?}");
    }
}

#[test]
fn penalties_follow_their_formulas() {
    let stage = BuiltinStage::Penalties {
        repetition: 2.0,
        presence: 0.5,
        frequency: 0.25,
        last_n: 3,
    };
    // Token 0 is out of range, 1 occurs once, 2 twice.
    let after = apply(stage, &[4.0, 4.0, -4.0, 4.0], &[0, 2, 1, 2]);
    let logits: Vec<f32> = after.iter().map(|c| c.logit).collect();
    assert_eq!(logits, [4.0, 2.0 - 0.75, -8.0 - 1.0, 4.0]);
}

#[test]
fn bias_can_force_and_ban() {
    let mut params = SamplingParams {
        logit_bias: vec![(2, 100.0)],
        ..Default::default()
    };
    assert_eq!(
        Sampler::new(&params, None)
            .unwrap()
            .sample(&[1.0, 2.0, 0.0]),
        2
    );
    params.logit_bias = vec![(1, f32::NEG_INFINITY)];
    assert_eq!(
        Sampler::new(&params, None)
            .unwrap()
            .sample(&[1.0, 2.0, 0.0]),
        0
    );
}

#[test]
fn greedy_takes_the_largest_and_the_first_of_equals() {
    let mut sampler = Sampler::new(&SamplingParams::default(), None).unwrap();
    assert_eq!(sampler.sample(&[0.0, 3.0, 3.0, 1.0]), 1);
    let params = SamplingParams {
        repetition_penalty: 10.0,
        ..Default::default()
    };
    let mut penalised = Sampler::new(&params, None).unwrap();
    penalised.accept(1);
    assert_eq!(penalised.sample(&[0.0, 3.0, 2.9, 1.0]), 2);
}

#[test]
fn draws_follow_the_distribution_and_the_seed() {
    let logits: Vec<f32> = [0.1f32, 0.2, 0.7].iter().map(|p| p.ln()).collect();
    let params = SamplingParams {
        temperature: 1.0,
        seed: 7,
        ..Default::default()
    };
    let mut sampler = Sampler::new(&params, None).unwrap();
    let draws: Vec<u32> = (0..20_000).map(|_| sampler.sample(&logits)).collect();
    let mut counts: HashMap<u32, f64> = HashMap::new();
    for draw in &draws {
        *counts.entry(*draw).or_default() += 1.0 / 20_000.0;
    }
    for (token, p) in [(0, 0.1), (1, 0.2), (2, 0.7)] {
        // Five standard deviations of a binomial of 20,000 draws.
        let bound = 5.0 * (p * (1.0 - p) / 20_000.0f64).sqrt();
        assert!(
            (counts[&token] - p).abs() < bound,
            "{token}: {}",
            counts[&token]
        );
    }
    let mut again = Sampler::new(&params, None).unwrap();
    assert!(draws.iter().all(|draw| again.sample(&logits) == *draw));
    let mut other = Sampler::new(&SamplingParams { seed: 8, ..params }, None).unwrap();
    assert!(draws.iter().any(|draw| other.sample(&logits) != *draw));
}

#[test]
fn temperature_sharpens_and_all_banned_still_draws() {
    let params = SamplingParams {
        temperature: 1e-3,
        ..Default::default()
    };
    let mut sampler = Sampler::new(&params, None).unwrap();
    assert!((0..100).all(|_| sampler.sample(&[1.0, 1.1, 0.9]) == 1));
    let banned = SamplingParams {
        temperature: 1.0,
        logit_bias: vec![(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)],
        ..Default::default()
    };
    assert!(Sampler::new(&banned, None).unwrap().sample(&[1.0, 2.0]) < 2);
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let default = SamplingParams::default;
    let cases = [
        (
            SamplingParams {
                temperature: -1.0,
                ..default()
            },
            "temperature",
        ),
        (
            SamplingParams {
                temperature: f32::NAN,
                ..default()
            },
            "temperature",
        ),
        (
            SamplingParams {
                top_p: 0.0,
                ..default()
            },
            "top-p",
        ),
        (
            SamplingParams {
                top_p: 1.5,
                ..default()
            },
            "top-p",
        ),
        (
            SamplingParams {
                min_p: -0.1,
                ..default()
            },
            "min-p",
        ),
        (
            SamplingParams {
                typical_p: 0.0,
                ..default()
            },
            "typical-p",
        ),
        (
            SamplingParams {
                repetition_penalty: 0.0,
                ..default()
            },
            "repetition-penalty",
        ),
        (
            SamplingParams {
                presence_penalty: f32::INFINITY,
                ..default()
            },
            "presence-penalty",
        ),
        (
            SamplingParams {
                logit_bias: vec![(0, f32::NAN)],
                ..default()
            },
            "logit-bias",
        ),
        (
            SamplingParams {
                top_n_sigma: -1.0,
                ..default()
            },
            "top-n-sigma",
        ),
        (
            SamplingParams {
                banned_texts: vec![String::new()],
                ..default()
            },
            "ban",
        ),
        (
            SamplingParams {
                order: vec![StageKind::TopK, StageKind::MinP, StageKind::TopK],
                ..default()
            },
            "samplers",
        ),
    ];
    let dry = |change: fn(&mut Dry)| {
        let mut params = default();
        change(&mut params.dry);
        params
    };
    let xtc = |probability, threshold| SamplingParams {
        xtc: Xtc {
            probability,
            threshold,
        },
        ..default()
    };
    let dynatemp = |range, exponent| SamplingParams {
        dynatemp: DynamicTemperature { range, exponent },
        ..default()
    };
    let mirostat = |tau, eta| SamplingParams {
        mirostat: Some(Mirostat { tau, eta }),
        ..default()
    };
    let more = [
        (dry(|dry| dry.multiplier = -0.5), "dry-multiplier"),
        (dry(|dry| dry.base = 0.5), "dry-base"),
        (
            dry(|dry| dry.breakers.push(String::new())),
            "dry-sequence-breaker",
        ),
        (xtc(1.5, 0.1), "xtc-probability"),
        (xtc(0.5, -0.1), "xtc-threshold"),
        (dynatemp(-1.0, 1.0), "dynatemp-range"),
        (dynatemp(1.0, f32::NAN), "dynatemp-exponent"),
        (mirostat(-1.0, 0.1), "mirostat-tau"),
        (mirostat(5.0, f32::INFINITY), "mirostat-eta"),
    ];
    for (params, name) in cases.into_iter().chain(more) {
        match params.check() {
            Err(Error::BadOption { option, .. }) => assert_eq!(option, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn log_softmax_sums_to_one() {
    let logits = [1.0f32, -2.0, 1000.0, 999.0];
    let log_p = log_softmax(&logits);
    let sum: f64 = (0..4).map(|token| log_p(token).exp()).sum();
    assert!((sum - 1.0).abs() < 1e-12);
    assert!((log_p(2) + 0.313_261_687).abs() < 1e-6);
}

/// The shortcut past most of the vocabulary keeps the same tokens as sorting all of it.
#[test]
fn the_largest_are_found_without_sorting_all() {
    let mut rng = Rng::new(5);
    let mut next = || rng.unit() as f32;
    for n in [1, 31, 64, 65, 1000, 5000] {
        // Few values, so that many are equal, zeros of both signs among them; and many values.
        let coarse: Vec<f32> = (0..n).map(|_| (next() * 9.0).floor() - 4.0).collect();
        let signed: Vec<f32> = coarse
            .iter()
            .map(|x| if *x == 0.0 && next() < 0.5 { -0.0 } else { *x })
            .collect();
        let fine: Vec<f32> = (0..n).map(|_| next() * 20.0 - 10.0).collect();
        let masked: Vec<f32> = fine
            .iter()
            .map(|x| if *x > 9.9 { *x } else { f32::MIN })
            .collect();
        for logits in [coarse, signed, fine, masked] {
            for k in [1, 2, 40, 256, 3000] {
                let mut expected = apply(BuiltinStage::TopK(k), &logits, &[]);
                expected.sort_unstable_by(|a, b| {
                    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
                });
                let mut found = Vec::new();
                stages::largest(&logits, k, &mut found);
                assert_eq!(found, expected, "{k} of {n}");
                let tokens: Vec<u32> = expected.iter().map(|c| c.token).collect();
                assert_eq!(likeliest(&logits, k), tokens, "{k} of {n}");
                assert!(likeliest(&logits, 0).is_empty());
            }
            let first = logits.iter().position(|x| logits.iter().all(|y| y <= x));
            assert_eq!(argmax(&logits) as usize, first.unwrap());
        }
    }
}

#[test]
fn what_is_not_finite_is_found_wherever_it_is() {
    for n in [1, 32, 33, 100] {
        let mut row = vec![f32::MIN; n];
        assert!(all_finite(&row));
        for at in [0, n / 2, n - 1] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let old = std::mem::replace(&mut row[at], bad);
                assert!(!all_finite(&row), "{bad} at {at} of {n}");
                row[at] = old;
            }
        }
    }
}
