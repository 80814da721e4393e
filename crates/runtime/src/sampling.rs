//! From logits to a token: a chain of stages the caller builds.
//!
//! Stages work on a list of candidates `(token, logit)`. [`SamplingParams::chain`] returns them in the order of the
//! parameters: biases and banned texts, then as [`StageKind::USUAL`] unless it is changed, then the draw.

mod dry;
mod mirostat;
mod order;
mod params;
mod rng;
mod stages;
mod texts;

use std::sync::Arc;

pub use order::{StageKind, UnknownStage};
pub use params::{Dry, DynamicTemperature, Mirostat, SamplingParams, Xtc};
pub use rng::Rng;
pub use stages::{BuiltinStage, OwnStage, SamplerStage, StageContext, TokenCandidate};
pub use texts::{BannedTexts, Breakers, TokenTexts};

use crate::Error;
use millrace_kernels::elementwise::sum_exp;
use mirostat::MirostatState;

/// A chain with its random state and the tokens it has seen.
#[derive(Clone, Debug)]
pub struct Sampler {
    stages: Vec<BuiltinStage>,
    mirostat: Option<MirostatState>,
    rng: Rng,
    history: Vec<u32>,
    n_prompt: usize,
    candidates: Vec<TokenCandidate>,
}

impl Sampler {
    /// A sampler of the parameters' chain, which may read the texts of tokens.
    ///
    /// # Errors
    /// A value outside its range; stages that need texts without any.
    pub fn new(
        params: &SamplingParams,
        texts: Option<&Arc<dyn TokenTexts>>,
    ) -> Result<Sampler, Error> {
        params.check()?;
        if let (Some(option), None) = (params.reads_texts(), texts) {
            return Err(Error::BadOption {
                option,
                found: "a text".to_owned(),
                expected: "left out where there is no tokenizer",
            });
        }
        let mirostat = params.mirostat.filter(|_| params.temperature > 0.0);
        Ok(Sampler {
            mirostat: mirostat.map(MirostatState::new),
            ..Sampler::with_stages(params.chain(texts), params.seed)
        })
    }

    /// A sampler of any chain.
    pub fn with_stages(stages: Vec<BuiltinStage>, seed: u64) -> Sampler {
        Sampler {
            stages,
            mirostat: None,
            rng: Rng::new(seed),
            history: Vec::new(),
            n_prompt: 0,
            candidates: Vec::new(),
        }
    }

    /// Copies another sampler, reusing this one's memory: the next draws are the same.
    pub fn copy_from(&mut self, other: &Sampler) {
        self.stages.clone_from(&other.stages);
        self.mirostat.clone_from(&other.mirostat);
        self.rng.clone_from(&other.rng);
        self.history.clone_from(&other.history);
        self.n_prompt = other.n_prompt;
    }

    /// Adds the prompt, or more of it, to the history, so that penalties see it. It may contain banned texts.
    pub fn read(&mut self, prompt: impl IntoIterator<Item = u32>) {
        self.history.extend(prompt);
        self.n_prompt = self.history.len();
    }

    /// Tells the sampler of a token that was chosen.
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
            // A vocabulary is long, and most of it can be left out without a copy.
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
        let mut context = StageContext {
            history: &self.history,
            n_prompt: self.n_prompt,
            rng: &mut self.rng,
        };
        for stage in stages {
            stage.apply(&mut self.candidates, &mut context);
        }
        match &mut self.mirostat {
            Some(mirostat) => mirostat.draw(&mut self.candidates, &mut self.rng),
            None => stages::draw(&self.candidates, &mut self.rng),
        }
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

/// The largest of numbers without NaN; negative infinity if there are none.
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
pub fn all_finite(numbers: &[f32]) -> bool {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [0u32; LANES];
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            // NaN and infinities are exactly the numbers with all exponent bits set.
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
mod distributions;
#[cfg(test)]
mod tests;
