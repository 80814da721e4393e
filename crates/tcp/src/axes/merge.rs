//! Layouts of two operands brought together, and their canonical form.

use super::{Digit, DigitLayout, Source};

impl DigitLayout {
    /// The same digits without parts that do not affect the order: steps along no axis, and ends of axes, which belong
    /// to a tensor.
    #[must_use]
    pub fn plain(&self) -> DigitLayout {
        let own = |digit: &Digit| Digit {
            stride: match digit.source {
                Source::Axis(_) => digit.stride,
                Source::Copies => 1,
            },
            limit: u64::MAX,
            ..*digit
        };
        let digits = self.digits.iter().filter(|digit| digit.size > 1);
        DigitLayout {
            digits: digits.map(own).collect(),
        }
    }

    /// The same positions with neighbours of one axis joined: two layouts order their elements alike
    /// exactly where these are equal.
    #[must_use]
    pub fn canonical(&self) -> DigitLayout {
        let mut digits: Vec<Digit> = Vec::new();
        for digit in self.plain().digits {
            let joins = |outer: &Digit| {
                let copies = digit.source == Source::Copies && outer.source == Source::Copies;
                let follows = outer.stride == digit.stride * digit.size || copies;
                let is_whole = digit.valid == digit.size && outer.valid == outer.size;
                outer.source == digit.source && follows && is_whole
            };
            match digits.last_mut().filter(|outer| joins(outer)) {
                Some(outer) => {
                    outer.size *= digit.size;
                    outer.valid *= digit.valid;
                    outer.stride = digit.stride;
                }
                None => digits.push(digit),
            }
        }
        DigitLayout { digits }
    }

    /// This layout followed by another.
    #[must_use]
    pub(crate) fn followed_by(&self, inner: &DigitLayout) -> DigitLayout {
        let digits = [&self.digits[..], &inner.digits[..]].concat();
        DigitLayout { digits }
    }

    /// Merges the layouts of two operands, position by position: copies of one take the axis of the other. `None` where
    /// the two contradict each other or differ in size.
    pub fn merge(&self, other: &DigitLayout) -> Option<DigitLayout> {
        if self.size() != other.size() {
            return None;
        }
        let (mut left, mut right) = (self.digits.clone(), other.digits.clone());
        let mut merged = Vec::new();
        while let (Some(a), Some(b)) = (left.pop(), right.pop()) {
            let (a, b) = match (a.size, b.size) {
                (x, y) if x == y => (a, b),
                (x, y) if x > y => {
                    let (outer, inner) = split(a, y)?;
                    left.push(outer);
                    (inner, b)
                }
                (x, _) => {
                    let (outer, inner) = split(b, x)?;
                    right.push(outer);
                    (a, inner)
                }
            };
            merged.insert(0, join(a, b)?);
        }
        Some(DigitLayout { digits: merged })
    }
}

/// The outer part of a digit, and its innermost `n` positions.
fn split(digit: Digit, n: u64) -> Option<(Digit, Digit)> {
    if !digit.size.is_multiple_of(n) || !(digit.valid.is_multiple_of(n) || digit.valid <= n) {
        // Padding that begins within a block can only be marked by the end of the axis.
        let ends = digit.size.is_multiple_of(n) && digit.axis().is_some();
        if !ends {
            return None;
        }
    }
    let outer = Digit {
        stride: digit.stride * n,
        size: digit.size / n,
        valid: digit.valid.div_ceil(n),
        ..digit
    };
    let inner = Digit {
        size: n,
        valid: digit.valid.min(n),
        ..digit
    };
    Some((outer, inner))
}

fn join(a: Digit, b: Digit) -> Option<Digit> {
    let is_copies = |digit: &Digit| digit.source == Source::Copies && digit.valid == digit.size;
    let limit = a.limit.min(b.limit);
    match () {
        () if (Digit { limit, ..a }) == (Digit { limit, ..b }) => Some(Digit { limit, ..a }),
        () if is_copies(&a) => Some(b),
        () if is_copies(&b) => Some(a),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::axes::{Axes, DigitLayout, parse_mapping};

    fn layout(text: &str) -> DigitLayout {
        let axes = Axes::of(&[("A", 8), ("B", 512)]).unwrap();
        DigitLayout::of(&parse_mapping(text).unwrap(), &axes).unwrap()
    }

    #[test]
    fn neighbours_join() {
        assert_eq!(layout("B / 8, B % 8").canonical(), layout("B").canonical());
        assert_eq!(layout("B / 8, A, B % 8").canonical().digits.len(), 3);
        assert_ne!(layout("B % 8, B / 8").canonical(), layout("B"));
    }

    #[test]
    fn copies_take_the_other_axis() {
        let merged = |a: &str, b: &str| layout(a).merge(&layout(b)).map(|l| l.canonical());
        assert_eq!(
            merged("A, 8", "8, B / 64"),
            Some(layout("A, B / 64").canonical())
        );
        assert_eq!(
            merged("64", "A, B / 64"),
            Some(layout("A, B / 64").canonical())
        );
        assert_eq!(merged("B / 8", "B / 8"), Some(layout("B / 8").canonical()));
        assert_eq!(merged("A", "B / 64"), None);
        assert_eq!(merged("A", "1 # 8"), None);
        assert_eq!(merged("A, 2", "A"), None);
    }
}
