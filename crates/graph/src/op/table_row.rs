//! A row of a table, independent of the token: `table[step · position]`. No inputs.
//!
//! Encoders learn an embedding of each position, and one of the text that a token belongs to (Devlin et al. 2019, section 3).

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext, WeightId};

/// `table[step · position]`; the last row where the table has fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// `[n, width]`.
    pub table: WeightId,
    /// Distance between the rows of neighbouring positions: 1, or 0 for the same row everywhere.
    pub step: usize,
}

impl TableRow {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let last = row.graph.weights[self.table.0].n.saturating_sub(1);
        let index = row.position.saturating_mul(self.step).min(last);
        row.weights.row(self.table, index, out);
    }
}

impl Operation for TableRow {
    fn name(&self) -> &'static str {
        "table_row"
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

    by_definition!();
}
