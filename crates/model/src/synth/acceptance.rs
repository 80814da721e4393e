//! Amount of noise with which a synthetic draft layer guesses right at a given rate.
//!
//! The model's scores of its next token are, by the head's random rows, independent normal numbers of one deviation. The
//! layer's are the same with normal numbers of `noise` times that deviation added. Which score is the greatest depends on
//! the scores near the greatest. Their differences are those of a Poisson process of density `exp(-b·x)`: `b` is the
//! hazard of the normal distribution at the greatest of a vocabulary (Leadbetter, Lindgren and Rootzén 1983, chapter 1).
//! With `c = b · noise`, and with `t` and `u` standard normal, the greatest stays the greatest with the probability
//!
//! ```text
//! P(c) = E_t[ 1 / E_u[ max(1, exp(c·(u - t))) ] ]
//! ```

/// Lower rates need more noise than there is signal.
pub const MIN_ACCEPTANCE: f64 = 0.05;

/// Half the width and the number of steps of integrals over a normal density.
const REACH: f64 = 8.0;
const N_STEPS: usize = 800;

/// The noise, in deviations of a score, with which a share `acceptance` of guesses is right in a vocabulary of `vocab_size`.
pub(super) fn noise(acceptance: f64, vocab_size: usize) -> f64 {
    if acceptance >= 1.0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 64.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match stays(middle) > acceptance {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high) / hazard(vocab_size)
}

/// `P(c)`.
fn stays(c: f64) -> f64 {
    let step = 2.0 * REACH / N_STEPS as f64;
    let at = |i: usize| -REACH + step * i as f64;
    let term = |t: f64| {
        // The expectation over u, in two parts: below t, where the maximum is 1, and above.
        let above = (c * c / 2.0 - c * t).exp() * below(c - t);
        density(t) / (below(t) + above)
    };
    // The density vanishes at both ends, so that the sum of rectangles is the trapezoidal rule.
    (0..=N_STEPS).map(|i| term(at(i))).sum::<f64>() * step
}

/// The hazard of the normal distribution where one of `n` numbers is expected above.
fn hazard(n: usize) -> f64 {
    let share = 1.0 / n.max(2) as f64;
    let (mut low, mut high) = (-REACH, REACH);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        match below(-middle) > share {
            true => low = middle,
            false => high = middle,
        }
    }
    density(low) / share
}

fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The share of normal numbers below `x`, to 1e-7 of that share or of its complement (Abramowitz and Stegun 1964,
/// 7.1.26 for the middle, 26.2.12 for the tails).
fn below(x: f64) -> f64 {
    if x < -3.0 {
        let y = x * x;
        let series = 1.0 - 1.0 / (y + 2.0) + 1.0 / ((y + 2.0) * (y + 4.0))
            - 5.0 / ((y + 2.0) * (y + 4.0) * (y + 6.0));
        return density(x) / -x * series;
    }
    if x > 3.0 {
        return 1.0 - below(-x);
    }
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let factors = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let polynomial = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = polynomial * (-z * z).exp() / 2.0;
    match x < 0.0 {
        true => tail,
        false => 1.0 - tail,
    }
}

#[cfg(test)]
mod tests {
    use super::super::weights::SynthRng;
    use super::{below, hazard, noise};

    #[test]
    fn shares_are_those_of_the_tables() {
        for (x, share) in [(0.0, 0.5), (1.0, 0.841_344_746), (-2.0, 0.022_750_132)] {
            assert!((below(x) - share).abs() < 2e-7, "{x}");
        }
        assert!((below(-4.0) / 3.167_124_2e-5 - 1.0).abs() < 2e-3);
        // One of 1,000 is above 3.0902; the density there is 0.0033670.
        assert!((hazard(1000) - 3.367).abs() < 0.01, "{}", hazard(1000));
    }

    /// By drawing scores: the greatest of 512 stays the greatest with noise as often as was asked for.
    #[test]
    fn drawn_scores_keep_their_greatest_as_often() {
        assert_eq!(noise(1.0, 512), 0.0);
        let mut rng = SynthRng::new(3);
        // Those of the generator have no tails. Box and Muller 1958.
        let mut normal = || {
            let mut share = || (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
            let (a, b) = (1.0 - share(), share());
            (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
        };
        for acceptance in [0.9, 0.7, 0.5] {
            let noise = noise(acceptance, 512);
            let n_trials = 4000;
            let mut n_same = 0;
            for _ in 0..n_trials {
                let mut best = [(f64::NEG_INFINITY, 0); 2];
                for i in 0..512 {
                    let score = normal();
                    let other = score + noise * normal();
                    for (best, score) in best.iter_mut().zip([score, other]) {
                        if score > best.0 {
                            *best = (score, i);
                        }
                    }
                }
                n_same += usize::from(best[0].1 == best[1].1);
            }
            let found = n_same as f64 / f64::from(n_trials);
            assert!((found - acceptance).abs() < 0.03, "{acceptance}: {found}");
        }
    }
}
