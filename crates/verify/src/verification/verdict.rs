//! How far a device may be from the model, and whether it is nearer.
//!
//! With x the deviations of the model rounded to bf16 from the model in f32, a row each, n of them in a
//! phase, μ their mean there, and c the ratio of standard deviation to mean over all rows:
//!
//! | statistic of a phase | bound |
//! |---|---|
//! | mean KL, mean 1 − cosine | F·μ + t·√2·c·μ/√n |
//! | median KL (from 40 rows on) | F times that of x |
//! | 95th percentile of KL (from 40 rows on) | 2 times that of x |
//! | counts: places lost among the likeliest five, choices that are not first | F·N + 4.5 + 3·√(2N + 2.25), N that of x |
//! | choices of experts other than those of f32, where there are any | as counts |
//! | largest KL of all | 8 times that of x |
//! | choices that are not among the first five, of all | F·N + 3·√(2N) |
//!
//! No bound of a KL is below the square of f32's rounding: nothing smaller can be resolved for a model that is sure of every token.
//!
//! F = 1.5 is the factor that an array may add to the format's own rounding: it rounds at more points inside an op than x
//! does (flash attention its running sums at every tile). Two honest devices have two draws of the same errors, so their
//! means differ by √2 standard errors; one mean in 700 exceeds 3 of those. From few steps c is known badly, so t is
//! Student's for one in 700 and twice the rows less two: 3.01 for 256 rows, 3.4 for 12. Counts of independent events are
//! Poisson's: two draws M and N of one rate have (M − N)² ≤ 9·(M + N) but for one in 700 (the score test of two Poisson
//! rates), which is M ≤ N + 4.5 + 3·√(2N + 2.25). The variance is of both draws. Where N alone gave it, a rate of 5 that
//! happened to show 2 would be held to less than it often shows.

use super::deviation::{Deviation, TOP};
use millrace_plan::Phase;

/// Factor that an array may add to the format's own rounding.
pub const FACTOR: f64 = 1.5;

/// Least bound of a KL: probabilities in f32 that differ by one rounding are as far apart. Models that are sure of
/// every token have a smaller KL, which then reflects arithmetic alone.
const KL_RESOLUTION: f64 = (f32::EPSILON as f64) * (f32::EPSILON as f64);

/// A step of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathStep {
    /// Whether a prompt's pass or a token's gave the logits.
    pub phase: Phase,
    /// How far they are off.
    pub deviation: Deviation,
    /// Choices of the pass with other experts than those of the model in f32, whose experts it then used.
    pub n_other_experts: usize,
}

/// A statistic and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistic {
    /// Name in the report.
    pub name: &'static str,
    /// The phase of its steps; all steps for `None`.
    pub phase: Option<Phase>,
    /// How many steps.
    pub n_steps: usize,
    /// The device's.
    pub found: f64,
    /// The value that rounding to bf16 gives.
    pub rounding: f64,
    /// The most there may be.
    pub bound: f64,
}

impl Statistic {
    /// Whether it is within its bound; NaN is not.
    pub fn passes(&self) -> bool {
        self.found <= self.bound
    }
}

/// All statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// In the order of a report.
    pub statistics: Vec<Statistic>,
}

impl Verdict {
    /// The first statistic beyond its bound.
    pub fn failure(&self) -> Option<&Statistic> {
        self.statistics.iter().find(|statistic| !statistic.passes())
    }

    /// Whether every statistic is within its bound. A verdict without steps does not pass.
    pub fn passes(&self) -> bool {
        !self.statistics.is_empty() && self.failure().is_none()
    }
}

/// Number of rows beyond which quantiles get their own bounds.
const MANY: usize = 40;

/// Judges the device's steps by those of rounding, one by one.
pub fn judge(device: &[PathStep], rounding: &[PathStep]) -> Verdict {
    let mut verdict = Verdict::default();
    let n = device.len().min(rounding.len());
    let (device, rounding) = (&device[..n], &rounding[..n]);
    if n == 0 {
        return verdict;
    }
    for phase in [Phase::Prefill, Phase::Decode] {
        of_phase(phase, device, rounding, &mut verdict.statistics);
    }
    let mut over_all = |name, of: &dyn Fn(&[PathStep]) -> f64, bound: &dyn Fn(f64) -> f64| {
        let rounding = of(rounding);
        verdict.statistics.push(Statistic {
            name,
            phase: None,
            n_steps: n,
            found: of(device),
            rounding,
            bound: bound(rounding),
        });
    };
    let largest = |steps: &[PathStep]| largest(steps.iter().map(|s| s.deviation.kl));
    over_all("largest KL", &largest, &|x| (8.0 * x).max(KL_RESOLUTION));
    let far = |steps: &[PathStep]| count(steps, |d| usize::from(d.rank > TOP));
    over_all("choices beyond the first five", &far, &|n| {
        FACTOR * n + 3.0 * (2.0 * n).sqrt()
    });
    verdict
}

