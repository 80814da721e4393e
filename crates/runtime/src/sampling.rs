//! From logits to a token: a chain of stages the caller builds.
//!
//! Stages work on a list of candidates `(token, logit)`. [`SamplingParams::chain`] gives the usual
//! order: bias, penalties, top-k, typical, top-p, min-p, temperature, then the draw.

mod rng;
mod stages;

pub use rng::Rng;
pub use stages::{BuiltinStage, OwnStage, SamplerStage, TokenCandidate};

use crate::Error;
use millrace_kernels::elementwise::sum_exp;

/// What a user may ask of the sampler. The default is greedy.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// 0 is greedy; otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the `top_k` likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the likeliest tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than `min_p` times the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Keep the tokens whose surprise is nearest the entropy, up to this probability; 1 keeps all.
    pub typical_p: f32,
    /// Divide positive (multiply negative) logits of recent tokens by it; 1 is off.
    pub repetition_penalty: f32,
    /// Subtract from logits of recent tokens; 0 is off.
    pub presence_penalty: f32,
    /// Subtract, times its count, from logits of recent tokens; 0 is off.
    pub frequency_penalty: f32,
    /// How many tokens back the penalties look; 0 is off.
    pub penalty_last_n: usize,
    /// Added to the logits of single tokens; `-inf` bans one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// Refuses values outside their ranges.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |option, found: f32, expected| {
            Err(Error::BadOption {
                option,
                found: found.to_string(),
                expected,
            })
        };
        let unit = 0.0..=1.0;
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return bad("temperature", self.temperature, "0 or more");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return bad("top-p", self.top_p, "over 0 and at most 1");
        }
        if !unit.contains(&self.min_p) {
            return bad("min-p", self.min_p, "from 0 to 1");
        }
        if !(self.typical_p > 0.0 && self.typical_p <= 1.0) {
            return bad("typical-p", self.typical_p, "over 0 and at most 1");
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return bad("repetition-penalty", self.repetition_penalty, "over 0");
        }
        if !self.presence_penalty.is_finite() {
            return bad("presence-penalty", self.presence_penalty, "a finite number");
        }
        if !self.frequency_penalty.is_finite() {
            return bad(
                "frequency-penalty",
                self.frequency_penalty,
                "a finite number",
            );
        }
        if let Some((_, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            return bad("logit-bias", *bias, "a number");
        }
        Ok(())
    }

    /// The usual chain; stages that would do nothing are left out.
    pub fn chain(&self) -> Vec<BuiltinStage> {
        let mut chain = Vec::new();
        if !self.logit_bias.is_empty() {
            chain.push(BuiltinStage::LogitBias(self.logit_bias.clone()));
        }
        let penalties = self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0;
        if penalties && self.penalty_last_n > 0 {
            chain.push(BuiltinStage::Penalties {
                repetition: self.repetition_penalty,
                presence: self.presence_penalty,
                frequency: self.frequency_penalty,
                last_n: self.penalty_last_n,
            });
        }
        if self.temperature == 0.0 {
            chain.push(BuiltinStage::TopK(1));
            return chain;
        }
        if self.top_k > 0 {
            chain.push(BuiltinStage::TopK(self.top_k));
        }
        if self.typical_p < 1.0 {
            chain.push(BuiltinStage::Typical(self.typical_p));
        }
        if self.top_p < 1.0 {
            chain.push(BuiltinStage::TopP(self.top_p));
        }
        if self.min_p > 0.0 {
            chain.push(BuiltinStage::MinP(self.min_p));
        }
        chain.push(BuiltinStage::Temperature(self.temperature));
        chain
    }
}

/// A chain with its random state and the tokens it has seen.
#[derive(Clone, Debug)]
pub struct Sampler {
    stages: Vec<BuiltinStage>,
    rng: Rng,
    history: Vec<u32>,
    candidates: Vec<TokenCandidate>,
}

impl Sampler {
    /// A sampler of the usual chain.
    pub fn new(params: &SamplingParams) -> Result<Sampler, Error> {
        params.check()?;
        Ok(Sampler::with_stages(params.chain(), params.seed))
    }

    /// A sampler of any chain.
    pub fn with_stages(stages: Vec<BuiltinStage>, seed: u64) -> Sampler {
        Sampler {
            stages,
            rng: Rng::new(seed),
            history: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// Becomes what another sampler is, in its own memory: the next draws are the same.
    pub fn copy_from(&mut self, other: &Sampler) {
        self.stages.clone_from(&other.stages);
        self.rng.clone_from(&other.rng);
        self.history.clone_from(&other.history);
    }

    /// Tells the sampler of a token (of the prompt, or chosen) so that penalties see it.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Draws a token from `logits: [vocab]`. The same logits, history and seed give the same token.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        if let [BuiltinStage::TopK(1)] = self.stages[..] {
            return argmax(logits);
        }
        self.candidates.clear();
        let mut stages = &self.stages[..];
        match stages {
            // A vocabulary is long, and most of it need not be copied to be left out.
            [BuiltinStage::TopK(k), rest @ ..] if *k <= stages::FEW => {
                stages::largest(logits, (*k).max(1), &mut self.candidates);
                stages = rest;
            }
            _ => {
                let all = logits.iter().enumerate();
                self.candidates
                    .extend(all.map(|(i, &logit)| TokenCandidate {
                        token: i as u32,
                        logit,
                    }));
            }
        }
        for stage in stages {
            stage.apply(&mut self.candidates, &self.history);
        }
        stages::draw(&self.candidates, &mut self.rng)
    }
}

/// The token with the largest logit; the smallest id wins a tie.
pub fn argmax(logits: &[f32]) -> u32 {
    let largest = max(logits);
    let at = logits.iter().position(|logit| *logit == largest);
    at.unwrap_or(0) as u32
}

/// Numbers that are looked at together, which compilers make vectors of.
const LANES: usize = 32;

/// The largest of numbers of which none is NaN; negative infinity of none.
fn max(numbers: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane = if number > lane { *number } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest);
    all.fold(f32::NEG_INFINITY, |max, number| max.max(*number))
}

/// Whether no number is NaN or infinite.
pub(crate) fn all_finite(numbers: &[f32]) -> bool {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [0u32; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            // All bits of the exponent are set in NaN and infinities, and in nothing else.
            *lane |= u32::from(number.to_bits() & 0x7F80_0000 == 0x7F80_0000);
        }
    }
    lanes.iter().all(|lane| *lane == 0) && rest.iter().all(|number| number.is_finite())
}

/// Natural logarithms of the softmax of `logits`, computed in f64.
pub fn log_softmax(logits: &[f32]) -> impl Fn(u32) -> f64 + '_ {
    let max = max(logits);
    let log_sum = f64::from(max) + sum_exp(logits, max).ln();
    move |token| f64::from(logits[token as usize]) - log_sum
}

/// The `n` tokens with the largest logits, the largest first; the smaller id wins a tie.
pub fn likeliest(logits: &[f32], n: usize) -> Vec<u32> {
    let mut candidates = Vec::new();
    if n > 0 {
        stages::largest(logits, n, &mut candidates);
    }
    candidates.iter().map(|candidate| candidate.token).collect()
}

#[cfg(test)]
mod tests;
