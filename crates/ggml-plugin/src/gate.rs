//! Gated activations, the ops between two products of a feed-forward network.
//!
//! llama.cpp cuts a graph wherever the device changes, and begins each part anew. With its gate a feed-forward network is one part. Norms
//! and sums would save no cut, since llama.cpp binds the norms of few tokens to the device of their layer, which is the CPU.

use crate::device::{OpError, OpRefusal};
use crate::product::{has_no_gaps, refuse};
use crate::sys::graph::HostNode;
use crate::sys::tensor::HostTensor;
use millrace_kernels::Cpu;
use millrace_kernels::elementwise::{Activation, glu, glu_to};

/// `out = activation(gate) · up`, all of one shape and without gaps.
pub(crate) struct Gate<'a> {
    activation: Activation,
    gate: HostTensor<'a>,
    up: HostTensor<'a>,
}

impl<'a> Gate<'a> {
    /// The gated activation that an op is; `None` for every other op.
    ///
    /// # Errors
    /// Why Millrace's kernels do not compute it.
    pub(crate) fn of(op: &HostTensor<'a>) -> Option<Result<Gate<'a>, OpRefusal>> {
        (op.op() == "GLU").then(|| Gate::checked(op))
    }

    fn checked(op: &HostTensor<'a>) -> Result<Gate<'a>, OpRefusal> {
        let activation = match op.kind() {
            "SWIGLU" => Activation::Silu,
            "GEGLU" => Activation::GeluTanh,
            _ => return refuse("a gate for which there is no kernel"),
        };
        let (Some(gate), Some(up)) = (op.source(0), op.source(1)) else {
            return refuse("a gate and its values in one tensor");
        };
        if ![op, &gate, &up].into_iter().all(has_no_gaps) {
            return refuse("operands that are not f32, or have gaps");
        }
        if gate.dims() != op.dims() || up.dims() != op.dims() {
            return refuse("operands of other shapes than the result");
        }
        Ok(Gate {
            activation,
            gate,
            up,
        })
    }

    /// Computes it into the memory of `node`, which may be that of an operand.
    ///
    /// # Errors
    /// No memory, or a result that partly overlaps an operand.
    pub(crate) fn compute(&self, cpu: &Cpu, node: &mut HostNode<'_>) -> Result<(), OpError> {
        let activation = self.activation;
        let computed = node.update([&self.gate, &self.up], |out, operands| match operands {
            [Some(gate), Some(up)] => glu_to(cpu, activation, gate, up, out),
            [None, Some(up)] => glu(cpu, activation, out, up),
            [Some(gate), None] => {
                let up = out.to_vec();
                glu_to(cpu, activation, gate, &up, out);
            }
            [None, None] => {
                let up = out.to_vec();
                glu(cpu, activation, out, &up);
            }
        });
        computed.map_err(OpError::of_result)
    }
}
