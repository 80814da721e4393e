//! Lower bound of a step's time on a machine, from its bytes, operations and launches. No software can beat it.
//!
//! A step over `n` sequences reads the weights once, or once for each sequence where a device runs them one after the
//! other. It reads the cache of every sequence and multiplies every token with every weight. Memory and arithmetic can
//! work at the same time, so the larger of both counts. Launches come on top, because nothing runs meanwhile. Reads of
//! weights and caches share one memory and add up (Williams et al. 2009, the roofline).

use millrace_graph::{Depth, Graph, OpCost};
use serde::Serialize;

/// Bytes and operations that a token needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Demand {
    /// Bytes of all matrices that a token is multiplied with.
    pub weight_bytes: f64,
    /// Bytes of keys and values that it attends over, of one sequence.
    pub cache_bytes: f64,
    /// Operations, a multiplication and an addition being two.
    pub flops: f64,
    /// Bytes of all experts' matrices; those that a token chooses are counted in `weight_bytes` too.
    pub expert_bytes: f64,
    /// Share of the experts that a token chooses.
    pub expert_share: f64,
}

impl Demand {
    /// Demand of a model's token behind `depth` others, with cached elements of so many bytes. Matrices count as stored
    /// in the file.
    pub fn of(graph: &Graph, depth: u64, element_bytes: f64) -> Demand {
        let depth = Depth {
            n_before: depth,
            kv_elem_bytes: element_bytes,
        };
        let mut cost = OpCost::default();
        for node in &graph.nodes {
            cost += node.op.cost(graph, &depth);
        }
        Demand {
            weight_bytes: cost.weight_bytes,
            cache_bytes: cost.memory_bytes,
            flops: cost.flops,
            expert_bytes: cost.expert_bytes,
            expert_share: cost.expert_share,
        }
    }

    /// Bytes of matrices that a pass over so many tokens reads, on average where tokens choose their experts
    /// independently: `1 - (1 - expert_share)^n_tokens` of `expert_bytes`.
    pub(crate) fn pass_weight_bytes(&self, n_tokens: f64) -> f64 {
        let distinct = 1.0 - (1.0 - self.expert_share).powf(n_tokens.max(1.0));
        self.weight_bytes + self.expert_bytes * (distinct - self.expert_share)
    }
}

/// Peak rates of a machine, and its time for launches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofs {
    /// Bytes a second from its memory.
    pub bytes_per_s: f64,
    /// Operations a second.
    pub flops_per_s: f64,
    /// Time of a pass in which nothing is read or computed: calls, dispatches, loading of programs.
    pub launch_ns: f64,
}

/// Sizes of a step that its bound depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepOf {
    /// Sequences.
    pub n_sequences: u64,
    /// Tokens of each.
    pub n_rows: u64,
    /// Passes: times that the weights are read.
    pub n_passes: u64,
}

/// The part that dominates a step's least time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Reading the weights.
    Weights,
    /// Reading the caches.
    Cache,
    /// Multiplying.
    Arithmetic,
    /// Calls and dispatches.
    Launches,
}

impl Limit {
    /// Its description in words.
    pub fn words(self) -> &'static str {
        match self {
            Limit::Weights => "bytes of weights",
            Limit::Cache => "bytes of cache",
            Limit::Arithmetic => "arithmetic",
            Limit::Launches => "launches",
        }
    }
}

/// Least times of a step, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepBound {
    /// Reading the weights.
    pub weights_ns: f64,
    /// Reading the caches.
    pub cache_ns: f64,
    /// Multiplying.
    pub arithmetic_ns: f64,
    /// Calls and dispatches.
    pub launches_ns: f64,
}

impl StepBound {
    /// Bound of a step.
    pub fn of(demand: &Demand, roofs: &Roofs, step: StepOf) -> StepBound {
        let ns = |amount: f64, per_s: f64| amount / per_s.max(1.0) * 1e9;
        let (n, passes) = (step.n_sequences as f64, step.n_passes as f64);
        let tokens_a_pass = n * step.n_rows as f64 / passes.max(1.0);
        let weight_bytes = demand.pass_weight_bytes(tokens_a_pass);
        StepBound {
            weights_ns: ns(passes * weight_bytes, roofs.bytes_per_s),
            cache_ns: ns(n * demand.cache_bytes, roofs.bytes_per_s),
            arithmetic_ns: ns(n * step.n_rows as f64 * demand.flops, roofs.flops_per_s),
            launches_ns: passes * roofs.launch_ns,
        }
    }

