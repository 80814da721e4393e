//! Rows of a table: `out[t] = scale · table[token[t]]`. No inputs.

use super::{OpRole, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext, WeightId};

/// `scale · table[token]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embed {
    /// `[vocab, d_model]`.
    pub table: WeightId,
    /// Factor on the row (Gemma: `sqrt(d_model)`), 1 otherwise.
    pub scale: f32,
}

impl Embed {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        row.weights.row(self.table, row.token as usize, out);
        let scale = R::from_f64(f64::from(self.scale));
        out.iter_mut().for_each(|x| *x = *x * scale);
    }
}

impl Operation for Embed {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn arity(&self) -> usize {
        0
    }

    fn weights(&self) -> Vec<WeightUse> {
        vec![WeightUse::new(self.table, WeightKind::Table)]
    }

    fn role(&self) -> OpRole {
        OpRole::TokenEmbedding
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.weight(self.table)?[2] == shapes.output())
    }

    by_definition!();
}