type Size = fn(&Deviation) -> f64;
type Count = fn(&Deviation) -> usize;

fn of_phase(phase: Phase, device: &[PathStep], rounding: &[PathStep], out: &mut Vec<Statistic>) {
    let of = |steps: &[PathStep]| -> Vec<PathStep> {
        let steps = steps.iter().filter(|step| step.phase == phase);
        steps.copied().collect()
    };
    let (found, x) = (of(device), of(rounding));
    let n = x.len();
    if n == 0 {
        return;
    }
    let mut add = |name, found, rounding, bound| {
        out.push(Statistic {
            name,
            phase: Some(phase),
            n_steps: n,
            found,
            rounding,
            bound,
        });
    };
    let kl = |d: &Deviation| d.kl;
    let gap = |d: &Deviation| d.cosine_gap;
    let means: [(&str, Size, f64); 2] = [
        ("mean KL", kl, KL_RESOLUTION),
        ("mean 1 - cosine", gap, 0.0),
    ];
    for (name, of, resolution) in means {
        let mu = mean(&x, of);
        let errors = standard_errors(rounding.len());
        let spread = errors * (2.0 / n as f64).sqrt() * variation(rounding, of) * mu;
        let bound = (FACTOR * mu + spread).max(resolution);
        add(name, mean(&found, of), mu, bound);
    }
    if n >= MANY {
        for (name, share, factor) in [
            ("median KL", 0.5, FACTOR),
            ("95th percentile of KL", 0.95, 2.0),
        ] {
            let x = quantile(&x, share);
            let bound = (factor * x).max(KL_RESOLUTION);
            add(name, quantile(&found, share), x, bound);
        }
    }
    let counts: [(&str, Count); 2] = [
        ("places lost among the five likeliest", |d| d.n_lost),
        ("choices that are not first", |d| usize::from(d.rank > 1)),
    ];
    for (name, of) in counts {
        let n = count(&x, of);
        add(name, count(&found, of), n, count_bound(n));
    }
    let others = |steps: &[PathStep]| steps.iter().map(|s| s.n_other_experts).sum::<usize>() as f64;
    let (found, n) = (others(&found), others(&x));
    if found > 0.0 || n > 0.0 {
        add("experts chosen otherwise", found, n, count_bound(n));
    }
}

/// The most events that a device may show where rounding shows `n`.
fn count_bound(n: f64) -> f64 {
    FACTOR * n + 4.5 + 3.0 * (2.0 * n + 2.25).sqrt()
}

fn mean(steps: &[PathStep], of: Size) -> f64 {
    steps.iter().map(|s| of(&s.deviation)).sum::<f64>() / steps.len() as f64
}

/// Standard deviation as a share of the mean.
fn variation(steps: &[PathStep], of: Size) -> f64 {
    let mu = mean(steps, of);
    let square = |s: &PathStep| (of(&s.deviation) - mu).powi(2);
    let variance = steps.iter().map(square).sum::<f64>() / steps.len() as f64;
    if mu > 0.0 { variance.sqrt() / mu } else { 0.0 }
}

/// The number of standard errors that one mean in 700 exceeds, if they are estimated from so many rows. This is
/// Student's t for the share that 3 normal ones have, by the expansion of Cornish and Fisher.
fn standard_errors(n_rows: usize) -> f64 {
    let freedom = 2.0 * n_rows.saturating_sub(1).max(1) as f64;
    3.0 + 7.5 / freedom + 17.25 / (freedom * freedom)
}

fn quantile(steps: &[PathStep], share: f64) -> f64 {
    let mut values: Vec<f64> = steps.iter().map(|s| s.deviation.kl).collect();
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64) as usize;
    values
        .get(at)
        .or(values.last())
        .copied()
        .unwrap_or(f64::NAN)
}

/// The largest value; NaN is larger than all.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |a, b| if b.is_nan() || b > a { b } else { a })
}

