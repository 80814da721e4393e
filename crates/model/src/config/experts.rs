//! Mixtures of experts: how many, how they are chosen, which layers have them.

use crate::Error;
use crate::config::MAX_WIDTH;
use millrace_graph::{EXPERTS_MAX, Gating, RouteGroups};

/// The experts of a model's layers.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertConfig {
    /// Experts a layer.
    pub n_experts: usize,
    /// Experts that a token uses.
    pub n_used: usize,
    /// Width of an expert's gated feed-forward.
    pub d_ff: usize,
    /// Function from scores to the numbers by which experts are chosen.
    pub gating: Gating,
    /// With `Some(eps)`, weights of the chosen experts are divided by their sum plus `eps`.
    pub normalized: Option<f32>,
    /// Factor on the weights.
    pub scale: f32,
    /// Groups that experts are chosen from.
    pub groups: Option<RouteGroups>,
    /// Whether scores have a bias for the choice alone.
    pub choice_bias: bool,
    /// Width of the feed-forward that every token uses beside its experts; 0 for none.
    pub shared_d_ff: usize,
    /// Whether the shared expert has its own gate.
    pub shared_gate: bool,
    /// Leading layers that have one dense feed-forward instead.
    pub n_dense_layers: usize,
    /// Of the layers after those, every n-th has experts, beginning with the n-th; 1: all.
    pub every: usize,
    /// Further layers with a dense feed-forward, by number.
    pub dense_layers: Vec<usize>,
    /// Whether routers, experts' gates, up and down projections have biases.
    pub biases: bool,
    /// Soft bound of scores, before their function.
    pub softcap: Option<f32>,
    /// Elements that a token is projected to before experts, and back from after them; 0 for the stream's width.
    pub latent_dim: usize,
}

impl ExpertConfig {
    /// Whether that layer has experts.
    pub fn has(&self, layer: usize) -> bool {
        layer >= self.n_dense_layers
            && (layer + 1).is_multiple_of(self.every.max(1))
            && !self.dense_layers.contains(&layer)
    }

    /// Expresses leading dense layers by their number only.
    pub(crate) fn count_leading_dense(&mut self) {
        while let Some(at) = self
            .dense_layers
            .iter()
            .position(|layer| *layer == self.n_dense_layers)
        {
            self.dense_layers.remove(at);
            self.n_dense_layers += 1;
        }
    }

    /// Refuses numbers that are zero, absurd or do not fit each other.
    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: String| Error::BadValue {
            file: file.into(),
            key: key.into(),
            found,
            expected,
        };
        let sizes = [
            ("number of experts", self.n_experts, EXPERTS_MAX),
            (
                "number of experts that a token uses",
                self.n_used,
                self.n_experts,
            ),
            ("width of an expert", self.d_ff, MAX_WIDTH),
            ("layers from experts to experts", self.every, MAX_WIDTH),
        ];
        for (key, found, max) in sizes {
            if found == 0 || found > max {
                return Err(bad(key, found.to_string(), format!("between 1 and {max}")));
            }
        }
        let optional = [
            ("width of the shared expert", self.shared_d_ff),
            ("width before experts", self.latent_dim),
        ];
        if let Some((key, found)) = optional.into_iter().find(|(_, n)| *n > MAX_WIDTH) {
            return Err(bad(key, found.to_string(), format!("at most {MAX_WIDTH}")));
        }
        self.check_factors()
            .map_err(|(key, found)| bad(key, found, "positive numbers".into()))?;
        if let Some(groups) = self.groups {
            let divides = groups.n_groups > 0 && self.n_experts.is_multiple_of(groups.n_groups);
            let enough = |size: usize| groups.n_used * size >= self.n_used;
            let some = (1..=groups.n_groups).contains(&groups.n_used) && groups.n_best > 0;
            if !(divides && some && enough(self.n_experts / groups.n_groups)) {
                let expected = "groups that divide the experts and hold as many as a token uses";
                return Err(bad(
                    "groups of experts",
                    format!("{groups:?}"),
                    expected.into(),
                ));
            }
        }
        Ok(())
    }

    /// Refuses factors that are no positive numbers.
    fn check_factors(&self) -> Result<(), (&'static str, String)> {
        let factors = [
            ("factor on experts' weights", self.scale),
            (
                "addend of the sum of experts' weights",
                1.0 + self.normalized.unwrap_or(0.0),
            ),
            ("soft bound of experts' scores", self.softcap.unwrap_or(1.0)),
        ];
        let is_sane = |factor: f32| factor.is_finite() && factor > 0.0;
        match factors.into_iter().find(|(_, factor)| !is_sane(*factor)) {
            Some((key, found)) => Err((key, found.to_string())),
            None => Ok(()),
        }
    }
}
