//! RoPE: from a configuration to rotation frequencies.

use super::{LongScaling, ModelConfig, RopeConfig, RopeScaling, YarnScaling};
use crate::Error;

/// The divisor that GGUF files have for a pair that does not rotate.
const STANDSTILL: f64 = 1e30;

impl RopeConfig {
    /// Unscaled RoPE with base `theta`.
    pub fn plain(theta: f32) -> RopeConfig {
        RopeConfig {
            theta,
            scaling: RopeScaling::None,
        }
    }

    /// Frequencies of the `n_rot/2` pairs: the angle of pair `i` at position `p` is
    /// `p · inv_freq[i]`, with `inv_freq[i] = theta^(-2i/n_rot)` divided by the scaling's
    /// factor of the pair.
    pub fn inv_freq(&self, n_rot: usize) -> Vec<f32> {
        let factors = self.factors(n_rot);
        let base = unscaled(self.theta, n_rot);
        base.zip(factors)
            .map(|(freq, factor)| (freq / factor) as f32)
            .collect()
    }

    /// Factor on cosines and sines.
    pub fn attention_factor(&self) -> f32 {
        match &self.scaling {
            RopeScaling::Yarn(yarn) => yarn.attention_factor,
            RopeScaling::Long(long) => long.attention_factor,
            _ => 1.0,
        }
    }

    /// Factor on the scores of attention beside their usual scale: YaRN's for queries and the same for keys, in
    /// families that have it.
    pub fn score_factor(&self) -> f32 {
        match &self.scaling {
            RopeScaling::Yarn(yarn) => yarn.score_mscale.map_or(1.0, |mscale| {
                let factor = YarnScaling::recommended_attention_factor(yarn.factor, mscale);
                factor * factor
            }),
            _ => 1.0,
        }
    }

    /// Tokens that a sequence may hold with these frequencies: beyond them the scaling asks for others, at every
    /// position. `None` without such a bound. `context_length` is the trained one.
    pub fn position_limit(&self, context_length: usize) -> Option<usize> {
        match &self.scaling {
            RopeScaling::Long(long) if !long.uses_long => Some(long.original_context),
            RopeScaling::Dynamic { .. } => Some(context_length),
            _ => None,
        }
    }

    /// Takes the frequencies for sequences of up to `n_tokens`, where the scaling has several.
    pub fn choose(&mut self, n_tokens: usize) {
        if let RopeScaling::Long(long) = &mut self.scaling {
            long.uses_long = n_tokens > long.original_context;
        }
    }

    /// Divisors of the unscaled frequencies of `n_rot` elements, one a pair, as GGUF's `rope_freqs.weight` holds
    /// them; `None` if the scaling does not need the tensor.
    pub fn gguf_factors(&self, n_rot: usize) -> Option<Vec<f32>> {
        match self.scaling {
            RopeScaling::Llama3 { .. }
            | RopeScaling::Factors(_)
            | RopeScaling::Proportional { .. } => Some(
                self.factors(n_rot)
                    .into_iter()
                    // A pair that does not rotate has no finite divisor; llama.cpp's converter writes 1e30.
                    .map(|factor| factor.min(STANDSTILL) as f32)
                    .collect(),
            ),
            _ => None,
        }
    }

