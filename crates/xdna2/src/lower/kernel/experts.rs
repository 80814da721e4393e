//! Products of experts: one kernel for all of a shape, a dispatch for each that was chosen.

use super::{Arg, Kernels, LoweredKernel, dim};
use crate::lower::{Feature, Phase, WeightLayout};
use crate::mapping::NamedNumbers;
use millrace_graph::ExpertLinear;
use millrace_plan::{ExpertCall, experts};

impl Kernels<'_> {
    /// The node's kernel, in the fewest rows that the array takes.
    pub(super) fn experts(
        &mut self,
        number: usize,
        linear: &ExpertLinear,
    ) -> Result<Vec<LoweredKernel>, String> {
        let (graph, phase, n_tokens) = (self.graph, self.phase, self.n_tokens());
        let mut refused = None;
        for rows in experts::row_choices(graph, phase, n_tokens, number) {
            match self.expert(number, linear, rows) {
                Ok(kernel) => {
                    let product = format!("{} on the array", kernel.built.mapping);
                    let reason = experts::reason(linear, rows, &product);
                    self.reasons.insert(number, reason);
                    let call = ExpertCall { node: number, rows };
                    self.experts.insert(number, call);
                    return Ok(vec![kernel]);
                }
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        Err(refused.unwrap_or_else(|| "an expert without rows".to_owned()))
    }

    /// The product of so many rows with one of the matrices.
    fn expert(
        &mut self,
        number: usize,
        linear: &ExpertLinear,
        rows: u64,
    ) -> Result<LoweredKernel, String> {
        let node = &self.graph.nodes[number];
        let spec = &self.graph.weights[linear.weight.0];
        let (k, n) = (dim(spec.k), dim(spec.n));
        let (x, y) = (Arg::Value(node.inputs[0]), Arg::Value(node.output));
        if self.phase == Phase::Decode {
            let w = Arg::Weight(linear.weight, WeightLayout::AsStored { half_split: None });
            let shape = NamedNumbers::new(&[("m", n), ("k", k)]);
            return self.kernel(node, "gemv", shape, None, vec![w, x, y]);
        }
        let one_copy = self.options.features.has(Feature::OneCopy);
        let name = self.gemm();
        let layout = match one_copy {
            true => WeightLayout::AsStored { half_split: None },
            false => WeightLayout::Transposed { half_split: None },
        };
        let w = Arg::Weight(linear.weight, layout);
        let shape = NamedNumbers::new(&[("m", rows), ("k", k), ("n", n)]);
        self.kernel(node, name, shape, None, vec![x, w, y])
    }

    /// The mapping of a prompt's products.
    pub(super) fn gemm(&self) -> &'static str {
        let has = |feature| self.options.features.has(feature);
        match (has(Feature::FloatSums), has(Feature::OneCopy)) {
            (false, false) => "gemm-direct",
            (true, false) => "gemm-drain",
            (false, true) => "gemm-direct-bt",
            (true, true) => "gemm-drain-bt",
        }
    }
}
