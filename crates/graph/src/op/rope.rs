//! Rotary position embedding: rotates each head of x by the token's position. Inputs: x.
//!
//! Su et al. 2021, section 3.2; [`crate::RopeStyle`] says which elements form a pair.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, RopeId, RopeStyle, TokenContext};

/// Rotates each head of x by the token's position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotateHeads {
    /// Index of the table.
    pub rope: RopeId,
    /// Elements a head.
    pub head_dim: usize,
    /// The first element of a head that rotates. Elements before it, and after the table's, pass through.
    pub first: usize,
}

impl RotateHeads {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let rope = &row.graph.ropes[self.rope.0];
        let half = rope.inv_freq.len();
        let real = |x: f32| R::from_f64(f64::from(x));
        let position = R::from_f64(row.position as f64);
        out.copy_from_slice(row.inputs[0]);
        for (i, frequency) in rope.inv_freq.iter().enumerate() {
            let (sin, cos) = (position * real(*frequency)).sin_cos();
            let factor = real(rope.attention_factor);
            let [sin, cos] = [sin, cos].map(|x| (row.round)(x * factor));
            let (i, j) = match rope.style {
                RopeStyle::HalfSplit => (i, i + half),
                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            };
            for head in out.chunks_exact_mut(self.head_dim) {
                let head = &mut head[self.first..];
                let (a, b) = (head[i], head[j]);
                (head[i], head[j]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
    }
}

impl Operation for RotateHeads {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let rope = shapes.graph().ropes.get(self.rope.0);
        let rope = rope.ok_or_else(|| format!("RoPE table {} is not there", self.rope.0))?;
        let out = shapes.output();
        let end = self.first.checked_add(rope.n_rot);
        let inside = end.is_some_and(|end| end <= self.head_dim);
        let rotates = inside && rope.inv_freq.len() == rope.n_rot / 2;
        let divides = self.head_dim > 0 && out.is_multiple_of(self.head_dim);
        fits(divides && shapes.input(0) == out && rotates)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