    fn factors(&self, n_rot: usize) -> Vec<f64> {
        let n_pairs = n_rot / 2;
        let doubles = |factors: &[f32]| factors.iter().copied().map(f64::from).collect();
        match &self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => vec![1.0; n_pairs],
            RopeScaling::Linear { factor } => vec![f64::from(*factor); n_pairs],
            RopeScaling::Factors(factors) => doubles(factors),
            RopeScaling::Long(long) if long.uses_long => doubles(&long.long),
            RopeScaling::Long(long) => doubles(&long.short),
            RopeScaling::Yarn(yarn) => yarn.factors(self.theta, n_rot),
            RopeScaling::Proportional { factor, n_rotated } => (0..n_pairs)
                .map(|pair| match pair < *n_rotated {
                    true => f64::from(*factor),
                    false => f64::INFINITY,
                })
                .collect(),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                let llama3 = Llama3 {
                    factor: f64::from(*factor),
                    low: f64::from(*low_freq_factor),
                    high: f64::from(*high_freq_factor),
                    context: *original_context as f64,
                };
                unscaled(self.theta, n_rot)
                    .map(|freq| llama3.factor_of(freq))
                    .collect()
            }
        }
    }

    /// The parameters that give these explicit factors, as GGUF keeps only their result. They may be those of
    /// `llama3`, with the usual low 1 and high 4 and a power of two as original context. They may also be those of
    /// pairs that do not rotate.
    pub fn as_named(&self, n_rot: usize) -> Option<RopeConfig> {
        self.as_llama3(n_rot).or_else(|| self.as_proportional())
    }

    /// The parameters of pairs that do not rotate, behind others that do.
    pub(crate) fn as_proportional(&self) -> Option<RopeConfig> {
        let RopeScaling::Factors(found) = &self.scaling else {
            return None;
        };
        let stands = |factor: &f32| f64::from(*factor) >= 0.99 * STANDSTILL;
        let n_rotated = found.iter().position(stands).unwrap_or(found.len());
        let (turning, standing) = found.split_at(n_rotated);
        let factor = turning.first().copied().unwrap_or(1.0);
        let fits = standing.iter().all(stands) && turning.iter().all(|other| *other == factor);
        fits.then_some(RopeConfig {
            theta: self.theta,
            scaling: RopeScaling::Proportional { factor, n_rotated },
        })
    }

    /// The `llama3` parameters that give these explicit factors.
    pub fn as_llama3(&self, n_rot: usize) -> Option<RopeConfig> {
        let RopeScaling::Factors(found) = &self.scaling else {
            return None;
        };
        let factor = *found.last()?;
        let guess = |original_context| RopeConfig {
            theta: self.theta,
            scaling: RopeScaling::Llama3 {
                factor,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context,
            },
        };
        let close = |(a, b): (f64, &f32)| (a - f64::from(*b)).abs() <= 1e-5 * a.abs();
        let fits = |guess: &RopeConfig| guess.factors(n_rot).into_iter().zip(found).all(close);
        // 8192, as in every published model, before its smaller and larger neighbours.
        let contexts = [13].into_iter().chain(4..=20).map(|power| 1 << power);
        contexts.map(guess).find(fits)
    }

    pub(super) fn validate(&self, file: &str, n_rot: usize) -> Result<(), Error> {
        let bad = |(key, found, expected): Complaint| {
            let (file, key) = (file.into(), key.into());
            Error::BadValue {
                file,
                key,
                found,
                expected,
            }
        };
        positive("RoPE base", self.theta).map_err(bad)?;
        self.scaling.validate(n_rot).map_err(bad)
    }
}

/// An invalid value: its name, the value, the requirement on it.
type Complaint = (&'static str, String, String);

fn positive(what: &'static str, value: f32) -> Result<(), Complaint> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err((what, value.to_string(), "a positive number".into()))
}

impl RopeScaling {
    fn validate(&self, n_rot: usize) -> Result<(), Complaint> {
        match self {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("RoPE scaling factor", *factor),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_context,
            } => {
                positive("RoPE scaling factor", *factor)?;
                positive("RoPE low frequency factor", *low)?;
                positive("RoPE high frequency factor", *high)?;
                if high <= low {
                    let expected = format!("above the low frequency factor {low}");
                    return Err(("RoPE high frequency factor", high.to_string(), expected));
                }
                at_least_one("RoPE original context", *original_context)
            }
            RopeScaling::Factors(factors) => one_a_pair(factors, n_rot),
            RopeScaling::Dynamic { factor } => positive("RoPE scaling factor", *factor),
            RopeScaling::Proportional { factor, n_rotated } => {
                positive("RoPE scaling factor", *factor)?;
                if *n_rotated > n_rot / 2 {
                    let expected = format!("at most {}", n_rot / 2);
                    return Err(("pairs that RoPE rotates", n_rotated.to_string(), expected));
                }
                Ok(())
            }
            RopeScaling::Yarn(yarn) => {
                positive("RoPE scaling factor", yarn.factor)?;
                positive("RoPE beta_fast", yarn.beta_fast)?;
                positive("RoPE beta_slow", yarn.beta_slow)?;
                positive("RoPE attention factor", yarn.attention_factor)?;
                if let Some(mscale) = yarn.score_mscale {
                    positive("RoPE mscale_all_dim", mscale)?;
                }
                at_least_one("RoPE original context", yarn.original_context)
            }
            RopeScaling::Long(long) => {
                one_a_pair(&long.short, n_rot)?;
                one_a_pair(&long.long, n_rot)?;
                positive("RoPE attention factor", long.attention_factor)?;
                at_least_one("RoPE original context", long.original_context)
            }
        }
    }
}

