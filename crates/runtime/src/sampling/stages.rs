//! The stages of a sampling chain.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::Rng;
use super::dry;
use super::params::{Dry, DynamicTemperature, Xtc};
use super::texts::{BannedTexts, Breakers};

/// Upper bound of the logit of a token that a grammar rules out, whatever temperature and penalties have done to `f32::MIN`.
pub(super) const RULED_OUT: f32 = -1e30;

/// A token that may still be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenCandidate {
    /// The token.
    pub token: u32,
    /// Its logit, as the stages so far have left it.
    pub logit: f32,
}

/// One stage of a chain: changes logits or drops candidates; at least one candidate is always left.
#[derive(Clone, Debug, PartialEq)]
pub enum BuiltinStage {
    /// Adds to the logits of single tokens.
    LogitBias(Vec<(u32, f32)>),
    /// Rules out tokens that would complete a text.
    Banned(BannedTexts),
    /// Penalises the last `last_n` tokens (Keskar et al. 2019 for `repetition`, the OpenAI API for
    /// the other two).
    Penalties {
        /// Divides positive and multiplies negative logits.
        repetition: f32,
        /// Subtracted once.
        presence: f32,
        /// Subtracted for each occurrence.
        frequency: f32,
        /// How far back to look.
        last_n: usize,
    },
    /// Keeps the `k` largest logits.
    TopK(usize),
    /// Locally typical sampling (Meister et al. 2022).
    Typical(f32),
    /// Nucleus sampling (Holtzman et al. 2020).
    TopP(f32),
    /// Drops tokens below a fraction of the largest probability.
    MinP(f32),
    /// Penalises repeated sequences.
    Dry(Dry, Breakers),
    /// Keeps logits within this many standard deviations of the largest (Tang et al. 2024).
    TopNSigma(f32),
    /// Excludes top choices.
    Xtc(Xtc),
    /// Divides the logits.
    Temperature(f32),
    /// Divides the logits by a temperature near this one that follows the entropy.
    DynamicTemperature(f32, DynamicTemperature),
    /// A stage that is defined outside of this crate.
    Own(OwnStage),
}

/// Context of stages besides the candidates.
#[derive(Debug)]
pub struct StageContext<'a> {
    /// Every token so far, oldest first.
    pub history: &'a [u32],
    /// Number of them that belong to the prompt.
    pub n_prompt: usize,
    /// Source of random numbers for stages that draw.
    pub rng: &'a mut Rng,
}

/// A user-defined stage.
pub trait SamplerStage: fmt::Debug + Send + Sync {
    /// Changes logits or drops candidates, and leaves at least one. `history` holds every token so far, oldest first.
    fn apply(&self, candidates: &mut Vec<TokenCandidate>, history: &[u32]);
}

/// Somebody's own stage. Two are equal if they are the same object.
#[derive(Clone, Debug)]
pub struct OwnStage(Arc<dyn SamplerStage>);

impl OwnStage {
    /// A stage that does that.
    pub fn new(stage: impl SamplerStage + 'static) -> OwnStage {
        OwnStage(Arc::new(stage))
    }
}

