//! Biases that the host adds to products from the device. The sums are checked against the graph, not
//! against the plan.

use super::{CallCheck, Mismatch, OpsState, differs, statics};
use bytemuck::cast_slice;
use millrace_graph::{Linear, Node, Op};
use millrace_npu::{Element, Role};
use millrace_plan::Binding;
use millrace_runtime::npu::NpuError;

/// Whether a result is a product without its bias, as the rule of products requires.
pub(super) fn is_bare(node: &Node, result: &Binding) -> Result<(), String> {
    match (&node.op, result) {
        (Op::Linear(Linear { bias: Some(_), .. }), Binding::Packed { .. }) => Ok(()),
        (Op::Linear(Linear { bias: Some(_), .. }), _) => {
            Err("a bias is the host's to add".to_owned())
        }
        _ => Ok(()),
    }
}

impl CallCheck<'_> {
    /// Values that the host has of the call's products with a bias: the slot's numbers with the bias added in
    /// f32, rounded to bf16 once.
    pub(super) fn biases(&self, state: &mut OpsState) -> Result<(), NpuError> {
        let call = self.seen.call;
        let layout = call.bindings.iter().find_map(|binding| match binding {
            Binding::Weight { layout, .. } => Some(layout),
            _ => None,
        });
        for (slot, binding) in call.bindings.iter().enumerate() {
            let (Binding::Packed { value, .. }, Role::Output) = (binding, self.slots()[slot].role)
            else {
                continue;
            };
            let nodes = &self.graph().nodes;
            let number = nodes.iter().position(|node| node.output == *value);
            let op = number.and_then(|number| nodes.get(number)).map(|n| &n.op);
            let (
                Some(Op::Linear(Linear {
                    bias: Some(bias), ..
                })),
                Some(layout),
            ) = (op, layout)
            else {
                continue;
            };
            let bias = statics::bias(self.npu.model(), *bias, layout)?;
            let mut expected = self.result(slot)?;
            for row in expected.chunks_exact_mut(bias.len().max(1)) {
                row.iter_mut().zip(&bias).for_each(|(x, bias)| *x += bias);
            }
            let found = cast_slice(self.seen.value(*value));
            // If nothing reads the value, the host has none.
            if found.is_empty() {
                continue;
            }
            let wrong = |(at, n_wrong)| Mismatch::Value { at, n_wrong };
            let what = differs(&statics::encode(&expected, Element::Bf16), found).map(wrong);
            state.summary.n_moved += 1;
            self.report(slot, None, number, what, state);
        }
        Ok(())
    }
}
