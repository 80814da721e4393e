//! Conversion of a file's quantised weights for the device.

use super::PlanCase;
use crate::exit::CommandResult;
use crate::output::{Out, count};
use millrace_graph::WeightId;
use millrace_plan::Binding;
use millrace_quant::DType;
use serde_json::{Value, json};

/// Weights of one format that are converted the same way.
struct FormatGroup {
    dtype: DType,
    becomes: &'static str,
    weights: Vec<WeightId>,
    n_elements: u64,
}

/// Groups by format and conversion, in the order of the plans.
pub(super) struct WeightSummary(Vec<FormatGroup>);

impl WeightSummary {
    /// Summarises the weights that plans bind to slots, for block formats only.
    pub(super) fn of(cases: &[PlanCase<'_>]) -> WeightSummary {
        let mut groups: Vec<FormatGroup> = Vec::new();
        for case in cases {
            let bindings = case.plan.calls().flat_map(|call| &call.bindings);
            for binding in bindings {
                let Binding::Weight { weight, layout } = binding else {
                    continue;
                };
                let of = &case.planned.graph().weights[weight.0];
                let becomes = case.planner.becomes(of.dtype, layout);
                let Some(becomes) = becomes.filter(|_| of.dtype.block_elems() > 1) else {
                    continue;
                };
                let same =
                    |group: &FormatGroup| (group.dtype, group.becomes) == (of.dtype, becomes);
                let at = groups.iter().position(same).unwrap_or(groups.len());
                if at == groups.len() {
                    groups.push(FormatGroup {
                        dtype: of.dtype,
                        becomes,
                        weights: Vec::new(),
                        n_elements: 0,
                    });
                }
                let group = &mut groups[at];
                if !group.weights.contains(weight) {
                    group.weights.push(*weight);
                    group.n_elements += of.n_elems();
                }
            }
        }
        WeightSummary(groups)
    }

    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        for group in &self.0 {
            out.line(format!(
                "  weights: {} of {} ({} numbers): {}",
                group.weights.len(),
                group.dtype.name(),
                count(group.n_elements),
                group.becomes
            ))?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Vec<Value> {
        let group = |group: &FormatGroup| {
            json!({
                "format": group.dtype.name(),
                "n_weights": group.weights.len(),
                "n_elements": group.n_elements,
                "becomes": group.becomes,
            })
        };
        self.0.iter().map(group).collect()
    }
}
