//! A sampler stage: it has a name and a letter, a place in the order, a range, and draws by its formula.

use millrace_runtime::sampling::{Sampler, SamplingParams, StageKind};

const N_DRAWS: usize = 20_000;

/// The stage keeps tokens with at least `a · p²` of the likeliest's `p`.
pub fn check() {
    assert_eq!(
        "top-a".parse::<StageKind>().expect("a name"),
        StageKind::TopA
    );
    assert_eq!(StageKind::order("at").expect("letters")[0], StageKind::TopA);
    assert!(StageKind::USUAL.contains(&StageKind::TopA));
    let unknown = StageKind::order("hot").expect_err("no stage").to_string();
    assert!(unknown.contains("top_a"), "{unknown}");
    let params = SamplingParams {
        temperature: 1.0,
        top_a: 0.5,
        seed: 5,
        ..SamplingParams::default()
    };
    let wrong = SamplingParams {
        top_a: 2.0,
        ..params.clone()
    };
    let error = Sampler::new(&wrong, None)
        .expect_err("out of range")
        .to_string();
    assert!(error.contains("top-a"), "{error}");
    // The likeliest has 0.6, so tokens below 0.5 · 0.36 = 0.18 go.
    let p = [0.1_f64, 0.6, 0.19, 0.11];
    let logits = p.map(|p| p.ln() as f32);
    let mut sampler = Sampler::new(&params, None).expect("parameters in range");
    let mut counts = [0_usize; 4];
    for _ in 0..N_DRAWS {
        counts[sampler.sample(&logits) as usize] += 1;
    }
    assert_eq!((counts[0], counts[3]), (0, 0), "{counts:?}");
    let share = counts[2] as f64 / N_DRAWS as f64;
    let expected = p[2] / (p[1] + p[2]);
    // Five standard deviations of a binomial.
    let bound = 5.0 * (expected * (1.0 - expected) / N_DRAWS as f64).sqrt();
    assert!((share - expected).abs() < bound, "{share} for {expected}");
}
