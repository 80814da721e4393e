//! Given experts, which tokens use instead of their own choice.
//!
//! One arithmetic may rank nearly equal scores one way and the next another way, and the chosen experts are
//! functions that have nothing in common. A comparison of two sides therefore gives both the same experts, as it
//! gives both the same tokens. It counts where a side would have chosen others.

use super::NpuError;
use super::pass::Pass;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{Op, exact};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The experts of every token of a sequence.
#[derive(Debug, Default)]
pub struct GivenExperts {
    /// By node: `[n_tokens, n_used]`, in the order of the choice.
    by_node: HashMap<usize, Vec<usize>>,
    n_others: AtomicU64,
}

impl GivenExperts {
    /// Experts by the node that would choose them: `[n_tokens, n_used]`, in the order of the choice. Tokens after them
    /// choose for themselves.
    pub fn new(by_node: HashMap<usize, Vec<usize>>) -> GivenExperts {
        GivenExperts {
            by_node,
            n_others: AtomicU64::new(0),
        }
    }

    /// The experts given to the token at a position.
    pub fn at(&self, node: usize, n_used: usize, position: usize) -> Option<&[usize]> {
        let experts = self.by_node.get(&node)?;
        experts.chunks_exact(n_used.max(1)).nth(position)
    }

    /// Counts a choice whose experts differ from those given. The order of experts does not matter.
    pub fn count(&self, own: &[usize], given: &[usize]) {
        if own.iter().any(|expert| !given.contains(expert)) {
            self.n_others.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Choices so far whose experts differed from those given.
    pub fn n_others(&self) -> u64 {
        self.n_others.load(Ordering::Relaxed)
    }
}

impl Pass<'_> {
    /// If the node chose experts and others are given, replaces them, with the weights from the token's scores.
    pub(super) fn give_experts(&mut self, number: usize) -> Result<(), NpuError> {
        let node = &self.npu.model.model().graph.nodes[number];
        let (Some(given), Op::Route(route)) = (self.given, &node.op) else {
            return Ok(());
        };
        let misfit = || NpuError::plan(node.label, "given experts that it does not have");
        let scores = self.values.get(node.inputs[0]).to_f32_vec();
        let mut choices = self.values.get(node.output).to_f32_vec();
        let rows = scores.chunks_exact(route.n_experts);
        let choices_of_rows = choices.chunks_exact_mut(3 * route.n_used);
        for (row, (scores, choice)) in rows.zip(choices_of_rows).take(self.n_real).enumerate() {
            let Some(experts) = given.at(number, route.n_used, self.first + row) else {
                continue;
            };
            if experts.iter().any(|expert| *expert >= route.n_experts) {
                return Err(misfit());
            }
            let own: Vec<usize> = millrace_graph::chosen_experts(choice).collect();
            given.count(&own, experts);
            route.weigh(scores, experts, exact, choice);
        }
        let mut rows = self.values.keep(node.output, self.n_rows(node.output));
        if rows.len() != choices.len() {
            return Err(misfit());
        }
        rows.convert_from_f32_slice(&choices);
        self.values.put(node.output, rows);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_given_by_node_and_position() {
        let given = GivenExperts::new(HashMap::from([(7, vec![3, 1, 0, 2])]));
        assert_eq!(given.at(7, 2, 1), Some(&[0, 2][..]));
        assert_eq!(given.at(7, 2, 2), None, "it chooses itself");
        assert_eq!(given.at(6, 2, 0), None);
        given.count(&[1, 3], &[3, 1]);
        assert_eq!(given.n_others(), 0, "the order is of no matter");
        given.count(&[1, 4], &[3, 1]);
        assert_eq!(given.n_others(), 1);
    }
}