fn count(steps: &[PathStep], of: impl Fn(&Deviation) -> usize) -> f64 {
    steps.iter().map(|s| of(&s.deviation)).sum::<usize>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deviations of a given size, with some spread; the first of every eight is a prompt's.
    fn steps(n: usize, size: f64, salt: usize) -> Vec<PathStep> {
        let step = |i: usize| {
            let x = size * (0.5 + ((i * 7919 + salt * 31) % 101) as f64 / 100.0);
            PathStep {
                phase: if i.is_multiple_of(8) {
                    Phase::Prefill
                } else {
                    Phase::Decode
                },
                deviation: Deviation {
                    kl: x,
                    cosine_gap: x,
                    n_lost: usize::from(i.is_multiple_of(9)),
                    rank: 1 + usize::from(i.is_multiple_of(40)),
                    token: 0,
                },
                n_other_experts: usize::from(i.is_multiple_of(5)),
            }
        };
        (0..n).map(step).collect()
    }

    fn name(found: &[PathStep], rounding: &[PathStep]) -> Option<&'static str> {
        judge(found, rounding).failure().map(|s| s.name)
    }

    #[test]
    fn a_model_that_is_sure_is_held_to_what_f32_can_tell() {
        let sure = |share: f64| {
            let mut steps = steps(256, 1e-4, 0);
            let all = steps.iter_mut();
            all.for_each(|step| step.deviation.kl *= share);
            steps
        };
        assert_eq!(name(&sure(1e-13), &sure(1e-16)), None);
        assert_eq!(name(&sure(1e-8), &sure(1e-16)), Some("mean KL"));
    }

    #[test]
    fn as_much_as_rounding_passes_and_twice_as_much_fails() {
        for n in [16, 64, 256] {
            let rounding = steps(n, 1e-4, 0);
            let verdict = judge(&steps(n, 1e-4, 5), &rounding);
            assert!(verdict.passes(), "{verdict:?}");
        }
        let rounding = steps(256, 1e-4, 0);
        assert_eq!(name(&steps(256, 2.2e-4, 5), &rounding), Some("mean KL"));
        assert!(!judge(&[], &[]).passes(), "nothing was seen");
    }

    /// Beside tables of Student's t at 0.99865: 3.48 for 20 degrees, 3.07 for 120.
    #[test]
    fn few_rows_widen_the_bound() {
        assert!((standard_errors(11) - 3.42).abs() < 0.07);
        assert!((standard_errors(61) - 3.07).abs() < 0.01);
        assert!(standard_errors(1) > 10.0);
    }

    /// For two draws of one rate, however small, one is beyond the other's bound once in 700 at most.
    #[test]
    fn honest_counts_pass_at_every_rate() {
        for rate in [0.3f64, 1.0, 2.0, 5.0, 10.0, 40.0] {
            let next = |n: usize, share: f64| share * rate / (n + 1) as f64;
            let poisson = (0..200).scan((-rate).exp(), |share, n| {
                let following = next(n, *share);
                Some(std::mem::replace(share, following))
            });
            let poisson: Vec<f64> = poisson.collect();
            let beyond = |bound: f64| poisson.iter().skip(bound as usize + 1).sum::<f64>();
            let counts = poisson.iter().enumerate();
            let refused: f64 = counts.map(|(n, p)| p * beyond(count_bound(n as f64))).sum();
            assert!(refused < 1.0 / 700.0, "rate {rate}: {refused}");
        }
        assert!(count_bound(2.0) <= 15.0 && count_bound(100.0) < 200.0);
    }

    /// Each statistic fails alone.
    #[test]
    fn every_statistic_can_fail() {
        let rounding = steps(256, 1e-4, 0);
        let mut others = rounding.clone();
        others.iter_mut().for_each(|step| step.n_other_experts = 1);
        assert_eq!(name(&others, &rounding), Some("experts chosen otherwise"));
        let fails = |change: &dyn Fn(usize, &mut Deviation)| {
            let mut found = rounding.clone();
            for (i, step) in found.iter_mut().enumerate() {
                change(i, &mut step.deviation);
            }
            name(&found, &rounding)
        };
        assert_eq!(fails(&|_, _| {}), None);
        assert_eq!(
            fails(&|i, d| d.kl = if i == 9 { f64::NAN } else { d.kl }),
            Some("mean KL")
        );
        assert_eq!(fails(&|_, d| d.cosine_gap *= 1.9), Some("mean 1 - cosine"));
        assert_eq!(fails(&|_, d| d.kl = d.kl.max(1.55e-4)), Some("median KL"));
        assert_eq!(
            fails(&|i, d| d.kl = if i % 11 == 1 { 3.1e-4 } else { d.kl }),
            Some("95th percentile of KL")
        );
        assert_eq!(
            fails(&|i, d| d.kl *= if i == 9 { 13.0 } else { 1.0 }),
            Some("largest KL")
        );
        assert_eq!(
            fails(&|_, d| d.n_lost = 1),
            Some("places lost among the five likeliest")
        );
        assert_eq!(
            fails(&|_, d| d.rank = 2),
            Some("choices that are not first")
        );
        assert_eq!(
            fails(&|i, d| d.rank = if i == 1 { 6 } else { d.rank }),
            Some("choices beyond the first five")
        );
    }
}
