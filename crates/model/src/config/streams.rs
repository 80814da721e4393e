//! Parallel streams (AltUp), and other parts that only Gemma 3n has.

use millrace_graph::Real;

use super::{MAX_WIDTH, ModelConfig};
use crate::Error;

/// Several residual streams, of which each block computes one and corrects all.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// Streams.
    pub n_streams: usize,
    /// The stream that blocks compute.
    pub active: usize,
    /// Rank of the residual beside attention (Laurel).
    pub laurel_rank: usize,
    /// For each layer, a number of standard deviations: elements of the feed-forward's gate count only so far above the
    /// mean. Minus infinity where all count.
    pub gate_deviations: Vec<f32>,
    /// Rows of the table of layers' embeddings; tokens beyond take the first. GGUF files have a row for each token.
    pub n_embedding_rows: usize,
}

impl StreamConfig {
    /// Most streams that are accepted: far above the four of every published model.
    pub(crate) const STREAMS_MAX: usize = 8;

    /// Refuses numbers that are absurd or do not fit the model.
    pub(super) fn validate(&self, file: &str, config: &ModelConfig) -> Result<(), Error> {
        let sizes = [
            (
                "number of streams",
                self.n_streams,
                [2, StreamConfig::STREAMS_MAX],
            ),
            (
                "number of the active stream",
                self.active,
                [0, self.n_streams.saturating_sub(1)],
            ),
            ("rank of Laurel", self.laurel_rank, [1, MAX_WIDTH]),
            (
                "rows of the table of layers' embeddings",
                self.n_embedding_rows,
                [1, config.vocab_size],
            ),
            (
                "size of a layer's embedding",
                config.layers.embedding_dim,
                [1, MAX_WIDTH],
            ),
        ];
        for (key, found, [min, max]) in sizes {
            if found < min || found > max {
                let expected = format!("between {min} and {max}");
                return super::bad(file, key, found.to_string(), expected);
            }
        }
        if self.gate_deviations.len() != config.n_layers {
            let expected = format!("one for each of the {} layers", config.n_layers);
            let found = self.gate_deviations.len().to_string();
            return super::bad(file, "number of sparsities of gates", found, expected);
        }
        let is_sane = |x: &f32| x.is_finite() || *x == f32::NEG_INFINITY;
        match self.gate_deviations.iter().find(|x| !is_sane(x)) {
            Some(found) => {
                let expected = "a number, or minus infinity where a gate is dense".into();
                super::bad(file, "sparsity of a gate", found.to_string(), expected)
            }
            None => Ok(()),
        }
    }

    /// The deviations of `layer`; `None` where all elements of its gate count.
    pub(crate) fn deviations(&self, layer: usize) -> Option<f32> {
        let found = self.gate_deviations.get(layer).copied();
        found.filter(|deviations| deviations.is_finite())
    }
}

/// The share of a normal distribution below so many standard deviations above its mean.
pub(crate) fn share_below(deviations: f32) -> f64 {
    below(f64::from(deviations))
}

fn below(deviations: f64) -> f64 {
    (1.0 + Real::erf(deviations * std::f64::consts::FRAC_1_SQRT_2)) / 2.0
}

/// The inverse, for a share below 1; minus infinity for 0.
pub(crate) fn deviations_of(share: f64) -> f32 {
    if share <= 0.0 {
        return f32::NEG_INFINITY;
    }
    // Beyond nine deviations a share is 1 in f64.
    let (mut low, mut high) = (-9.0f64, 9.0f64);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        match below(middle) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    ((low + high) / 2.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of PyTorch's `Normal(0, 1).icdf`.
    #[test]
    fn shares_and_deviations_are_those_of_a_normal_distribution() {
        for (share, deviations) in [
            (0.95, 1.644_853_6f32),
            (0.5, 0.0),
            (0.75, 0.674_489_75),
            (0.1, -1.281_551_6),
        ] {
            assert!((deviations_of(share) - deviations).abs() < 1e-6, "{share}");
            let again = share_below(deviations_of(share));
            assert!((again - share).abs() < 1e-7, "{share}: {again}");
        }
        assert_eq!(deviations_of(0.0), f32::NEG_INFINITY);
        assert_eq!(share_below(f32::NEG_INFINITY), 0.0);
    }
}
