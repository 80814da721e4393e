//! Ops between products: norms, sums, gates.
//!
//! llama.cpp cuts a graph wherever the device changes, and begins each part anew. A device that took products alone would be entered
//! four times in a layer of a transformer; one that takes these too computes everything between two attentions as one part.

use crate::device::{OpError, Refusal};
use crate::product::{has_no_gaps, refuse};
use crate::sys::graph::Node;
use crate::sys::tensor::Tensor;
use millrace_kernels::Cpu;
use millrace_kernels::elementwise::{Activation, Pair, combine, rms_norm, rms_norm_in_place};

/// An op between products. Its operands have no gaps.
pub(crate) enum Between<'a> {
    /// `x / √(mean(x²) + eps)` of each row.
    RmsNorm { x: Tensor<'a>, eps: f32 },
    /// `a ∘ b`, b as a or one row.
    Pair {
        pair: Pair,
        a: Tensor<'a>,
        b: Tensor<'a>,
    },
}

impl<'a> Between<'a> {
    /// Whether an operator's name is of one that may be such an op.
    pub(crate) fn is_named(op: &str) -> bool {
        matches!(op, "RMS_NORM" | "ADD" | "MUL" | "GLU")
    }

    /// The op that a tensor is the result of.
    ///
    /// # Errors
    /// Why Millrace's kernels do not compute it.
    pub(crate) fn of(op: &Tensor<'a>) -> Result<Between<'a>, Refusal> {
        let pair = match op.op() {
            "RMS_NORM" => return Between::norm_of(op),
            "ADD" => Pair::Sum,
            "MUL" => Pair::Product,
            "GLU" => match op.kind() {
                "SWIGLU" => Pair::Gated(Activation::Silu),
                "GEGLU" => Pair::Gated(Activation::GeluTanh),
                _ => return refuse("a gate for which there is no kernel"),
            },
            _ => return refuse("an op for which there is no kernel"),
        };
        let (Some(a), Some(b)) = (op.source(0), op.source(1)) else {
            return refuse("a gate and its values in one tensor");
        };
        if ![op, &a, &b].into_iter().all(has_no_gaps) {
            return refuse("operands that are not f32, or have gaps");
        }
        let dims = op.dims();
        // Rows of one element would be combined one at a time.
        let row = dims
            .filter(|dims| dims[0] > 1)
            .map(|dims| [dims[0], 1, 1, 1]);
        if a.dims() != dims || (b.dims() != dims && b.dims() != row) {
            return refuse("operands of other shapes than the result");
        }
        Ok(Between::Pair { pair, a, b })
    }

    fn norm_of(op: &Tensor<'a>) -> Result<Between<'a>, Refusal> {
        let Some(x) = op.source(0).filter(|x| x.dims() == op.dims()) else {
            return refuse("operands of other shapes than the result");
        };
        if !has_no_gaps(op) || !has_no_gaps(&x) {
            return refuse("operands that are not f32, or have gaps");
        }
        let eps = op.params().first().copied().unwrap_or_default();
        let eps = f32::from_bits(eps.cast_unsigned());
        Ok(Between::RmsNorm { x, eps })
    }

    /// Computes it into the memory of `node`. `ones` is kept for the next call.
    ///
    /// # Errors
    /// No memory, or a result that lies across an operand.
    pub(crate) fn compute(
        &self,
        cpu: &Cpu,
        ones: &mut Vec<f32>,
        node: &mut Node<'_>,
    ) -> Result<(), OpError> {
        let computed = match self {
            Between::RmsNorm { x, eps } => {
                let group = x.dims().map_or(0, |dims| dims[0]);
                if ones.len() < group {
                    ones.resize(group, 1.0);
                }
                let ones = &ones[..group];
                node.update([x], |out, [x]| match x {
                    _ if out.is_empty() => {}
                    Some(x) => rms_norm(cpu, x, group, ones, *eps, 0.0, out),
                    None => rms_norm_in_place(cpu, out, ones, *eps, 0.0),
                })
            }
            Between::Pair { pair, a, b } => node.update([a, b], |out, [a, b]| match b {
                Some(b) => combine(cpu, *pair, a, b, out),
                // The result is written over the second operand.
                None => {
                    let b = out.to_vec();
                    combine(cpu, *pair, a, &b, out);
                }
            }),
        };
        computed.map_err(OpError::of_result)
    }
}
