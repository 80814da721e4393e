//! A row added to streams, to each by its weight: `out[i] = x[i] + (offset + weights[i]) · y` from stream `first` on.
//! Earlier streams are unchanged. Inputs: x (`n_streams` streams side by side), y (as wide as a stream), weights
//! (`n_streams`).
//!
//! AltUp corrects its streams this way by the output of a block that computed one of them (Baykal et al. 2023, Alternating
//! Updates for Efficient Transformers, section 3).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `x[i] + (offset + weights[i]) · y`, from stream `first` on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddToStreams {
    /// Streams side by side.
    pub n_streams: usize,
    /// The first stream that is changed.
    pub first: usize,
    /// Added to each weight; without weights, the weight itself.
    pub offset: f32,
    /// Whether the third input, the weights, exists.
    pub weighted: bool,
}

impl AddToStreams {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let [x, y] = [row.inputs[0], row.inputs[1]];
        out.copy_from_slice(x);
        let offset = R::from_f64(f64::from(self.offset));
        let streams = out.chunks_exact_mut(y.len()).enumerate();
        for (stream, out) in streams.skip(self.first) {
            let weight = match self.weighted {
                true => offset + row.inputs[2][stream],
                false => offset,
            };
            for (out, y) in out.iter_mut().zip(y) {
                *out += weight * *y;
            }
        }
    }
}

impl Operation for AddToStreams {
    fn name(&self) -> &'static str {
        "add_to_streams"
    }

    fn arity(&self) -> usize {
        if self.weighted { 3 } else { 2 }
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let n = self.n_streams;
        fits(n > 0 && n.checked_mul(shapes.input(1)) == Some(shapes.input(0)))?;
        fits(!self.weighted || shapes.input(2) == n)?;
        fits(shapes.input(0) == shapes.output() && self.offset.is_finite())
    }

    by_definition!();
}
