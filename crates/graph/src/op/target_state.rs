//! A hidden state of another model, passed along with a token: `out[t] = given[t]`. No inputs.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// The row that the caller passes with a token. For a draft layer it is the hidden state that the target model computed
/// for the previous token. Zeros if there is none, as for the first token of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetState {
    /// Elements of a row.
    pub width: usize,
}

impl TargetState {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        match row.given.is_empty() {
            true => out.fill(R::default()),
            false => out.copy_from_slice(row.given),
        }
    }
}

impl Operation for TargetState {
    fn name(&self) -> &'static str {
        "target_state"
    }

    fn arity(&self) -> usize {
        0
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.output() == self.width)
    }

    by_definition!();
}
