//! How text is chosen and when it ends.

use crate::{Cancel, Error, Model, Result};
use millrace_runtime::sampling::{Dry, DynamicTemperature, Mirostat, StageKind, Xtc};
use millrace_runtime::{GenerateParams, SamplingParams};
use std::time::{SystemTime, UNIX_EPOCH};

/// How a generation samples and when it ends: a builder. Unset options come from the model's files, else from the
/// defaults below.
///
/// ```
/// use millrace::{Model, Options};
///
/// # fn main() -> Result<(), millrace::Error> {
/// let session = Model::open("demo")?.on("cpu")?;
/// let options = Options::new().temperature(0.7).top_k(20).seed(7).max_tokens(12);
/// let once = session.generate_with("Once upon a time", &options)?;
/// let again = session.generate_with("Once upon a time", &options)?;
/// assert_eq!(once.text, again.text);
/// assert!(once.tokens.len() <= 12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    penalty_last_n: Option<usize>,
    top_n_sigma: f32,
    xtc: Xtc,
    dynatemp: DynamicTemperature,
    dry: Dry,
    mirostat: Option<Mirostat>,
    order: Option<Vec<StageKind>>,
    logit_bias: Vec<(u32, f32)>,
    banned_texts: Vec<String>,
    seed: Option<u64>,
    max_tokens: Option<usize>,
    stop: Vec<String>,
    stop_tokens: Vec<u32>,
    ignore_end: bool,
    show_special: bool,
    cancel: Cancel,
}

impl Options {
    /// The recommendations of the model's files, without a limit on length.
    pub fn new() -> Options {
        Options::default()
    }

    /// Always the likeliest token.
    pub fn greedy() -> Options {
        Options::new().temperature(0.0)
    }

