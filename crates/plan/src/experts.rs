//! Calls that multiply with the experts that tokens chose.
//!
//! Such a call is one step of a plan and as many dispatches as the choice asks for. Every expert that a row chose gets one
//! dispatch for each [`rows`](ExpertCall::rows) of its rows. The host gathers these rows, with zeros behind the last, and
//! binds that expert's matrix. It puts the results in the place of each row's choice. So one program serves all experts of
//! a shape, and a token asks for its own experts' matrices and no others.

use crate::offload::OffloadedOp;
use crate::{Binding, Call, PassKind, Phase, Plan, Reason};
use millrace_graph::{ExpertLinear, Graph, Node, Op, ValueId};
use millrace_npu::Role;
use serde::{Deserialize, Serialize};

/// Parameters that make a [`Call`] one of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertCall {
    /// The node, an [`ExpertLinear`].
    pub node: usize,
    /// Rows of a dispatch, a fixed number of the program.
    pub rows: u64,
}

impl ExpertCall {
    /// The node and its op; `None` where the graph has another there.
    pub fn op<'g>(&self, graph: &'g Graph) -> Option<(&'g Node, &'g ExpertLinear)> {
        let node = graph.nodes.get(self.node)?;
        match &node.op {
            Op::ExpertLinear(linear) => Some((node, linear)),
            _ => None,
        }
    }

    /// The value that has the choice, which the host reads.
    pub fn choice(&self, graph: &Graph) -> Option<ValueId> {
        self.op(graph)?.0.inputs.get(1).copied()
    }

    /// Experts that a row may choose from; 0 where the node is no product of experts.
    pub fn n_experts(&self, graph: &Graph) -> usize {
        let op = self.op(graph);
        let weight = op.and_then(|(_, linear)| graph.weights.get(linear.weight.0));
        weight.map_or(0, |weight| weight.n_experts)
    }

    /// Dispatches of a pass over so many tokens, on average where each chooses among all experts evenly. An expert that
    /// x of n tokens chose has the mean of ⌈x / rows⌉ dispatches; x has the binomial distribution of n and
    /// `n_used / n_experts`.
    pub fn dispatches(&self, graph: &Graph, n_tokens: u64) -> f64 {
        let Some((_, linear)) = self.op(graph) else {
            return 0.0;
        };
        let n_experts = self.n_experts(graph).max(1);
        let share = (linear.n_used as f64 / n_experts as f64).min(1.0);
        n_experts as f64 * mean_groups(n_tokens, share, self.rows.max(1))
    }
}

/// The mean of ⌈x / size⌉ where x of `n` are chosen, each with the probability `share`.
fn mean_groups(n: u64, share: f64, size: u64) -> f64 {
    if share >= 1.0 {
        return n.div_ceil(size) as f64;
    }
    let (yes, no) = (share.ln(), (-share).ln_1p());
    // The logarithm of the number of ways to choose x of n.
    let (mut ways, mut mean) = (0.0_f64, 0.0);
    for x in 1..=n {
        ways += ((n - x + 1) as f64 / x as f64).ln();
        let probability = (ways + x as f64 * yes + (n - x) as f64 * no).exp();
        mean += probability * x.div_ceil(size) as f64;
    }
    mean
}

/// Fewest rows of a prompt's dispatch: arrays multiply whole groups of rows.
const LEAST_ROWS: u64 = 16;

/// Rows of a dispatch that a device is offered, in this order. First the rows that an expert gets from the pass where
/// tokens choose evenly, as a power of two. Then twice as many, up to the pass's tokens. A token has one.
pub fn row_choices(graph: &Graph, phase: Phase, n_tokens: u64, node: usize) -> Vec<u64> {
    let call = ExpertCall { node, rows: 1 };
    let n_used = call.op(graph).map_or(1, |(_, linear)| linear.n_used as u64);
    let most = match phase {
        Phase::Decode => 1,
        Phase::Prefill => n_tokens.max(1),
    };
    let mean = (most * n_used).div_ceil(call.n_experts(graph).max(1) as u64);
    let first = mean.next_power_of_two().max(LEAST_ROWS).min(most);
    let next = |rows: &u64| (*rows < most).then(|| (*rows * 2).min(most));
    std::iter::successors(Some(first), next).collect()
}

