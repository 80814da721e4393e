//! A choice of experts: the `n_used` best of `n_experts` scores, with their weights. Inputs: the scores.
//!
//! The result of a token is its *choice*, `3 · n_used` elements. First come the experts' numbers modulo 256, the best
//! expert first, then the numbers divided by 256, then the weights. A choice therefore survives rounding to bf16.

use std::cmp::Ordering;

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::op::glu::sigmoid;
use crate::{Real, TokenContext, WeightId};

/// Maximum number of experts of a layer: a choice names each in two numbers below 256.
pub const EXPERTS_MAX: usize = 1 << 16;

/// The experts of a choice, the best first. A row that no [`Route`] wrote gives arbitrary numbers.
pub fn chosen_experts<R: Real>(choice: &[R]) -> impl Iterator<Item = usize> {
    let n_used = choice.len() / 3;
    let parts = choice[..n_used].iter().zip(&choice[n_used..]);
    parts.map(|(low, high)| low.to_f64() as usize + 256 * high.to_f64() as usize)
}

/// The weights of a choice, in its order.
pub fn choice_weights<R: Real>(choice: &[R]) -> &[R] {
    &choice[choice.len() / 3 * 2..]
}

/// Mapping from router scores to the values that experts are chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each score.
    Sigmoid,
    /// The scores themselves; the weights are the softmax over the chosen experts.
    SoftmaxChosen,
    /// The scores themselves. The weight of each is its softmax over the remaining experts near it (SparseMixer, Liu et
    /// al. 2023, "Sparse Backpropagation for MoE Training", as Phi 3.5 MoE computes it at inference).
    SparseMixer,
}

/// Largest gap from the best score that still counts in [`Gating::SparseMixer`], as a share of the larger magnitude of
/// both scores. It is twice the `router_jitter_noise` of every published model.
pub const SPARSE_MIXER_REACH: f64 = 0.02;

/// Groups of experts, only some of which are candidates (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteGroups {
    /// Groups of neighbouring experts; divides `n_experts`.
    pub n_groups: usize,
    /// Groups whose experts are candidates.
    pub n_used: usize,
    /// Number of a group's best experts whose sum is the group's score: 2 in DeepSeek V3, 1 in V2.
    pub n_best: usize,
}

/// A choice of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// Number of experts.
    pub n_experts: usize,
    /// Experts that a token uses.
    pub n_used: usize,
    /// Mapping from scores to the values that experts are chosen by.
    pub gating: Gating,
    /// `[n_experts]`: added for the choice, not for the weights.
    pub bias: Option<WeightId>,
    /// Groups of experts, if any.
    pub groups: Option<RouteGroups>,
    /// With `Some(eps)`, weights are divided by their sum plus `eps`.
    pub normalized: Option<f32>,
    /// Factor on the weights.
    pub scale: f32,
}

