//! Attention over a latent (MLA): one compressed row a token in place of keys and values of every head.

use crate::Error;
use crate::config::MAX_WIDTH;

/// Epsilon of the norms of queries' and keys' ranks: transformers leaves it at the default of its class of norms and
/// ignores `rms_norm_eps`.
pub(crate) const LATENT_NORM_EPS: f32 = 1e-6;

/// Sizes of latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentConfig {
    /// Rank of the queries' projection; `None` where it is one matrix.
    pub q_rank: Option<usize>,
    /// Elements of the latent.
    pub kv_rank: usize,
    /// Elements of a query or key head that do not rotate.
    pub nope_dim: usize,
    /// Elements of a query head, and of the one shared key head, that rotate.
    pub rope_dim: usize,
    /// Elements of a value head.
    pub v_dim: usize,
    /// Epsilon of the norms of queries' and keys' ranks, under the root.
    pub norm_eps: f32,
}

impl LatentConfig {
    /// Elements of a token's row in the cache: the latent and the rotated key.
    pub fn cache_dim(&self) -> usize {
        self.kv_rank + self.rope_dim
    }

    /// Elements of a query head.
    pub fn q_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        let sizes = [
            ("rank of queries", self.q_rank.unwrap_or(1)),
            ("rank of keys and values", self.kv_rank),
            ("unrotated part of a head", self.nope_dim),
            ("rotated part of a head", self.rope_dim),
            ("size of a value head", self.v_dim),
        ];
        for (key, found) in sizes {
            if found == 0 || found > MAX_WIDTH {
                return Err(Error::BadValue {
                    file: file.into(),
                    key: key.into(),
                    found: found.to_string(),
                    expected: format!("between 1 and {MAX_WIDTH}"),
                });
            }
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return Err(Error::BadValue {
                file: file.into(),
                key: "epsilon of the latent's norm".into(),
                found: self.norm_eps.to_string(),
                expected: "a positive number".into(),
            });
        }
        Ok(())
    }
}
