//! Size of a model in memory: parameters, bytes of weights by purpose, bytes of KV cache.

use crate::Model;
use millrace_graph::{MatrixProduct, SequenceMemory};

/// Weights of one purpose, all blocks together.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightGroup {
    /// The label of the nodes that read them: `attn_q`, `ffn_down`, `embed`. A tied head counts as
    /// `embed`.
    pub label: &'static str,
    /// Tensors, biases included.
    pub n_tensors: usize,
    /// Parameters.
    pub n_params: u64,
    /// Parameters that a token uses.
    pub n_params_active: u64,
    /// Bytes as stored.
    pub size_bytes: u64,
}

/// Memory for weights and for a context of a given length.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    /// Parameters.
    pub n_params: u64,
    /// Parameters that a token uses: of experts only the share that it chooses.
    pub n_params_active: u64,
    /// Bytes of all weights as stored.
    pub weight_bytes: u64,
    /// The same by purpose, in the order of first use.
    pub weights: Vec<WeightGroup>,
    /// Bytes that one more token adds to the cache while no layer's window is full.
    pub kv_bytes_per_token: u64,
    /// Bytes of the cache for the whole context; sliding-window layers keep their window only.
    pub kv_bytes: u64,
}

impl Model {
    /// Memory for one sequence of `n_tokens`, with `kv_bits` bits an element of the cache (16 for
    /// F16, 8.5 for Q8_0). Rounding up to pages is the engine's.
    pub fn memory_plan(&self, n_tokens: usize, kv_bits: f64) -> MemoryPlan {
        let weights = self.weight_groups();
        // State of each op for a sequence: a layer may have a latent, or no keys and values at all.
        let elems = |n_tokens: usize| -> u64 {
            let of_op = |memory: SequenceMemory| match memory {
                SequenceMemory::KvCache(kv) => {
                    let kept = kv.window.map_or(n_tokens, |w| w.min(n_tokens));
                    2 * kept as u64 * kv.width() as u64
                }
                // Counted where it is filled.
                SequenceMemory::SharedKv(_) | SequenceMemory::TargetKv(_) => 0,
                SequenceMemory::AllTokens(_) => 0,
                SequenceMemory::None | SequenceMemory::State(_) => 0,
            };
            let nodes = self.graph.nodes.iter();
            nodes.map(|node| of_op(node.op.memory())).sum()
        };
        let bytes = |elems: u64| (elems as f64 * kv_bits / 8.0).ceil() as u64;
        MemoryPlan {
            n_params: weights.iter().map(|group| group.n_params).sum(),
            n_params_active: weights.iter().map(|group| group.n_params_active).sum(),
            weight_bytes: weights.iter().map(|group| group.size_bytes).sum(),
            weights,
            kv_bytes_per_token: bytes(elems(1)),
            kv_bytes: bytes(elems(n_tokens)),
        }
    }

    fn weight_groups(&self) -> Vec<WeightGroup> {
        let mut groups: Vec<WeightGroup> = Vec::new();
        let mut seen = vec![false; self.graph.weights.len()];
        for node in &self.graph.nodes {
            for used in node.op.weights() {
                let id = used.id;
                if std::mem::replace(&mut seen[id.0], true) {
                    continue;
                }
                let position = groups.iter().position(|group| group.label == node.label);
                let position = position.unwrap_or_else(|| {
                    let label = node.label;
                    groups.push(WeightGroup {
                        label,
                        n_tensors: 0,
                        n_params: 0,
                        n_params_active: 0,
                        size_bytes: 0,
                    });
                    groups.len() - 1
                });
                let (group, weight) = (&mut groups[position], &self.graph.weights[id.0]);
                // A weight without tensors in the file is not a parameter.
                if weight.tensors().is_empty() {
                    continue;
                }
                group.n_tensors += 1;
                group.n_params += weight.n_elems();
                group.n_params_active += match node.op.product() {
                    Some(MatrixProduct::Chosen(experts)) => {
                        let n_experts = weight.n_experts.max(1) as u64;
                        // A bias has a row an expert.
                        let n_experts = n_experts.max(match id == experts.weight {
                            true => 1,
                            false => self.graph.weights[experts.weight.0].n_experts as u64,
                        });
                        weight.n_elems() / n_experts * experts.n_used as u64
                    }
                    _ => weight.n_elems(),
                };
                group.size_bytes += weight.size_bytes();
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use millrace_format::Checkpoint;
    use millrace_testkit::Golden;

    use crate::Model;

    #[test]
    fn plan_adds_up() {
        let checkpoint =
            Checkpoint::open(&Golden::named("gemma3-pattern").gguf().unwrap()).unwrap();
        let model = Model::from_checkpoint(&checkpoint).unwrap();
        let plan = model.memory_plan(100, 16.0);
        assert_eq!(plan.weight_bytes, checkpoint.size_bytes());
        assert_eq!(plan.n_params * 4, plan.weight_bytes);
        assert_eq!(plan.weights[0].label, "embed");
        // Seven layers of one key head of 64, six of which keep 13 tokens.
        assert_eq!(plan.kv_bytes_per_token, 7 * 2 * 64 * 2);
        assert_eq!(plan.kv_bytes, (100 + 6 * 13) * 2 * 64 * 2);
        assert_eq!(model.memory_plan(8, 8.5).kv_bytes, 7 * 8 * 2 * 64 * 17 / 16);
        assert_eq!(plan.n_params_active, plan.n_params);
    }

    #[test]
    fn a_shared_cache_counts_once() {
        let checkpoint = Checkpoint::open(&Golden::named("gemma4").gguf().unwrap()).unwrap();
        let model = Model::from_checkpoint(&checkpoint).unwrap();
        let plan = model.memory_plan(100, 16.0);
        // Two sliding layers of a head of 16 that keep 9 tokens, a global one of 32, and two that share.
        assert_eq!(plan.kv_bytes, 2 * 2 * (2 * 9 * 16 + 100 * 32));
        assert_eq!(plan.kv_bytes_per_token, 2 * 2 * (2 * 16 + 32));
        // Everything in the file but the table of RoPE divisors, and nothing else.
        let table = 4 * 32 / 2;
        assert_eq!(plan.weight_bytes + table, checkpoint.size_bytes());
    }

    #[test]
    fn latents_and_experts_count_as_what_they_take() {
        let open = |name: &str| {
            let checkpoint = Checkpoint::open(&Golden::named(name).gguf().unwrap()).unwrap();
            Model::from_checkpoint(&checkpoint).unwrap()
        };
        // Two layers of one row of 24 + 8 elements, which is kept both as key and as value.
        let plan = open("deepseek-v3").memory_plan(10, 16.0);
        assert_eq!(plan.kv_bytes, 2 * 2 * 10 * (24 + 8) * 2);
        // Of six experts a token uses three: three of 24 x 40 in each of two layers rest.
        let plan = open("qwen3moe").memory_plan(10, 16.0);
        assert_eq!(plan.n_params - plan.n_params_active, 2 * 3 * 3 * 24 * 40);
        // Of five experts two, biases included.
        let plan = open("gpt-oss").memory_plan(10, 16.0);
        let expert = 3 * 32 * 64 + 2 * 32 + 64;
        assert_eq!(plan.n_params - plan.n_params_active, 2 * 3 * expert);
    }
}
