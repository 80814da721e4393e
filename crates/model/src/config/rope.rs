//! RoPE: from a configuration to rotation frequencies.

use super::{RopeConfig, RopeScaling};
use crate::Error;

impl RopeConfig {
    /// Unscaled RoPE with base `theta`.
    pub fn plain(theta: f32) -> RopeConfig {
        RopeConfig {
            theta,
            scaling: RopeScaling::None,
        }
    }

    /// Frequencies of the `head_dim/2` pairs: the angle of pair `i` at position `p` is
    /// `p · inv_freq[i]`, with `inv_freq[i] = theta^(-2i/head_dim)` divided by the scaling's
    /// factor of the pair.
    pub fn inv_freq(&self, head_dim: usize) -> Vec<f32> {
        let factors = self.factors(head_dim);
        let base = unscaled(self.theta, head_dim);
        base.zip(factors)
            .map(|(freq, factor)| (freq / factor) as f32)
            .collect()
    }

    /// Factor on cosines and sines.
    pub fn attention_factor(&self) -> f32 {
        1.0
    }

    /// Divisors of the unscaled frequencies, one a pair, as GGUF's `rope_freqs.weight` holds them;
    /// `None` if the scaling is not of the kind that needs the tensor.
    pub fn gguf_factors(&self, head_dim: usize) -> Option<Vec<f32>> {
        match self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } => None,
            RopeScaling::Llama3 { .. } | RopeScaling::Factors(_) => Some(
                self.factors(head_dim)
                    .into_iter()
                    .map(|factor| factor as f32)
                    .collect(),
            ),
        }
    }

    fn factors(&self, head_dim: usize) -> Vec<f64> {
        let n_pairs = head_dim / 2;
        match &self.scaling {
            RopeScaling::None => vec![1.0; n_pairs],
            RopeScaling::Linear { factor } => vec![f64::from(*factor); n_pairs],
            RopeScaling::Factors(factors) => factors.iter().copied().map(f64::from).collect(),
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
                unscaled(self.theta, head_dim)
                    .map(|freq| llama3.factor_of(freq))
                    .collect()
            }
        }
    }

    /// The `llama3` parameters that give these explicit factors, if some with the usual low 1 and
    /// high 4 and an original context that is a power of two do: GGUF keeps only their result.
    pub fn as_llama3(&self, head_dim: usize) -> Option<RopeConfig> {
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
        let fits = |guess: &RopeConfig| guess.factors(head_dim).into_iter().zip(found).all(close);
        // 8192, that of every published model, before its smaller and larger neighbours.
        let contexts = [13].into_iter().chain(4..=20).map(|power| 1 << power);
        contexts.map(guess).find(fits)
    }

    pub(super) fn validate(&self, file: &str, head_dim: usize) -> Result<(), Error> {
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
        self.scaling.validate(head_dim).map_err(bad)
    }
}

/// A value that makes no sense: what it is, the value, what it must be.
type Complaint = (&'static str, String, String);

fn positive(what: &'static str, value: f32) -> Result<(), Complaint> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err((what, value.to_string(), "a positive number".into()))
}

impl RopeScaling {
    fn validate(&self, head_dim: usize) -> Result<(), Complaint> {
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
                if *original_context == 0 {
                    return Err(("RoPE original context", "0".into(), "at least 1".into()));
                }
                Ok(())
            }
            RopeScaling::Factors(factors) if factors.len() != head_dim / 2 => {
                let expected = format!("{}, one a pair of the head", head_dim / 2);
                Err((
                    "number of RoPE factors",
                    factors.len().to_string(),
                    expected,
                ))
            }
            RopeScaling::Factors(factors) => factors
                .iter()
                .try_for_each(|factor| positive("RoPE factor", *factor)),
        }
    }
}

/// `theta^(-2i/head_dim)`, in double precision: it is multiplied by positions of many thousands.
fn unscaled(theta: f32, head_dim: usize) -> impl Iterator<Item = f64> {
    let exponent = move |i: usize| -2.0 * i as f64 / head_dim as f64;
    (0..head_dim / 2).map(move |i| f64::from(theta).powf(exponent(i)))
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
