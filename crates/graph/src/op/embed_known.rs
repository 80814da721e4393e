//! Rows of a table that lacks the last tokens of the vocabulary, which take the first row:
//! `out[t] = scale · table[token[t] < n_rows ? token[t] : 0]`. No inputs.
//!
//! Folders of Gemma 3n have no rows for the tokens that represent images and sounds.

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext, WeightId};

/// `scale · table[token]`, or `scale · table[0]` for a token beyond the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbedKnown {
    /// `[n_rows, width]`.
    pub table: WeightId,
    /// Factor on the row.
    pub scale: f32,
}

impl EmbedKnown {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let n_rows = row.graph.weights[self.table.0].n;
        let token = row.token as usize;
        let token = if token < n_rows { token } else { 0 };
        row.weights.row(self.table, token, out);
        let scale = R::from_f64(f64::from(self.scale));
        out.iter_mut().for_each(|x| *x = *x * scale);
    }
}

impl Operation for EmbedKnown {
    fn name(&self) -> &'static str {
        "embed_known"
    }

    fn arity(&self) -> usize {
        0
    }

    fn weights(&self) -> Vec<WeightUse> {
        vec![WeightUse::new(self.table, WeightKind::Table)]
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let [_, n_rows, width] = shapes.weight(self.table)?;
        fits(n_rows > 0 && width == shapes.output())
    }

    by_definition!();
}