fn at_least_one(what: &'static str, value: usize) -> Result<(), Complaint> {
    match value {
        0 => Err((what, "0".into(), "at least 1".into())),
        _ => Ok(()),
    }
}

fn one_a_pair(factors: &[f32], n_rot: usize) -> Result<(), Complaint> {
    if factors.len() != n_rot / 2 {
        let expected = format!("{}, one a pair of the head", n_rot / 2);
        let found = factors.len().to_string();
        return Err(("number of RoPE factors", found, expected));
    }
    factors
        .iter()
        .try_for_each(|factor| positive("RoPE factor", *factor))
}

impl YarnScaling {
    /// The factor on cosines and sines that the paper recommends for a scaling (Peng et al. 2023, section 3.4):
    /// `0.1 · mscale · ln(factor) + 1`.
    pub fn recommended_attention_factor(factor: f32, mscale: f32) -> f32 {
        match factor <= 1.0 {
            true => 1.0,
            false => (0.1 * f64::from(mscale) * f64::from(factor).ln() + 1.0) as f32,
        }
    }

    /// Pairs that rotate more than `beta_fast` times within the original context keep their frequency. Those
    /// that rotate less than `beta_slow` times are scaled, and those between are a mix (section 3.2 there).
    fn factors(&self, theta: f32, n_rot: usize) -> Vec<f64> {
        let n = n_rot as f64;
        let pair_of = |turns: f32| {
            let wavelength =
                self.original_context as f64 / (f64::from(turns) * std::f64::consts::TAU);
            n * wavelength.ln() / (2.0 * f64::from(theta).ln())
        };
        let (mut low, mut high) = (pair_of(self.beta_fast), pair_of(self.beta_slow));
        if self.truncates {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(n - 1.0));
        if low == high {
            // As transformers: no division by zero.
            high += 0.001;
        }
        (0..n_rot / 2)
            .map(|pair| {
                let stretched = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                1.0 / ((1.0 - stretched) + stretched / f64::from(self.factor))
            })
            .collect()
    }
}

impl LongScaling {
    /// The factor on cosines and sines for a context `scale` times the original one (Ding et al. 2024, LongRoPE):
    /// `sqrt(1 + ln(scale) / ln(original))`.
    pub fn recommended_attention_factor(scale: f64, original_context: usize) -> f32 {
        match scale <= 1.0 {
            true => 1.0,
            false => (1.0 + scale.ln() / (original_context as f64).ln()).sqrt() as f32,
        }
    }
}

/// `theta^(-2i/n_rot)`, in double precision: it is multiplied by positions of many thousands.
fn unscaled(theta: f32, n_rot: usize) -> impl Iterator<Item = f64> {
    let exponent = move |i: usize| -2.0 * i as f64 / n_rot as f64;
    (0..n_rot / 2).map(move |i| f64::from(theta).powf(exponent(i)))
}

/// Llama 3.1's scaling: wavelengths beyond `context/low` are stretched by `factor`, those below
/// `context/high` are kept, and those between are interpolated (transformers,
/// `_compute_llama3_parameters`).
struct Llama3 {
    factor: f64,
    low: f64,
    high: f64,
    context: f64,
}

impl Llama3 {
    fn factor_of(&self, freq: f64) -> f64 {
        let wavelength = 2.0 * std::f64::consts::PI / freq;
        if wavelength < self.context / self.high {
            1.0
        } else if wavelength > self.context / self.low {
            self.factor
        } else {
            let smooth = (self.context / wavelength - self.low) / (self.high - self.low);
            1.0 / ((1.0 - smooth) / self.factor + smooth)
        }
    }
}

impl ModelConfig {
    /// Tokens that a sequence may hold with the frequencies that were chosen; `None` if they have no bound.
    pub fn position_limit(&self) -> Option<usize> {
        let limit = |rope: &RopeConfig| rope.position_limit(self.context_length);
        let ropes = std::iter::once(&self.rope).chain(&self.rope_local);
        let table = self.has_position_table().then_some(self.context_length);
        ropes.filter_map(limit).chain(table).min()
    }

    /// Whether each position has a learned vector.
    pub fn has_position_table(&self) -> bool {
        let encoder = self.encoder.as_ref();
        self.layers.learned_positions || encoder.is_some_and(|encoder| encoder.learned_positions)
    }

    /// The longest context to take where none is asked for: the trained one, or the limit of the frequencies.
    pub fn usual_context(&self) -> usize {
        let limit = self.position_limit().unwrap_or(self.context_length);
        self.context_length.min(limit)
    }
}