    /// Least time of the whole step.
    pub fn ns(&self) -> f64 {
        let memory = self.weights_ns + self.cache_ns;
        memory.max(self.arithmetic_ns) + self.launches_ns
    }

    /// The part that takes most of it. The shorter of memory and arithmetic takes nothing.
    pub fn limit(&self) -> Limit {
        let (work, work_ns) = if self.arithmetic_ns > self.weights_ns + self.cache_ns {
            (Limit::Arithmetic, self.arithmetic_ns)
        } else if self.cache_ns > self.weights_ns {
            (Limit::Cache, self.cache_ns)
        } else {
            (Limit::Weights, self.weights_ns)
        };
        match self.launches_ns > work_ns {
            true => Limit::Launches,
            false => work,
        }
    }
}

/// Tokens that a checked draft of `k` gives on average, if each is accepted with probability `acceptance` where those
/// before it are: `(1 - a^(k+1)) / (1 - a)` (Leviathan et al. 2023, equation 1).
pub fn expected_tokens(acceptance: f64, k: u64) -> f64 {
    (0..=k).map(|i| acceptance.powi(i as i32)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand = Demand {
        weight_bytes: 1e9,
        cache_bytes: 1e7,
        flops: 2e9,
        expert_bytes: 0.0,
        expert_share: 0.0,
    };

    const ROOFS: Roofs = Roofs {
        bytes_per_s: 1e11,
        flops_per_s: 1e12,
        launch_ns: 1e5,
    };

    fn step(n_sequences: u64, n_passes: u64) -> StepBound {
        let of = StepOf {
            n_sequences,
            n_rows: 1,
            n_passes,
        };
        StepBound::of(&DEMAND, &ROOFS, of)
    }

    /// A token reads one of four experts; a large batch reads each of them once.
    #[test]
    fn a_batch_reads_the_experts_that_anyone_chose() {
        let demand = Demand {
            weight_bytes: 1e9 + 1e9,
            expert_bytes: 4e9,
            expert_share: 0.25,
            ..DEMAND
        };
        assert_eq!(demand.pass_weight_bytes(1.0), 2e9);
        assert!((demand.pass_weight_bytes(2.0) - (1e9 + 4e9 * 0.4375)).abs() < 1.0);
        assert!((demand.pass_weight_bytes(1000.0) - 5e9).abs() < 1.0);
    }

    #[test]
    fn a_step_is_bound_by_what_takes_longest() {
        let one = step(1, 1);
        assert_eq!(one.limit(), Limit::Weights);
        assert!(
            (one.ns() - (10e6 + 0.1e6 + 0.1e6)).abs() < 1.0,
            "{}",
            one.ns()
        );
        // 64 sequences multiply for 128 ms and read for 16.
        let many = step(64, 1);
        assert_eq!(many.limit(), Limit::Arithmetic);
        assert!((many.ns() - 128.1e6).abs() < 1.0);
        let deep = Demand {
            cache_bytes: 1e9,
            flops: 0.0,
            ..DEMAND
        };
        let of = StepOf {
            n_sequences: 2,
            n_rows: 1,
            n_passes: 1,
        };
        assert_eq!(StepBound::of(&deep, &ROOFS, of).limit(), Limit::Cache);
    }

    /// Weights and caches are read one after the other: together they may take longer than the arithmetic, though
    /// neither does alone.
    #[test]
    fn reading_binds_where_weights_and_caches_together_take_longest() {
        let bound = |weights_ns, cache_ns, launches_ns| StepBound {
            weights_ns,
            cache_ns,
            arithmetic_ns: 8.0,
            launches_ns,
        };
        assert_eq!(bound(6.0, 5.0, 0.0).limit(), Limit::Weights);
        assert_eq!(bound(5.0, 6.0, 0.0).limit(), Limit::Cache);
        assert_eq!(bound(4.0, 3.0, 0.0).limit(), Limit::Arithmetic);
        assert_eq!(bound(4.0, 3.0, 9.0).limit(), Limit::Launches);
    }

    /// Sequences in separate passes gain nothing from each other: the flat line.
    #[test]
    fn passes_one_by_one_are_flat() {
        let rate = |n: u64, passes: u64| n as f64 / step(n, passes).ns();
        assert!((rate(64, 64) / rate(1, 1) - 1.0).abs() < 1e-9);
        assert!(rate(4, 1) / rate(1, 1) > 3.8);
    }

    #[test]
    fn drafts_give_a_geometric_series() {
        assert_eq!(expected_tokens(0.0, 8), 1.0);
        assert_eq!(expected_tokens(1.0, 8), 9.0);
        assert!((expected_tokens(0.444, 8) - 1.797).abs() < 1e-3);
    }
}
