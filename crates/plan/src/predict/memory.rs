//! Buffer objects and the cache.

use super::{Plans, PromptWorkload};
use crate::{Binding, BufferKind, Buffers, Phase, WeightLayout};
use millrace_graph::{self as graph, Graph};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Bytes that stay allocated for the plans of a prompt and of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Buffers of weights. All experts count, as if each had been chosen.
    pub weight_bytes: u64,
    /// The part of experts' matrices, which are filled when first chosen.
    pub expert_bytes: u64,
    /// The part of weights that are a second copy in another layout.
    pub second_copy_bytes: u64,
    /// Buffers of RoPE tables.
    pub table_bytes: u64,
    /// Buffers that calls read and write.
    pub value_bytes: u64,
    /// bf16 keys and values of `n_cached` tokens.
    pub cache_bytes: u64,
    /// Tokens of the cache.
    pub n_cached: u64,
    /// `weight_bytes + table_bytes + value_bytes + cache_bytes`.
    pub total_bytes: u64,
}

/// Memory of the plans together. Buffers of the same name count once, in any plan.
pub(super) fn of(plans: &Plans, graph: &Graph, work: &PromptWorkload) -> Memory {
    let mut memory = Memory::default();
    let mut known: HashSet<String> = HashSet::new();
    let mut copies: HashMap<usize, Copies> = HashMap::new();
    for plan in plans.all() {
        let buffers = Buffers::of(plan, graph);
        let mut counted = vec![false; buffers.buffers.len()];
        for (call, uses) in plan.calls().zip(&buffers.calls) {
            // The head's set serves both phases, if a single row goes through it.
            let is_head = !plan.single_row.is_empty()
                && call
                    .bindings
                    .iter()
                    .any(|b| matches!(b, Binding::Part { .. }));
            let set = match (plan.phase, is_head) {
                (Phase::Prefill, false) => format!("{}@{}", call.set, plan.n_tokens),
                _ => call.set.clone(),
            };
            for (slot, used) in uses.iter().enumerate() {
                let buffer = &buffers.buffers[used.buffer];
                if std::mem::replace(&mut counted[used.buffer], true) {
                    continue;
                }
                let name = buffer.name.clone();
                if !known.insert(name.unwrap_or_else(|| format!("{set} slot {slot}"))) {
                    continue;
                }
                match &buffer.kind {
                    BufferKind::Static(Binding::Weight { weight, layout }) => {
                        memory.weight_bytes += buffer.size_bytes;
                        let is_part = matches!(layout, WeightLayout::Rows { .. });
                        copies
                            .entry(weight.0)
                            .or_default()
                            .add(is_part, buffer.size_bytes);
                    }
                    BufferKind::Expert(_, n_experts) => {
                        let all = buffer.size_bytes * *n_experts as u64;
                        memory.weight_bytes += all;
                        memory.expert_bytes += all;
                    }
                    // Counted below.
                    BufferKind::Static(Binding::Cache { .. }) => {}
                    BufferKind::Static(_) => memory.table_bytes += buffer.size_bytes,
                    BufferKind::Values | BufferKind::Scratch => {
                        memory.value_bytes += buffer.size_bytes;
                    }
                }
            }
        }
    }
    memory.second_copy_bytes = copies.values().map(Copies::beyond_the_first).sum();
    memory.n_cached = work.context.max(work.prompt_tokens) + 1;
    memory.cache_bytes = cache_bytes(graph, memory.n_cached);
    memory.total_bytes =
        memory.weight_bytes + memory.table_bytes + memory.value_bytes + memory.cache_bytes;
    memory
}

/// Buffers of one weight.
#[derive(Default)]
struct Copies {
    /// Parts of a matrix: together one copy.
    parts: u64,
    whole: u64,
    largest: u64,
}

impl Copies {
    fn add(&mut self, is_part: bool, bytes: u64) {
        match is_part {
            true => self.parts += bytes,
            false => {
                self.whole += bytes;
                self.largest = self.largest.max(bytes);
            }
        }
    }

    fn beyond_the_first(&self) -> u64 {
        self.parts + self.whole - self.largest.max(self.parts)
    }
}

/// bf16 keys and values of all layers.
fn cache_bytes(graph: &Graph, n_cached: u64) -> u64 {
    let of = |memory: graph::SequenceMemory| match memory {
        graph::SequenceMemory::KvCache(kv) => 4 * n_cached * kv.width() as u64,
        graph::SequenceMemory::State(state) => 4 * state.n_elems as u64,
        graph::SequenceMemory::None
        | graph::SequenceMemory::SharedKv(_)
        | graph::SequenceMemory::TargetKv(_)
        | graph::SequenceMemory::AllTokens(_) => 0,
    };
    graph.nodes.iter().map(|node| of(node.op.memory())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_matrix_are_one_copy() {
        let copies = |sizes: &[(bool, u64)]| {
            let mut copies = Copies::default();
            sizes
                .iter()
                .for_each(|&(is_part, n)| copies.add(is_part, n));
            copies.beyond_the_first()
        };
        assert_eq!(copies(&[(false, 100), (false, 100)]), 100);
        assert_eq!(copies(&[(true, 60), (true, 60)]), 0);
        assert_eq!(copies(&[(true, 60), (true, 60), (false, 100)]), 100);
        assert_eq!(copies(&[(false, 8)]), 0);
    }
}
