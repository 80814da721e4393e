//! The largest error of a result.

use super::Exact;

/// The element with the largest error, by its tolerance.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct LargestError {
    pub(in super::super) share: f64,
    pub(in super::super) row: usize,
    pub(in super::super) col: usize,
    pub(in super::super) expected: f64,
    pub(in super::super) found: f64,
    pub(in super::super) tolerance: f64,
    /// Elements beyond their tolerance.
    pub(super) n_wrong: u64,
}

impl LargestError {
    /// The same for a caller that has value and tolerance as numbers.
    pub(in super::super) fn take_number(
        &mut self,
        (row, col): (usize, usize),
        (y, tolerance): (f64, f64),
        found: f64,
    ) {
        self.take(row, col, Exact { y, tolerance }, found);
    }

    /// Elements beyond their tolerance.
    pub(in super::super) fn n_wrong(&self) -> u64 {
        self.n_wrong
    }

    pub(super) fn take(&mut self, row: usize, col: usize, exact: Exact, found: f64) {
        let Exact { y, tolerance } = exact;
        let error = (found - y).abs();
        let share = match error.is_nan() {
            // NaN is the largest possible error, unless the op gives NaN.
            true if y.is_nan() => 0.0,
            true => f64::INFINITY,
            false => error / tolerance,
        };
        if share > 1.0 {
            self.n_wrong += 1;
        }
        if share >= self.share {
            *self = LargestError {
                share,
                row,
                col,
                expected: y,
                found,
                tolerance,
                n_wrong: self.n_wrong,
            };
        }
    }
}
