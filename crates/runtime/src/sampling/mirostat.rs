//! A draw that keeps the surprise of a text near a target.

use super::Rng;
use super::params::Mirostat;
use super::stages::{self, TokenCandidate, sorted_probabilities};

/// Mirostat 2 under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MirostatState {
    params: Mirostat,
    /// The largest surprise that a token may have, in bits.
    bound: f64,
}

impl MirostatState {
    pub(super) fn new(params: Mirostat) -> MirostatState {
        MirostatState {
            params,
            bound: 2.0 * f64::from(params.tau),
        }
    }

    /// Drops tokens that are too surprising, draws, and moves the bound by the draw's surprise.
    pub(super) fn draw(&mut self, candidates: &mut Vec<TokenCandidate>, rng: &mut Rng) -> u32 {
        let p = sorted_probabilities(candidates);
        let n = p
            .iter()
            .take_while(|p| -p.log2() <= self.bound)
            .count()
            .max(1);
        candidates.truncate(n);
        let token = stages::draw(candidates, rng);
        let kept: f64 = p.iter().take(n).sum();
        let drawn = candidates.iter().position(|c| c.token == token);
        let surprise = drawn.map_or(0.0, |at| -(p[at] / kept).log2());
        let error = surprise - f64::from(self.params.tau);
        self.bound -= f64::from(self.params.eta) * error;
        token
    }
}
