//! A value assembled on every rank from the parts of all ranks. Inputs: this rank's part.
//!
//! Ops of this kind occur only in the graph of a rank ([`shard`](crate::shard())). An engine with ranks exchanges the parts;
//! the definition knows only this rank's.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// The parts of all ranks, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllGather {
    /// The rank that owns this graph.
    pub rank: usize,
    /// Pieces of a row, side by side; every rank has a part of each. There is one piece, or one for each expert that a token uses.
    pub n_pieces: usize,
    /// Elements that each rank contributes to a piece; 0 where other ranks have the same elements.
    pub lens: Vec<usize>,
    /// Elements of this rank's own piece that precede the ones it contributes.
    pub first: usize,
}

impl AllGather {
    /// Elements of a piece of the result.
    pub fn piece_width(&self) -> usize {
        self.lens.iter().sum()
    }

    /// Where this rank's elements begin in a piece of the result.
    pub fn own_place(&self) -> usize {
        self.lens[..self.rank].iter().sum()
    }

    /// Copies this rank's elements to their places. The elements of other ranks are NaN.
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        out.fill(R::from_f64(f64::NAN));
        let x = row.inputs[0];
        let (own, place) = (self.lens[self.rank], self.own_place());
        let pieces = x.chunks_exact(x.len() / self.n_pieces);
        for (out, x) in out.chunks_exact_mut(self.piece_width()).zip(pieces) {
            out[place..][..own].copy_from_slice(&x[self.first..][..own]);
        }
    }
}

impl Operation for AllGather {
    fn name(&self) -> &'static str {
        "all_gather"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let (n, x) = (self.n_pieces, shapes.input(0));
        let own = self.lens.get(self.rank).copied().unwrap_or(usize::MAX);
        fits(n > 0 && x.is_multiple_of(n))?;
        let inside = self.first.checked_add(own) <= Some(x / n);
        let width = self
            .lens
            .iter()
            .try_fold(0_usize, |sum, len| sum.checked_add(*len));
        let width = width.and_then(|width| width.checked_mul(n));
        fits(inside && width == Some(shapes.output()))
    }

    by_definition!();
}
