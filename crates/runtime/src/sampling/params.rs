//! Options of the sampler for users.

use std::sync::Arc;

use super::order::StageKind;
use super::stages::BuiltinStage;
use super::texts::{BannedTexts, Breakers, TokenTexts};
use crate::Error;

/// Options of the sampler for users. The default is greedy.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// 0 is greedy; otherwise logits are divided by it.
    pub temperature: f32,
    /// A temperature that follows the entropy.
    pub dynatemp: DynamicTemperature,
    /// Keep the `top_k` likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the likeliest tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than `min_p` times the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Keep the tokens whose surprise is nearest the entropy, up to this probability; 1 keeps all.
    pub typical_p: f32,
    /// Keep the tokens whose logits are within this many standard deviations of the largest; 0 keeps all.
    pub top_n_sigma: f32,
    /// Exclude the likeliest tokens now and then.
    pub xtc: Xtc,
    /// Divide positive (multiply negative) logits of recent tokens by it; 1 is off.
    pub repetition_penalty: f32,
    /// Subtract from logits of recent tokens; 0 is off.
    pub presence_penalty: f32,
    /// Subtract, times its count, from logits of recent tokens; 0 is off.
    pub frequency_penalty: f32,
    /// How many tokens back the penalties look; 0 is off.
    pub penalty_last_n: usize,
    /// Penalise tokens that would go on with a repetition.
    pub dry: Dry,
    /// Keep the surprise of the text near a target, in place of the stages that drop tokens.
    pub mirostat: Option<Mirostat>,
    /// Added to the logits of single tokens; `-inf` bans one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Texts that the answer must not contain.
    pub banned_texts: Vec<String>,
    /// The stages between biases and the draw, in this order; those not named are left out.
    pub order: Vec<StageKind>,
    /// Seed of the draws.
    pub seed: u64,
}

/// "Exclude top choices": with some probability, all tokens that reach a threshold except the least likely one are
/// dropped, if two or more reach it (p-e-w, text-generation-webui pull request 6335, 2024).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Xtc {
    /// How often; 0 is never.
    pub probability: f32,
    /// The probability that a token must reach to be a top choice. Over 0.5 there are never two.
    pub threshold: f32,
}

impl Default for Xtc {
    fn default() -> Self {
        Xtc {
            probability: 0.0,
            threshold: 0.1,
        }
    }
}

/// A temperature from `temperature - range` to `temperature + range`: `(H / ln n) ^ exponent` of the way, for the entropy
/// `H` of the `n` remaining tokens (kalomaze, 2023).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DynamicTemperature {
    /// How far from the temperature; 0 is off.
    pub range: f32,
    /// How the entropy maps to it.
    pub exponent: f32,
}

impl Default for DynamicTemperature {
    fn default() -> Self {
        DynamicTemperature {
            range: 0.0,
            exponent: 1.0,
        }
    }
}

/// "Don't repeat yourself": `multiplier * base ^ (n - allowed_length)` is subtracted from the logit of a token that
/// would make a repeated sequence of `n` tokens longer, if `n` is at least `allowed_length` (p-e-w, text-generation-webui
/// pull request 5677, 2024).
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Dry {
    /// 0 is off.
    pub multiplier: f32,
    /// At least 1.
    pub base: f32,
    /// Repetitions up to this length cost nothing.
    pub allowed_length: usize,
    /// How many tokens back it looks; 0 is off.
    pub last_n: usize,
    /// A repetition does not reach across these texts, and a token that has one is never penalised.
    pub breakers: Vec<String>,
}

impl Default for Dry {
    fn default() -> Self {
        Dry {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            last_n: usize::MAX,
            breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
        }
    }
}

/// Mirostat 2 (Basu et al. 2021, algorithm 2): tokens with a surprise over a bound are dropped, and the bound follows the
/// surprise of the drawn tokens. Surprises are in bits.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Mirostat {
    /// The surprise to keep.
    pub tau: f32,
    /// How fast the bound follows.
    pub eta: f32,
}

impl Default for Mirostat {
    fn default() -> Self {
        Mirostat { tau: 5.0, eta: 0.1 }
    }
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 0.0,
            dynatemp: DynamicTemperature::default(),
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            xtc: Xtc::default(),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            dry: Dry::default(),
            mirostat: None,
            logit_bias: Vec::new(),
            banned_texts: Vec::new(),
            order: StageKind::USUAL.to_vec(),
            seed: 0,
        }
    }
}

/// A number with a name, whether it is in its range, and the range in words.
type Check = (&'static str, f32, bool, &'static str);

impl SamplingParams {
    /// Refuses values outside their ranges.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = self.numbers().into_iter().find(|(_, _, is_in, _)| !is_in);
        if let Some((option, found, _, expected)) = wrong {
            return Err(bad(option, &found.to_string(), expected));
        }
        if let Some((_, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            return Err(bad("logit-bias", &bias.to_string(), "a number"));
        }
        for (option, texts) in [
            ("dry-sequence-breaker", &self.dry.breakers),
            ("ban", &self.banned_texts),
        ] {
            if texts.iter().any(String::is_empty) {
                return Err(bad(option, "an empty text", "a text"));
            }
        }
        let twice = |(i, kind): (usize, &StageKind)| self.order[..i].contains(kind);
        if let Some(i) = self.order.iter().enumerate().position(twice) {
            let name = self.order[i].name();
            return Err(bad(
                "samplers",
                &format!("{name} twice"),
                "each sampler once",
            ));
        }
        Ok(())
    }