    /// Temperature: higher is more varied; 0 always takes the likeliest token. Default 0.8.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Options {
        self.temperature = Some(temperature);
        self
    }

    /// Samples from this many of the likeliest tokens; 0 for all. Default 40.
    #[must_use]
    pub fn top_k(mut self, k: usize) -> Options {
        self.top_k = Some(k);
        self
    }

    /// Samples from the likeliest tokens that together have this probability. Default 0.95.
    #[must_use]
    pub fn top_p(mut self, p: f32) -> Options {
        self.top_p = Some(p);
        self
    }

    /// Leaves out tokens less likely than this times the likeliest. Default 0.05.
    #[must_use]
    pub fn min_p(mut self, p: f32) -> Options {
        self.min_p = Some(p);
        self
    }

    /// Samples from tokens of typical surprise up to this probability; 1 is off. Default 1.
    #[must_use]
    pub fn typical_p(mut self, p: f32) -> Options {
        self.typical_p = Some(p);
        self
    }

    /// Divides positive logits of tokens that appeared lately by it, and multiplies negative ones; 1 is off. Default
    /// 1.
    #[must_use]
    pub fn repetition_penalty(mut self, penalty: f32) -> Options {
        self.repetition_penalty = Some(penalty);
        self
    }

    /// Subtracted from the logits of tokens that appeared lately; 0 is off. Default 0.
    #[must_use]
    pub fn presence_penalty(mut self, penalty: f32) -> Options {
        self.presence_penalty = Some(penalty);
        self
    }

    /// Subtracted from the logits of tokens for each time they appeared lately; 0 is off. Default 0.
    #[must_use]
    pub fn frequency_penalty(mut self, penalty: f32) -> Options {
        self.frequency_penalty = Some(penalty);
        self
    }

    /// How many tokens back the penalties look. Default 64.
    #[must_use]
    pub fn penalty_last_n(mut self, n_tokens: usize) -> Options {
        self.penalty_last_n = Some(n_tokens);
        self
    }

    /// Samples from tokens whose logits are within this many standard deviations of the largest; 0 is off. Default 0.
    #[must_use]
    pub fn top_n_sigma(mut self, n: f32) -> Options {
        self.top_n_sigma = n;
        self
    }

    /// Sometimes excludes the likeliest tokens. Default never.
    #[must_use]
    pub fn xtc(mut self, xtc: Xtc) -> Options {
        self.xtc = xtc;
        self
    }

    /// Lets the temperature follow the entropy. Off by default.
    #[must_use]
    pub fn dynamic_temperature(mut self, dynatemp: DynamicTemperature) -> Options {
        self.dynatemp = dynatemp;
        self
    }

    /// Penalises tokens that would continue a repetition. Off by default.
    #[must_use]
    pub fn dry(mut self, dry: Dry) -> Options {
        self.dry = dry;
        self
    }

    /// Keeps the surprise of the text near a target, in place of the samplers that leave tokens out. Off by default.
    #[must_use]
    pub fn mirostat(mut self, mirostat: Mirostat) -> Options {
        self.mirostat = Some(mirostat);
        self
    }

    /// The samplers between biases and the draw, in this order; unnamed ones are left out. Default
    /// [`StageKind::USUAL`].
    #[must_use]
    pub fn order(mut self, order: &[StageKind]) -> Options {
        self.order = Some(order.to_vec());
        self
    }

    /// A text that the answer must not contain. May be repeated.
    #[must_use]
    pub fn ban(mut self, text: impl Into<String>) -> Options {
        self.banned_texts.push(text.into());
        self
    }

    /// Adds to the logit of a token; minus infinity bans it. May be repeated.
    #[must_use]
    pub fn logit_bias(mut self, token: u32, bias: f32) -> Options {
        self.logit_bias.push((token, bias));
        self
    }

    /// Seed of the draws: equal seeds give equal texts. By default each generation takes a new one.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Options {
        self.seed = Some(seed);
        self
    }

    /// Maximum number of tokens to generate. By default the model or a full context ends the text.
    #[must_use]
    pub fn max_tokens(mut self, n_tokens: usize) -> Options {
        self.max_tokens = Some(n_tokens);
        self
    }

    /// Ends the text before this one appears. May be repeated.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Options {
        self.stop.push(text.into());
        self
    }

    /// Ends the text before this token, in addition to the model's own. May be repeated.
    #[must_use]
    pub fn stop_token(mut self, token: u32) -> Options {
        self.stop_tokens.push(token);
        self
    }

    /// Whether to go on past the model's end-of-text tokens.
    #[must_use]
    pub fn ignore_end(mut self, ignore: bool) -> Options {
        self.ignore_end = ignore;
        self
    }

    /// Whether control tokens show in the text, including the one that ends it.
    #[must_use]
    pub fn show_special(mut self, show: bool) -> Options {
        self.show_special = show;
        self
    }

    /// Handle that stops the work from another thread. A stopped generation keeps the text written so far.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Options {
        self.cancel = cancel.clone();
        self
    }

    /// The handle set by [`cancel`](Options::cancel), or a new one.
    pub fn cancel_handle(&self) -> &Cancel {
        &self.cancel
    }

    /// All sampling parameters of a generation with this model, checked. They include the recommendations of the
    /// model's files and, if none was set, a new seed.
    ///
    /// # Errors
    /// A value outside its range, a token that the vocabulary does not have, an empty stop text.
    pub fn params(&self, model: &Model) -> Result<GenerateParams> {
        let sampling = self.sampling(model.loaded().recommended_sampling()?);
        sampling.check()?;
        let vocab_size = model.vocab_size();
        let beyond = |(token, _): &&(u32, f32)| *token as usize >= vocab_size;
        if let Some(&(token, _)) = sampling.logit_bias.iter().find(beyond) {
            return Err(Error::BiasBeyond { token, vocab_size });
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(Error::EmptyStop);
        }
        Ok(GenerateParams {
            sampling,
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            stop_tokens: self.stop_tokens.clone(),
            ignore_end: self.ignore_end,
            show_special: self.show_special,
        })
    }

    /// The sampling to use with a model that recommends `recommended`.
    fn sampling(&self, recommended: Option<SamplingParams>) -> SamplingParams {
        let base = recommended.unwrap_or(SamplingParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            ..SamplingParams::default()
        });
        SamplingParams {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            penalty_last_n: self.penalty_last_n.unwrap_or(base.penalty_last_n),
            top_n_sigma: self.top_n_sigma,
            xtc: self.xtc,
            dynatemp: self.dynatemp,
            dry: self.dry.clone(),
            mirostat: self.mirostat,
            order: self.order.clone().unwrap_or(base.order),
            banned_texts: self.banned_texts.clone(),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or_else(new_seed),
        }
    }
}

/// A random seed. Short, so that people can repeat it.
fn new_seed() -> u64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mixed = since_1970.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_beats_recommended_beats_default() {
        let recommended = SamplingParams {
            temperature: 0.6,
            top_k: 20,
            typical_p: 0.5,
            repetition_penalty: 1.1,
            presence_penalty: 0.25,
            frequency_penalty: 0.75,
            penalty_last_n: 128,
            ..Default::default()
        };
        let penalties = |options: &Options| {
            let p = options.sampling(Some(recommended.clone()));
            let numbers = [
                p.typical_p,
                p.repetition_penalty,
                p.presence_penalty,
                p.frequency_penalty,
            ];
            (numbers, p.penalty_last_n)
        };
        let unsaid = Options::new();
        assert_eq!(penalties(&unsaid), ([0.5, 1.1, 0.25, 0.75], 128));
        let off = Options::new()
            .typical_p(1.0)
            .repetition_penalty(1.0)
            .presence_penalty(0.0)
            .frequency_penalty(0.0)
            .penalty_last_n(64);
        assert_eq!(penalties(&off), ([1.0, 1.0, 0.0, 0.0], 64));
        let warm = Options::new().temperature(0.3);
        let resolved = warm.sampling(Some(recommended.clone()));
        assert_eq!((resolved.temperature, resolved.top_k), (0.3, 20));
        let greedy = Options::greedy().sampling(Some(recommended));
        assert_eq!(greedy.temperature, 0.0);
        let default = Options::new().seed(7).sampling(None);
        assert_eq!(
            (default.temperature, default.top_k, default.seed),
            (0.8, 40, 7)
        );
    }
}