impl PartialEq for OwnStage {
    fn eq(&self, other: &OwnStage) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl BuiltinStage {
    /// Applies the stage.
    pub fn apply(&self, candidates: &mut Vec<TokenCandidate>, context: &mut StageContext<'_>) {
        let history = context.history;
        match self {
            BuiltinStage::LogitBias(bias) => logit_bias(candidates, bias),
            BuiltinStage::Banned(banned) => banned.apply(candidates, context),
            BuiltinStage::Penalties {
                repetition,
                presence,
                frequency,
                last_n,
            } => {
                let recent = &history[history.len().saturating_sub(*last_n)..];
                penalties(candidates, recent, [*repetition, *presence, *frequency]);
            }
            BuiltinStage::Own(own) => own.0.apply(candidates, history),
            BuiltinStage::TopK(k) => top_k(candidates, (*k).max(1)),
            BuiltinStage::Typical(p) => typical(candidates, *p),
            BuiltinStage::TopP(p) => top_p(candidates, *p),
            BuiltinStage::MinP(p) => min_p(candidates, *p),
            BuiltinStage::Dry(dry, breakers) => dry::apply(candidates, history, dry, breakers),
            BuiltinStage::TopNSigma(n) => top_n_sigma(candidates, *n),
            BuiltinStage::Xtc(xtc) => exclude_top_choices(candidates, *xtc, context.rng),
            BuiltinStage::Temperature(t) => divide(candidates, *t),
            BuiltinStage::DynamicTemperature(t, by) => dynamic_temperature(candidates, *t, *by),
        }
    }
}

/// Larger logit first; the smaller id wins a tie, so that every chain is deterministic.
fn by_logit(a: &TokenCandidate, b: &TokenCandidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

fn logit_bias(candidates: &mut [TokenCandidate], bias: &[(u32, f32)]) {
    let bias: HashMap<u32, f32> = bias.iter().copied().collect();
    for candidate in candidates {
        if let Some(bias) = bias.get(&candidate.token) {
            candidate.logit += bias;
        }
    }
}

fn penalties(candidates: &mut [TokenCandidate], recent: &[u32], factors: [f32; 3]) {
    let [repetition, presence, frequency] = factors;
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for token in recent {
        *counts.entry(*token).or_default() += 1;
    }
    for candidate in candidates {
        let Some(&count) = counts.get(&candidate.token) else {
            continue;
        };
        let logit = &mut candidate.logit;
        *logit = if *logit > 0.0 {
            *logit / repetition
        } else {
            *logit * repetition
        };
        *logit -= presence + count as f32 * frequency;
    }
}

/// Up to this many are found without sorting all.
pub(super) const FEW: usize = 256;

/// As [`BuiltinStage::TopK`] of all, the largest first.
pub(super) fn largest(logits: &[f32], k: usize, out: &mut Vec<TokenCandidate>) {
    // The list grows to twice the wanted size before its smaller half is dropped.
    let mut least = f32::NEG_INFINITY;
    for (i, chunk) in logits.chunks(64).enumerate() {
        // Equal ones come later, and the smaller id wins.
        let any = chunk
            .iter()
            .fold(false, |any, logit| any | (*logit > least));
        if !any {
            continue;
        }
        // Until some were dropped, `least` is below all.
        let kept = chunk
            .iter()
            .enumerate()
            .filter(|(_, logit)| **logit > least);
        out.extend(kept.map(|(j, logit)| TokenCandidate {
            token: (i * 64 + j) as u32,
            logit: *logit,
        }));
        if out.len() >= 2 * k.max(32) {
            out.select_nth_unstable_by(k - 1, by_logit);
            out.truncate(k);
            least = out
                .iter()
                .fold(f32::INFINITY, |least, c| least.min(c.logit));
            if least == 0.0 {
                // 0 goes before -0, though neither is larger than the other.
                least = -f32::from_bits(1);
            }
        }
    }
    out.sort_unstable_by(by_logit);
    out.truncate(k);
}

fn top_k(candidates: &mut Vec<TokenCandidate>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, by_logit);
        candidates.truncate(k);
    }
}

/// Probabilities of the candidates, largest first; sorts them.
pub(super) fn sorted_probabilities(candidates: &mut [TokenCandidate]) -> Vec<f64> {
    candidates.sort_unstable_by(by_logit);
    let max = candidates.first().map_or(0.0, |c| c.logit as f64);
    let mut p: Vec<f64> = candidates
        .iter()
        .map(|c| (c.logit as f64 - max).exp())
        .collect();
    let sum: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= sum);
    p
}

/// The number of leading entries of `p` needed to reach `mass`.
fn prefix_reaching(p: impl Iterator<Item = f64>, mass: f32) -> usize {
    let mut sum = 0.0;
    let mut count = 0;
    for p in p {
        sum += p;
        count += 1;
        if sum >= mass as f64 {
            break;
        }
    }
    count.max(1)
}

