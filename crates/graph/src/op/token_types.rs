//! The row of a table for the text that a token belongs to, in a sequence of texts that each end with a separator. No inputs.
//!
//! BERT learns an embedding for each of two texts (Devlin et al. 2019, section 3). A separator belongs to the text that it ends.

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, SequenceMemory, StateShape, TokenContext, WeightId};

/// `table[separators before the token]`; the last row where the table has fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenTypes {
    /// `[n_types, width]`.
    pub table: WeightId,
    /// The token that ends a text.
    pub separator: u32,
    /// Index of its state, which counts separators.
    pub state: usize,
}

impl TokenTypes {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let last = row.graph.weights[self.table.0].n.saturating_sub(1);
        let index = state[0].to_f64() as usize;
        row.weights.row(self.table, index.min(last), out);
        if row.token == self.separator {
            state[0] += R::from_f64(1.0);
        }
    }
}

impl Operation for TokenTypes {
    fn name(&self) -> &'static str {
        "token_types"
    }

    fn arity(&self) -> usize {
        0
    }

    fn weights(&self) -> Vec<WeightUse> {
        vec![WeightUse::new(self.table, WeightKind::Table)]
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.weight(self.table)?[2] == shapes.output())
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(StateShape {
            index: self.state,
            n_elems: 1,
        })
    }

    by_definition!();
}