/// Why the device multiplies with experts, given why it takes the product of so many rows.
pub fn reason(linear: &ExpertLinear, rows: u64, product: &str) -> String {
    let host = match (linear.scale, linear.bias) {
        (None, None) => "",
        (Some(_), None) => "; the host multiplies by the expert's scale",
        (None, Some(_)) => "; the host adds the expert's bias",
        (Some(_), Some(_)) => "; the host multiplies by the expert's scale and adds its bias",
    };
    let rows = match rows {
        1 => "a row".to_owned(),
        rows => format!("{rows} rows"),
    };
    format!("a dispatch for each chosen expert, {rows} of its own in each: {product}{host}")
}

/// The product with one of a node's experts: `take` gives it for so many rows, which a device may refuse
/// ([`row_choices`]).
///
/// # Errors
/// The reason of `take` for the first choice; a program with other operands than rows and a matrix.
pub fn product(
    graph: &Graph,
    kind: &PassKind,
    node: usize,
    take: &mut dyn FnMut(u64) -> Result<OffloadedOp, Reason>,
) -> Result<OffloadedOp, Reason> {
    let mut refused = Reason("no product of experts".to_owned());
    let Some((_, linear)) = (ExpertCall { node, rows: 1 }).op(graph) else {
        return Err(refused);
    };
    let choices = row_choices(graph, kind.phase, kind.n_tokens, node);
    for (i, rows) in choices.into_iter().enumerate() {
        match take(rows) {
            Ok(mut taken) => {
                check(&taken)?;
                taken.reason = reason(linear, rows, &taken.reason);
                taken.experts = Some(ExpertCall { node, rows });
                return Ok(taken);
            }
            Err(why) if i == 0 => refused = why,
            Err(_) => {}
        }
    }
    Err(refused)
}

/// Whether a program's slots are rows, a matrix and results: the host gathers, binds and scatters these.
fn check(taken: &OffloadedOp) -> Result<(), Reason> {
    let slots = taken.program.slots().iter().zip(&taken.bindings);
    for (slot, binding) in slots {
        let fits = match (slot.role, binding) {
            (Role::Input | Role::Output, Binding::Value(_)) => true,
            (Role::Input | Role::Output, Binding::Packed { bias, .. }) => bias.is_none(),
            (Role::Static | Role::Input, Binding::Weight { .. }) => true,
            (Role::Intermediate, Binding::Scratch) => true,
            _ => false,
        };
        if !fits {
            return Err(Reason(format!(
                "slot `{}` of {} is more than rows and a matrix: the host gathers no such operand by expert",
                slot.name,
                taken.program.name()
            )));
        }
    }
    Ok(())
}

impl Call {
    /// Dispatches of the call in a pass over so many tokens that are no padding. For experts it is the mean, rounded,
    /// where tokens choose evenly.
    pub fn dispatches(&self, graph: &Graph, n_tokens: u64) -> u64 {
        let n = |experts: ExpertCall| experts.dispatches(graph, n_tokens).round().max(1.0) as u64;
        self.experts.map_or(1, n)
    }
}

impl Plan {
    /// Dispatches of a pass that has no padding, by [`Call::dispatches`].
    pub fn dispatches(&self, graph: &Graph) -> u64 {
        let all = self.calls();
        all.map(|call| call.dispatches(graph, self.n_tokens)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::mean_groups;

    #[test]
    fn groups_are_counted_as_they_come_out_on_average() {
        // A token that chooses 8 of 128 experts needs 8 dispatches.
        assert!((128.0 * mean_groups(1, 8.0 / 128.0, 1) - 8.0).abs() < 1e-12);
        // Of two tokens with one of two experts each: both in one half of the time, one each in the other.
        assert!((2.0 * mean_groups(2, 0.5, 16) - 1.5).abs() < 1e-12);
        // With groups of one row it is the mean of x.
        assert!((mean_groups(50, 0.3, 1) - 15.0).abs() < 1e-9);
        // By simulation in whole numbers: 3 tokens, one of 2 experts, pairs: x = 0, 1, 2, 3 with 1, 3, 3, 1 eighths.
        let pairs = (3.0 + 3.0 + 2.0) / 8.0;
        assert!((mean_groups(3, 0.5, 2) - pairs).abs() < 1e-12);
        // Every token chooses every expert.
        assert_eq!(mean_groups(33, 1.0, 16), 3.0);
        // No power underflows.
        let many = mean_groups(4096, 0.5, 64);
        assert!((32.0..34.0).contains(&many), "{many}");
    }
}