fn top_p(candidates: &mut Vec<TokenCandidate>, mass: f32) {
    let p = sorted_probabilities(candidates);
    candidates.truncate(prefix_reaching(p.into_iter(), mass));
}

fn min_p(candidates: &mut Vec<TokenCandidate>, fraction: f32) {
    let max = candidates
        .iter()
        .map(|c| c.logit)
        .fold(f32::NEG_INFINITY, f32::max);
    let threshold = max + fraction.ln();
    // A fraction of 1 keeps the likeliest: max + ln 1 = max.
    candidates.retain(|c| c.logit >= threshold);
}

fn typical(candidates: &mut Vec<TokenCandidate>, mass: f32) {
    let p = sorted_probabilities(candidates);
    let surprise = |p: f64| if p > 0.0 { -p.ln() } else { f64::INFINITY };
    let entropy: f64 = p
        .iter()
        .filter(|p| **p > 0.0)
        .map(|&p| p * surprise(p))
        .sum();
    let mut order: Vec<usize> = (0..p.len()).collect();
    let distance = |i: &usize| (surprise(p[*i]) - entropy).abs();
    // A stable sort: equal distances stay in order of probability.
    order.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    order.truncate(prefix_reaching(order.iter().map(|&i| p[i]), mass));
    *candidates = order.into_iter().map(|i| candidates[i]).collect();
}

fn top_n_sigma(candidates: &mut Vec<TokenCandidate>, n: f32) {
    let logits = || {
        candidates
            .iter()
            .map(|c| f64::from(c.logit))
            .filter(|x| *x > f64::from(RULED_OUT))
    };
    let count = logits().count().max(1) as f64;
    let mean = logits().sum::<f64>() / count;
    let variance = logits().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let max = logits().fold(f64::NEG_INFINITY, f64::max);
    let least = max - f64::from(n) * variance.sqrt();
    if max.is_finite() {
        candidates.retain(|c| f64::from(c.logit) >= least);
    }
}

fn exclude_top_choices(candidates: &mut Vec<TokenCandidate>, xtc: Xtc, rng: &mut Rng) {
    if candidates.len() < 2 || rng.unit() >= f64::from(xtc.probability) {
        return;
    }
    let p = sorted_probabilities(candidates);
    let n_top = p.iter().take_while(|p| **p as f32 >= xtc.threshold).count();
    candidates.drain(..n_top.saturating_sub(1));
}

fn divide(candidates: &mut [TokenCandidate], temperature: f32) {
    candidates.iter_mut().for_each(|c| c.logit /= temperature);
}

fn dynamic_temperature(candidates: &mut Vec<TokenCandidate>, middle: f32, by: DynamicTemperature) {
    let n = candidates.iter().filter(|c| c.logit > RULED_OUT).count();
    if n < 2 {
        return;
    }
    let p = sorted_probabilities(candidates);
    let surprises = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln());
    let share = surprises.sum::<f64>() / (n as f64).ln();
    let least = f64::from((middle - by.range).max(0.0));
    let most = f64::from(middle + by.range);
    let temperature = least + (most - least) * share.powf(f64::from(by.exponent));
    // Below that an f32 has no quotient: the likeliest alone.
    match temperature as f32 {
        t if t < 1e-6 => candidates.truncate(1),
        t => divide(candidates, t),
    }
}

/// Draws in proportion to the softmax of the remaining candidates.
pub(super) fn draw(candidates: &[TokenCandidate], rng: &mut Rng) -> u32 {
    let max = candidates
        .iter()
        .map(|c| c.logit)
        .fold(f32::NEG_INFINITY, f32::max) as f64;
    let weight = |c: &TokenCandidate| (c.logit as f64 - max).exp();
    let total: f64 = candidates.iter().map(weight).sum();
    let mut left = rng.unit() * total;
    for candidate in candidates {
        left -= weight(candidate);
        if left < 0.0 {
            return candidate.token;
        }
    }
    // Rounding can leave a crumb: it belongs to the last candidate that has any weight.
    let last = candidates.iter().rev().find(|c| weight(c) > 0.0);
    last.or(candidates.first()).map_or(0, |c| c.token)
}
