//! Expressions written as one writes them: `i(0) * 64 + l(1) - 3`.

use super::{Affine, IndexRange, Pattern, Place, Var};
use std::ops::{Add, Mul, Neg, Sub};

/// Coordinate `d` of the grid point.
pub fn g(d: u8) -> Affine {
    Affine::of(Var::Grid(d), 1)
}

/// Index `d` of the bundle copy (channel, stage or transfer).
pub fn i(d: u8) -> Affine {
    Affine::of(Var::Index(d), 1)
}

/// Variable of the loop at depth `d` of a transfer or a core program.
pub fn l(d: u8) -> Affine {
    Affine::of(Var::Loop(d), 1)
}

/// Number of a stage end among its copies.
pub fn e() -> Affine {
    Affine::of(Var::Each, 1)
}

/// Column of the core in its herd.
pub fn x() -> Affine {
    Affine::of(Var::X, 1)
}

/// Row of the core in its herd.
pub fn y() -> Affine {
    Affine::of(Var::Y, 1)
}

/// The shim tile of a column.
pub fn shim(col: impl Into<Affine>) -> Place {
    Place::Shim(col.into())
}

/// The memory tile of a column.
pub fn memory(col: impl Into<Affine>) -> Place {
    Place::Memory(col.into())
}

/// A core of the array, or cores: a coordinate is an expression or a range (`0..8`).
pub fn core(col: impl Into<IndexRange>, row: impl Into<IndexRange>) -> Place {
    Place::Core {
        col: col.into(),
        row: row.into(),
    }
}

/// `n` elements in a row from `offset`.
pub fn linear(offset: impl Into<Affine>, n: impl Into<Affine>) -> Pattern {
    Pattern {
        offset: offset.into(),
        dims: vec![(n.into(), 1)],
    }
}

/// A walk: offset, then (size, stride) from the outermost dimension to the innermost.
pub fn walk(offset: impl Into<Affine>, dims: impl IntoIterator<Item = (i64, i64)>) -> Pattern {
    Pattern {
        offset: offset.into(),
        dims: dims
            .into_iter()
            .map(|(size, stride)| (Affine::new(size), stride))
            .collect(),
    }
}

impl From<&Affine> for Affine {
    fn from(affine: &Affine) -> Affine {
        affine.clone()
    }
}

impl From<i64> for IndexRange {
    fn from(at: i64) -> IndexRange {
        IndexRange::At(Affine::new(at))
    }
}

impl From<Affine> for IndexRange {
    fn from(at: Affine) -> IndexRange {
        IndexRange::At(at)
    }
}

impl From<std::ops::Range<u32>> for IndexRange {
    fn from(range: std::ops::Range<u32>) -> IndexRange {
        IndexRange::Range {
            start: range.start,
            len: range.end.saturating_sub(range.start),
        }
    }
}

impl<T: Into<Affine>> Add<T> for Affine {
    type Output = Affine;

    fn add(self, other: T) -> Affine {
        let other = other.into();
        let mut sum = other
            .terms
            .into_iter()
            .fold(self, |sum, (v, f)| sum.plus(v, f));
        sum.constant = sum.constant.wrapping_add(other.constant);
        sum
    }
}

impl<T: Into<Affine>> Sub<T> for Affine {
    type Output = Affine;

    fn sub(self, other: T) -> Affine {
        self + -other.into()
    }
}

impl Mul<i64> for Affine {
    type Output = Affine;

    fn mul(mut self, factor: i64) -> Affine {
        self.constant = self.constant.wrapping_mul(factor);
        for term in &mut self.terms {
            term.1 = term.1.wrapping_mul(factor);
        }
        self.terms.retain(|term| term.1 != 0);
        self
    }
}

impl Neg for Affine {
    type Output = Affine;

    fn neg(self) -> Affine {
        self * -1
    }
}

impl<T: Into<Affine>> Add<T> for &Affine {
    type Output = Affine;

    fn add(self, other: T) -> Affine {
        self.clone() + other
    }
}

impl<T: Into<Affine>> Sub<T> for &Affine {
    type Output = Affine;

    fn sub(self, other: T) -> Affine {
        self.clone() - other
    }
}

impl Mul<i64> for &Affine {
    type Output = Affine;

    fn mul(self, factor: i64) -> Affine {
        self.clone() * factor
    }
}

impl Add<Affine> for i64 {
    type Output = Affine;

    fn add(self, other: Affine) -> Affine {
        other + self
    }
}

impl Sub<Affine> for i64 {
    type Output = Affine;

    fn sub(self, other: Affine) -> Affine {
        -other + self
    }
}

impl Mul<Affine> for i64 {
    type Output = Affine;

    fn mul(self, other: Affine) -> Affine {
        other * self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_normalise() {
        let sum = 4 * i(0) + l(1) - 3 + i(0) * -4;
        assert_eq!(sum, Affine::of(Var::Loop(1), 1) + -3);
        let k = l(0);
        assert_eq!(&k * 2 + &k, Affine::of(Var::Loop(0), 3));
        let none = 0;
        assert_eq!((2 - x()) * none, Affine::new(0));
        assert_eq!(y() - y(), Affine::new(0));
        assert_eq!(7 + g(0), g(0) + 7);
    }
}