impl Route {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let bias = self.bias.map(|bias| row.weights.vector(bias));
        self.choose(row.inputs[0], bias, row.round, out);
    }

    /// The choice of one token: `scores` and `bias` are `[n_experts]`, `out` is `[3 · n_used]`. Among
    /// equal scores the lower expert number wins; NaN is the worst score.
    pub fn choose<R: Real>(
        &self,
        scores: &[R],
        bias: Option<&[R]>,
        round: fn(R) -> R,
        out: &mut [R],
    ) {
        self.choose_in(&mut RouteScratch::default(), (scores, bias), round, out);
    }

    /// As [`choose`](Route::choose), with scratch memory that is reused between choices.
    pub fn choose_in<R: Real>(
        &self,
        scratch: &mut RouteScratch<R>,
        (scores, bias): (&[R], Option<&[R]>),
        round: fn(R) -> R,
        out: &mut [R],
    ) {
        let RouteScratch {
            gates,
            for_choice,
            of_groups,
            places,
        } = scratch;
        self.put_gates(scores, round, gates);
        for_choice.clear();
        for_choice.extend_from_slice(gates);
        for (score, bias) in for_choice.iter_mut().zip(bias.into_iter().flatten()) {
            *score += *bias;
        }
        if let Some(groups) = self.groups {
            groups.keep_best(for_choice, of_groups, places);
        }
        let chosen = best(for_choice, self.n_used, places);
        self.weigh_gates(gates, chosen, round, out);
    }

    /// The choice of a token for given experts, in their order, with the weights that follow from the token's scores.
    ///
    /// # Panics
    /// If an expert is beyond the scores.
    pub fn weigh<R: Real>(
        &self,
        scores: &[R],
        experts: &[usize],
        round: fn(R) -> R,
        out: &mut [R],
    ) {
        let mut gates = Vec::new();
        self.put_gates(scores, round, &mut gates);
        self.weigh_gates(&gates, experts, round, out);
    }

    fn weigh_gates<R: Real>(
        &self,
        gates: &[R],
        experts: &[usize],
        round: fn(R) -> R,
        out: &mut [R],
    ) {
        let (numbers, weights) = out.split_at_mut(2 * self.n_used);
        let (low, high) = numbers.split_at_mut(self.n_used);
        for (rank, expert) in experts.iter().copied().enumerate() {
            low[rank] = R::from_f64((expert % 256) as f64);
            high[rank] = R::from_f64((expert / 256) as f64);
            weights[rank] = gates[expert];
        }
        match self.gating {
            Gating::Softmax | Gating::Sigmoid => {}
            Gating::SoftmaxChosen => softmax(weights, round),
            Gating::SparseMixer => mix_sparsely(gates, experts, round, weights),
        }
        if let Some(eps) = self.normalized {
            let sum: R = weights.iter().copied().sum();
            let sum = sum + R::from_f64(f64::from(eps));
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        let scale = R::from_f64(f64::from(self.scale));
        weights
            .iter_mut()
            .for_each(|weight| *weight = *weight * scale);
    }

    fn put_gates<R: Real>(&self, scores: &[R], round: fn(R) -> R, gates: &mut Vec<R>) {
        gates.clear();
        gates.extend_from_slice(scores);
        match self.gating {
            Gating::Softmax => softmax(gates, round),
            Gating::Sigmoid => gates.iter_mut().for_each(|x| *x = sigmoid(*x, round)),
            Gating::SoftmaxChosen | Gating::SparseMixer => {}
        }
    }
}

/// For each expert, the softmax of its score over the experts not yet taken whose scores are within reach.
fn mix_sparsely<R: Real>(scores: &[R], experts: &[usize], round: fn(R) -> R, weights: &mut [R]) {
    let reach = R::from_f64(SPARSE_MIXER_REACH);
    for (rank, expert) in experts.iter().enumerate() {
        let best = scores[*expert];
        let left = scores.iter().enumerate();
        let left = left.filter(|(other, _)| !experts[..rank].contains(other));
        let near = left.filter(|(other, score)| {
            let size = R::max(R::max(**score, -**score), best);
            *other == *expert || best - **score <= reach * size
        });
        let sum: R = near.map(|(_, score)| round((*score - best).exp())).sum();
        weights[rank] = R::from_f64(1.0) / sum;
    }
}

/// Scratch memory of a choice.
#[derive(Clone, Debug, Default)]
pub struct RouteScratch<R> {
    gates: Vec<R>,
    for_choice: Vec<R>,
    of_groups: Vec<R>,
    places: Vec<usize>,
}

impl RouteGroups {
    /// Puts the experts of all but the best groups out of reach.
    fn keep_best<R: Real>(
        &self,
        scores: &mut [R],
        of_groups: &mut Vec<R>,
        places: &mut Vec<usize>,
    ) {
        let size = scores.len() / self.n_groups;
        let score = |group: &[R]| {
            let experts = best(group, self.n_best.min(size), places).iter();
            experts.map(|expert| group[*expert]).sum::<R>()
        };
        of_groups.clear();
        of_groups.extend(scores.chunks_exact(size).map(score));
        let kept = best(of_groups, self.n_used, places);
        for (group, scores) in scores.chunks_exact_mut(size).enumerate() {
            if !kept.contains(&group) {
                scores.fill(R::NEG_INFINITY);
            }
        }
    }
}

