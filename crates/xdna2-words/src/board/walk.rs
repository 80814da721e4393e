//! The addresses that a descriptor visits.

use super::fault::BoardProblem;
use crate::descriptor::dimensions;
use crate::field::{Record, WordField};

/// One dimension.
#[derive(Clone, Copy, Debug, Default)]
struct Dimension {
    /// Positions with data; 0 runs on until the length is spent.
    wrap: u64,
    /// Words from one to the next.
    step: u64,
    before: u64,
    after: u64,
    at: u64,
}

/// Word addresses in the order of the stream, counted from the descriptor's base. A position of the
/// padding has none.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    dims: Vec<Dimension>,
    offset: u64,
    is_padded: bool,
    /// Words left, padding among them.
    pub(super) left: u64,
}

const PADS: [(WordField, WordField); 3] = [
    (WordField::D0PadBefore, WordField::D0PadAfter),
    (WordField::D1PadBefore, WordField::D1PadAfter),
    (WordField::D2PadBefore, WordField::D2PadAfter),
];

impl Walk {
    /// The walk of a descriptor. With `strict`, fields that have no effect must be zero.
    pub(super) fn new(descriptor: &Record, strict: bool) -> Result<Walk, BoardProblem> {
        let length = descriptor.get(WordField::Length);
        let mut dims: Vec<Dimension> = Vec::with_capacity(4);
        let (mut reached, mut inner, mut whole) = (true, 1u64, 1u64);
        for (d, (wrap, step)) in dimensions(descriptor).into_iter().enumerate() {
            let pad = |at: usize| PADS.get(d).map(|p| descriptor.get([p.0, p.1][at]));
            let (before, after) = (pad(0).unwrap_or(0), pad(1).unwrap_or(0));
            if !reached {
                if strict && (wrap, step, before, after) != (0, 1, 0, 0) {
                    return Err(BoardProblem::NoEffect(format!(
                        "dimension {d} is never reached, and has wrap {wrap}, step {step}"
                    )));
                }
                continue;
            }
            if wrap == 0 && (after > 0 || before > 0 && d > 0) {
                let problem = format!("padding in dimension {d}, which has no wrap");
                return Err(BoardProblem::Undefined(problem));
            }
            dims.push(Dimension {
                wrap,
                step,
                before,
                after,
                at: 0,
            });
            whole = inner;
            inner = inner.saturating_mul(wrap.saturating_add(before + after));
            reached = wrap > 0 && inner < length;
        }
        let is_cut = !length.is_multiple_of(whole) || inner > length;
        if strict && is_cut {
            let problem = format!("a length of {length} words ends within a dimension");
            return Err(BoardProblem::Undefined(problem));
        }
        let is_padded = dims.iter().any(|d| d.before + d.after > 0);
        Ok(Walk {
            dims,
            offset: 0,
            is_padded,
            left: length,
        })
    }

    /// The next word's distance from the base; `None` for padding. The caller has checked that a word is left.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.left -= 1;
        let here = if self.is_padded {
            self.padded()
        } else {
            Some(self.offset)
        };
        for dim in &mut self.dims {
            dim.at += 1;
            let steps_data = !self.is_padded;
            if dim.wrap == 0 || dim.at < dim.before + dim.wrap + dim.after {
                if steps_data {
                    self.offset += dim.step;
                }
                break;
            }
            if steps_data {
                self.offset -= (dim.at - 1) * dim.step;
            }
            dim.at = 0;
        }
        here
    }

    fn padded(&self) -> Option<u64> {
        let mut offset = 0;
        for dim in &self.dims {
            let at = dim.at.checked_sub(dim.before)?;
            if dim.wrap > 0 && at >= dim.wrap {
                return None;
            }
            offset += at * dim.step;
        }
        Some(offset)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.
    use super::*;
    use crate::descriptor::MEMORY;

    fn walk(fields: &[(WordField, u64)]) -> Vec<Option<u64>> {
        let record = Record::new(&MEMORY).with(fields).unwrap();
        let mut walk = Walk::new(&record, true).unwrap();
        let n = walk.left;
        (0..n).map(|_| walk.next()).collect()
    }

    #[test]
    fn dimensions_nest_from_the_innermost() {
        use WordField::*;
        let some = |all: &[u64]| all.iter().map(|&a| Some(a)).collect::<Vec<_>>();
        assert_eq!(walk(&[(Length, 3)]), some(&[0, 1, 2]));
        assert_eq!(
            walk(&[(Length, 3), (D0Wrap, 3), (D0Step, 4)]),
            some(&[0, 5, 10])
        );
        // Four rows of two, 8 apart; then the same 100 further on.
        let rows = [
            (Length, 12),
            (D0Wrap, 2),
            (D1Wrap, 3),
            (D1Step, 7),
            (D2Step, 99),
        ];
        assert_eq!(
            walk(&rows),
            some(&[0, 1, 8, 9, 16, 17, 100, 101, 108, 109, 116, 117])
        );
    }

    #[test]
    fn padding_stands_around_the_data() {
        use WordField::*;
        let rows = [
            (Length, 15),
            (D0Wrap, 2),
            (D0PadBefore, 2),
            (D0PadAfter, 1),
            (D1Wrap, 2),
            (D1Step, 9),
            (D1PadBefore, 1),
        ];
        let mut expected = vec![None; 5];
        for row in [[0, 1], [10, 11]] {
            expected.extend([None, None, Some(row[0]), Some(row[1]), None]);
        }
        assert_eq!(walk(&rows), expected);
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        use WordField::*;
        let refused = |fields: &[(WordField, u64)]| {
            Walk::new(&Record::new(&MEMORY).with(fields).unwrap(), true).unwrap_err()
        };
        let cut = refused(&[(Length, 5), (D0Wrap, 2), (D1Wrap, 3), (D1Step, 7)]);
        assert!(matches!(cut, BoardProblem::Undefined(_)), "{cut:?}");
        let unreached = refused(&[(Length, 4), (D1Step, 7)]);
        assert!(
            matches!(unreached, BoardProblem::NoEffect(_)),
            "{unreached:?}"
        );
        let unreached = refused(&[(Length, 4), (D0Wrap, 4), (D1Wrap, 2)]);
        assert!(
            matches!(unreached, BoardProblem::NoEffect(_)),
            "{unreached:?}"
        );
        let padded = refused(&[(Length, 4), (D0PadAfter, 2)]);
        assert!(matches!(padded, BoardProblem::Undefined(_)), "{padded:?}");
    }
}