    fn numbers(&self) -> Vec<Check> {
        let finite = |x: f32, least: f32| x.is_finite() && x >= least;
        let unit = |x: f32| (0.0..=1.0).contains(&x);
        let share = |x: f32| x > 0.0 && x <= 1.0;
        let (dry, xtc, dynatemp) = (&self.dry, self.xtc, self.dynatemp);
        let mirostat = self.mirostat.unwrap_or_default();
        let repetition = self.repetition_penalty;
        let number = |name, x: f32| (name, x, x.is_finite(), "a finite number");
        let least = |name, x, least, words| (name, x, finite(x, least), words);
        const SHARE: &str = "over 0 and at most 1";
        const UNIT: &str = "from 0 to 1";
        const POSITIVE: &str = "a finite number, 0 or more";
        vec![
            least("temperature", self.temperature, 0.0, POSITIVE),
            least("dynatemp-range", dynatemp.range, 0.0, POSITIVE),
            least("dynatemp-exponent", dynatemp.exponent, 0.0, POSITIVE),
            ("top-p", self.top_p, share(self.top_p), SHARE),
            ("min-p", self.min_p, unit(self.min_p), UNIT),
            ("typical-p", self.typical_p, share(self.typical_p), SHARE),
            least("top-n-sigma", self.top_n_sigma, 0.0, POSITIVE),
            (
                "xtc-probability",
                xtc.probability,
                unit(xtc.probability),
                UNIT,
            ),
            ("xtc-threshold", xtc.threshold, unit(xtc.threshold), UNIT),
            (
                "repetition-penalty",
                repetition,
                repetition > 0.0 && repetition.is_finite(),
                "over 0",
            ),
            number("presence-penalty", self.presence_penalty),
            number("frequency-penalty", self.frequency_penalty),
            least("dry-multiplier", dry.multiplier, 0.0, POSITIVE),
            least("dry-base", dry.base, 1.0, "1 or more"),
            least("mirostat-tau", mirostat.tau, 0.0, POSITIVE),
            least("mirostat-eta", mirostat.eta, 0.0, POSITIVE),
        ]
    }

    /// The option, if any, that needs a stage to read the texts of tokens.
    pub(super) fn reads_texts(&self) -> Option<&'static str> {
        let dry = self.dry.multiplier > 0.0 && !self.dry.breakers.is_empty();
        match self.banned_texts.is_empty() {
            false => Some("ban"),
            true => dry.then_some("dry-sequence-breaker"),
        }
    }

    /// The chain; stages that would do nothing are left out. Without `texts` no text is banned, and none
    /// breaks a repetition.
    pub fn chain(&self, texts: Option<&Arc<dyn TokenTexts>>) -> Vec<BuiltinStage> {
        let mut chain = Vec::new();
        if !self.logit_bias.is_empty() {
            chain.push(BuiltinStage::LogitBias(self.logit_bias.clone()));
        }
        if let Some(texts) = texts.filter(|_| !self.banned_texts.is_empty()) {
            let banned = BannedTexts::new(&self.banned_texts, Arc::clone(texts));
            chain.push(BuiltinStage::Banned(banned));
        }
        for kind in &self.order {
            // Greedy needs penalties only, and mirostat drops tokens itself.
            let is_wanted = match (self.temperature == 0.0, self.mirostat) {
                (false, None) => true,
                (true, _) => kind.is_penalty(),
                (false, Some(_)) => kind.is_penalty() || *kind == StageKind::Temperature,
            };
            chain.extend(self.stage(*kind, texts).filter(|_| is_wanted));
        }
        if self.temperature == 0.0 {
            chain.push(BuiltinStage::TopK(1));
        }
        chain
    }

    /// A stage, if it would do anything.
    fn stage(&self, kind: StageKind, texts: Option<&Arc<dyn TokenTexts>>) -> Option<BuiltinStage> {
        match kind {
            StageKind::Penalties => self.penalties(),
            StageKind::Dry => {
                let dry = &self.dry;
                let breakers = Breakers::new(&dry.breakers, texts.cloned());
                (dry.multiplier > 0.0 && dry.last_n > 0)
                    .then(|| BuiltinStage::Dry(dry.clone(), breakers))
            }
            StageKind::TopNSigma => {
                (self.top_n_sigma > 0.0).then_some(BuiltinStage::TopNSigma(self.top_n_sigma))
            }
            StageKind::TopK => (self.top_k > 0).then_some(BuiltinStage::TopK(self.top_k)),
            StageKind::Typical => {
                (self.typical_p < 1.0).then_some(BuiltinStage::Typical(self.typical_p))
            }
            StageKind::TopP => (self.top_p < 1.0).then_some(BuiltinStage::TopP(self.top_p)),
            StageKind::MinP => (self.min_p > 0.0).then_some(BuiltinStage::MinP(self.min_p)),
            StageKind::Xtc => (self.xtc.probability > 0.0 && self.xtc.threshold <= 0.5)
                .then_some(BuiltinStage::Xtc(self.xtc)),
            StageKind::Temperature => Some(match self.dynatemp.range > 0.0 {
                true => BuiltinStage::DynamicTemperature(self.temperature, self.dynatemp),
                false => BuiltinStage::Temperature(self.temperature),
            }),
        }
    }

    fn penalties(&self) -> Option<BuiltinStage> {
        let any = self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0;
        (any && self.penalty_last_n > 0).then_some(BuiltinStage::Penalties {
            repetition: self.repetition_penalty,
            presence: self.presence_penalty,
            frequency: self.frequency_penalty,
            last_n: self.penalty_last_n,
        })
    }
}

fn bad(option: &'static str, found: &str, expected: &'static str) -> Error {
    Error::BadOption {
        option,
        found: found.to_owned(),
        expected,
    }
}
