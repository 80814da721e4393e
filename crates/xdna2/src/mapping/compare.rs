//! Comparison of a result with its reference.

use super::Tolerance;
use millrace_npu::Element;
use std::fmt;

/// How a slot compares with its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Elements compared.
    pub n_elements: u64,
    /// Elements whose bytes differ, within the tolerance or not.
    pub n_unequal: u64,
    /// The first element outside the tolerance.
    pub outside: Option<Difference>,
}

/// One element that differs from its expected value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Its index in the slot.
    pub at: u64,
    /// The run's value.
    pub found: f64,
    /// The reference's value.
    pub expected: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            at,
            found,
            expected,
        } = self;
        write!(f, "element {at} is {found}, expected {expected}")
    }
}

/// Compares a slot's content with its reference, element by element. Missing elements differ.
pub fn compare(
    element: Element,
    found: &[u8],
    expected: &[u8],
    tolerance: Tolerance,
) -> Comparison {
    let size = element.size_bytes() as usize;
    let mut comparison = Comparison {
        n_elements: (expected.len() / size) as u64,
        n_unequal: 0,
        outside: None,
    };
    for at in 0..expected.len().max(found.len()) / size {
        let bytes = |of: &[u8]| of.get(at * size..(at + 1) * size).map(<[u8]>::to_vec);
        let (found, expected) = (bytes(found), bytes(expected));
        if found == expected {
            continue;
        }
        comparison.n_unequal += 1;
        let value = |bytes: Option<Vec<u8>>| bytes.map_or(f64::NAN, |b| value(element, &b));
        let (found, expected) = (value(found), value(expected));
        if comparison.outside.is_none() && !close(element, found, expected, tolerance) {
            let at = at as u64;
            comparison.outside = Some(Difference {
                at,
                found,
                expected,
            });
        }
    }
    comparison
}

/// Whether unequal values are close enough. A number is never close to NaN.
fn close(element: Element, found: f64, expected: f64, tolerance: Tolerance) -> bool {
    let Tolerance::Close { ulps, absolute } = tolerance else {
        return false;
    };
    let unit = match element.precision() {
        Some(digits) => expected.abs() * 2f64.powi(1 - digits.cast_signed()),
        None => 1.0,
    };
    (found - expected).abs() <= (unit * f64::from(ulps)).max(f64::from(absolute))
}

/// One element's bytes as a number.
fn value(element: Element, bytes: &[u8]) -> f64 {
    element.number(bytes).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bf16s(values: &[f32]) -> Vec<u8> {
        (values
            .iter()
            .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()))
        .collect()
    }

    #[test]
    fn tolerances_decide_what_is_outside() {
        let (a, b) = (bf16s(&[1.0, 2.0, 3.0]), bf16s(&[1.0, 2.015_625, 3.0]));
        let exact = compare(Element::Bf16, &a, &b, Tolerance::Exact);
        assert_eq!((exact.n_elements, exact.n_unequal), (3, 1));
        assert_eq!(exact.outside.map(|d| d.at), Some(1));
        let close = Tolerance::Close {
            ulps: 1,
            absolute: 0.0,
        };
        assert_eq!(compare(Element::Bf16, &a, &b, close).outside, None);
    }

    #[test]
    fn what_is_missing_or_no_number_is_outside() {
        let close = Tolerance::Close {
            ulps: 9,
            absolute: 9.0,
        };
        let (one, two) = (bf16s(&[1.0]), bf16s(&[1.0, 1.0]));
        assert!(compare(Element::Bf16, &one, &two, close).outside.is_some());
        let nan = bf16s(&[f32::NAN]);
        assert!(compare(Element::Bf16, &nan, &one, close).outside.is_some());
    }
}