fn softmax<R: Real>(x: &mut [R], round: fn(R) -> R) {
    let max = x.iter().copied().fold(R::NEG_INFINITY, R::max);
    x.iter_mut().for_each(|x| *x = round((*x - max).exp()));
    let sum: R = x.iter().copied().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}

/// Indices of the `n` largest elements, the largest first; written to `places`.
fn best<'a, R: Real>(x: &[R], n: usize, places: &'a mut Vec<usize>) -> &'a [usize] {
    places.clear();
    places.extend(0..x.len());
    let rank = |place: &usize| match x[*place].partial_cmp(&x[*place]) {
        Some(_) => x[*place],
        None => R::NEG_INFINITY,
    };
    // Among equals the first wins; a stable sort would allocate memory for that.
    places.sort_unstable_by(|a, b| {
        let order = rank(b).partial_cmp(&rank(a));
        order.unwrap_or(Ordering::Equal).then(a.cmp(b))
    });
    places.truncate(n);
    places
}

impl Operation for Route {
    fn name(&self) -> &'static str {
        "route"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        let bias = |id| WeightUse::new(id, WeightKind::Vector);
        self.bias.map(bias).into_iter().collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let n = self.n_experts;
        if let Some(bias) = self.bias {
            fits(shapes.weight(bias)? == [1, 1, n])?;
        }
        let chosen = (1..=n).contains(&self.n_used) && n <= EXPERTS_MAX;
        let mut in_groups = true;
        if let Some(groups) = self.groups {
            let divides = groups.n_groups > 0 && n.is_multiple_of(groups.n_groups);
            let size = n / groups.n_groups.max(1);
            let some = (1..=groups.n_groups).contains(&groups.n_used) && groups.n_best > 0;
            in_groups = divides && some && self.n_used <= groups.n_used * size;
        }
        fits(chosen && in_groups && shapes.input(0) == n && shapes.output() == 3 * self.n_used)
    }

    by_definition!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(scores: &[f64]) -> (Vec<usize>, Vec<f64>) {
        let route = Route {
            n_experts: scores.len(),
            n_used: 2,
            gating: Gating::SparseMixer,
            bias: None,
            groups: None,
            normalized: None,
            scale: 1.0,
        };
        let mut choice = [0.0; 6];
        route.choose(scores, None, |x| x, &mut choice);
        let weights = choice_weights(&choice).to_vec();
        (chosen_experts(&choice).collect(), weights)
    }

    #[test]
    fn scores_near_the_best_share_its_weight() {
        let share = |gaps: &[f64]| 1.0 / (1.0 + gaps.iter().map(|gap| (-gap).exp()).sum::<f64>());
        // The scores, the choice, and the distances of the experts that share with the first and with the second.
        type Row<'a> = (&'a [f64], [usize; 2], &'a [f64], &'a [f64]);
        let rows: [Row<'_>; 5] = [
            (&[0.5, 1.0, 0.99, -3.0], [1, 2], &[0.01], &[]),
            (&[1.0, 0.9, 0.8], [0, 1], &[], &[]),
            // The first has no part in the second's share; the third is near both.
            (&[2.0, 1.99, 1.98], [0, 1], &[0.01, 0.02], &[0.01]),
            // For negative scores the magnitude of the lower one counts.
            (&[-1.0, -1.02, -2.0], [0, 1], &[0.02], &[]),
            (&[0.0, 0.0, -1.0], [0, 1], &[0.0], &[]),
        ];
        for (scores, chosen, first, second) in rows {
            let (experts, weights) = sparse(scores);
            assert_eq!(experts, chosen, "{scores:?}");
            for (found, gaps) in weights.iter().zip([first, second]) {
                assert!(
                    (found - share(gaps)).abs() < 1e-12,
                    "{scores:?}: {weights:?}"
                );
            }
        }
    }
}
