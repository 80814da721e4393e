//! A device's numerics of products beyond rounding their results.

use super::DeviceWeights;
use millrace_plan::{Arithmetic, NarrowOperands, QuantisedRows};
use millrace_runtime::npu::{NpuError, NpuModel};
use std::sync::Arc;

/// A device's numerics of products beyond rounding their results.
#[derive(Clone, Default)]
pub struct Products {
    /// By node of the graph: the elements of a row after which its sums are truncated to bf16, as the
    /// published GEMM does.
    pub truncated_every: Vec<Option<usize>>,
    /// By node: whether both operands are converted to blocks of eight values with one exponent, along the inner
    /// dimension. For attention's second product these are blocks of keys.
    pub in_blocks: Vec<bool>,
    /// By node: how rows of both operands are quantised, for every token.
    pub quantised: Vec<Option<QuantisedRows>>,
    /// By node: how its weight and activations are narrowed, for every token.
    pub narrowed: Vec<Option<NarrowOperands>>,
    /// Number of leading tokens that truncation and blocks apply to: those of the prompt.
    pub n_tokens: usize,
    /// Matrices in layouts of the device's own; `None` where all are the checkpoint's.
    pub weights: Option<Arc<DeviceWeights>>,
}

impl Products {
    /// Numerics of products in the first chunk of a prompt of so many tokens.
    ///
    /// # Errors
    /// As [`NpuModel::plan`].
    pub fn of_prompt(
        npu: &NpuModel,
        weights: Arc<DeviceWeights>,
        n_prompt: usize,
    ) -> Result<Products, NpuError> {
        let n_nodes = npu.model().model().graph.nodes.len();
        let mut products = Products {
            truncated_every: vec![None; n_nodes],
            quantised: vec![None; n_nodes],
            narrowed: vec![None; n_nodes],
            in_blocks: vec![false; n_nodes],
            n_tokens: n_prompt,
            weights: Some(weights),
        };
        let chunk = npu.lengths().next(0, n_prompt as u64);
        let kind = npu.sequences().prefill(chunk);
        let plan = npu.plan(chunk.first, &kind)?;
        for (step, _) in plan.steps.iter().enumerate() {
            let Some(call) = plan.call_at(step) else {
                continue;
            };
            for (launch, nodes) in plan.launches_at(step) {
                let launch = &plan.programs[call.program].launches[launch];
                let arithmetic = npu.planner().arithmetic(launch);
                for node in nodes {
                    products.set(node, &arithmetic);
                }
            }
        }
        Ok(products)
    }

    fn set(&mut self, node: usize, arithmetic: &Arithmetic) {
        self.truncated_every[node] = arithmetic.truncated_every;
        self.quantised[node] = arithmetic.quantised;
        self.narrowed[node] = arithmetic.narrowed;
        self.in_blocks[node] = arithmetic.in_blocks;
    }
}
