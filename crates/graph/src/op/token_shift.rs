//! Interpolation from a row towards that of the previous token: `x + share ⊙ (before - x)` for each of several shares,
//! side by side. The first token has zeros before it. Inputs: x.

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, SequenceMemory, StateShape, TokenContext, WeightId};

/// Mixtures of a token's row with the previous row (RWKV; Peng et al. 2023, section 3.1). The state holds the previous row.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenShift {
    /// Index of its state.
    pub state: usize,
    /// `[width]` each: the share of the previous row, element by element. The result has a part for each, in this order.
    pub shares: Vec<WeightId>,
    /// Elements of a row.
    pub width: usize,
}

impl TokenShift {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let x = row.inputs[0];
        for (id, out) in self.shares.iter().zip(out.chunks_exact_mut(self.width)) {
            let shares = row.weights.vector(*id);
            let pairs = x.iter().zip(&*state).zip(shares);
            for (out, ((x, before), share)) in out.iter_mut().zip(pairs) {
                *out = *x + *share * (*before - *x);
            }
        }
        state.copy_from_slice(x);
    }
}

impl Operation for TokenShift {
    fn name(&self) -> &'static str {
        "token_shift"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        let used = |id: &WeightId| WeightUse::new(*id, WeightKind::Vector);
        self.shares.iter().map(used).collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(self.width > 0 && !self.shares.is_empty())?;
        for id in &self.shares {
            fits(shapes.weight(*id)? == [1, 1, self.width])?;
        }
        let width = self.shares.len() * self.width;
        fits(shapes.input(0) == self.width && shapes.output() == width)
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(StateShape {
            index: self.state,
            n_elems: self.width,
        })
    }

    by_definition!();
}
