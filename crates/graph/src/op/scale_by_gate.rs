//! A product with gates, each for a group of neighbouring elements: `f(gate) · x`. Inputs: x, gate.
//!
//! As many gates as a token has give groups of equal size. Qwen's mixtures weigh their shared expert by one gate;
//! Step 3.5, LFM 3 and Laguna weigh each head of attention's output, or each of its elements.

use super::delta_net::softplus;
use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::op::glu::sigmoid;
use crate::{Real, TokenContext};

/// The function of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFunction {
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `ln(1 + e^x)`.
    Softplus,
}

/// `f(gate) · x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleByGate {
    /// The function of a gate.
    pub function: GateFunction,
}

impl ScaleByGate {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let [x, gates] = [row.inputs[0], row.inputs[1]];
        let group = x.len() / gates.len();
        let groups = out.chunks_exact_mut(group).zip(x.chunks_exact(group));
        for ((out, x), gate) in groups.zip(gates) {
            let factor = match self.function {
                GateFunction::Sigmoid => sigmoid(*gate, row.round),
                GateFunction::Softplus => (row.round)(softplus(*gate)),
            };
            for (out, x) in out.iter_mut().zip(x) {
                *out = *x * factor;
            }
        }
    }
}

impl Operation for ScaleByGate {
    fn name(&self) -> &'static str {
        "scale_by_gate"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let (width, n_gates) = (shapes.input(0), shapes.input(1));
        fits(width == shapes.output() && n_gates > 0 && width.is_multiple_of(n_gates))
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
