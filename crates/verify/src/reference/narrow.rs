//! Operands in few bits: [`NarrowOperands`], by its definition.
//!
//! Written for checking: none of a target's own conversion is used here.

use millrace_npu::Element;
use millrace_plan::{Factor, NarrowOperands};

/// The largest number of E4M3.
const E4M3_MAX: f64 = 448.0;
/// Its smallest exponent of normal numbers, and binary digits after the point.
const E4M3_MIN_EXPONENT: i32 = -6;
const E4M3_DIGITS: i32 = 3;

/// Converts a row of a weight in place.
pub(crate) fn weight(row: &mut [f32], rule: &NarrowOperands) {
    let scale = scale(row, rule);
    for x in row {
        *x = (round(f64::from(*x) / scale, rule.weights) * scale) as f32;
    }
}

/// Converts the activations of a token in place.
pub(crate) fn activations(row: &mut [f32], rule: &NarrowOperands) {
    let factor = match rule.factor {
        Factor::Constant(factor) => factor,
        Factor::OfRow(largest) => {
            let size = row.iter().fold(0f32, |size, x| size.max(x.abs()));
            if size == 0.0 {
                return;
            }
            largest / size
        }
    };
    for x in row {
        let lifted = f64::from(*x * factor);
        *x = (round(lifted, rule.activations) / f64::from(factor)) as f32;
    }
}

/// The factor that a row's stored elements are multiplied by; 1 for a row of zeros.
pub(crate) fn scale(row: &[f32], rule: &NarrowOperands) -> f64 {
    let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    match largest > 0.0 {
        true => f64::from(largest / rule.largest),
        false => 1.0,
    }
}

/// Half the distance of the type's numbers around one.
pub(crate) fn half_step(x: f64, element: Element) -> f64 {
    0.5 * step(x, element)
}

fn step(x: f64, element: Element) -> f64 {
    match element {
        Element::F8E4m3 => {
            let exponent = x.abs().max(f64::MIN_POSITIVE).log2().floor() as i32;
            2f64.powi(exponent.max(E4M3_MIN_EXPONENT) - E4M3_DIGITS)
        }
        _ => 1.0,
    }
}

/// The nearest number of the type, ties to even, none beyond its largest.
fn round(x: f64, element: Element) -> f64 {
    let step = step(x, element);
    let nearest = (x / step).round_ties_even() * step;
    match element {
        Element::F8E4m3 => nearest.clamp(-E4M3_MAX, E4M3_MAX),
        Element::I4 => nearest.clamp(-8.0, 7.0),
        Element::I8 => nearest.clamp(-128.0, 127.0),
        _ => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of E4M3 maps to itself, and a number between two of them to the nearer.
    #[test]
    fn numbers_go_to_the_nearest_of_the_type() {
        let mut numbers: Vec<f64> = (0..=0x7e)
            .filter_map(|bits: u8| Element::F8E4m3.number(&[bits]))
            .collect();
        numbers.sort_by(f64::total_cmp);
        for pair in numbers.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            let to = |x: f64| round(x, Element::F8E4m3);
            assert_eq!((to(a), to(-b)), (a, -b));
            assert_eq!(to(a + 0.49 * (b - a)), a);
            assert_eq!(to(a + 0.51 * (b - a)), b);
        }
        assert_eq!(round(1e6, Element::F8E4m3), 448.0);
        assert_eq!(round(-9.0, Element::I4), -8.0);
    }

    #[test]
    fn rows_have_a_scale_each_and_activations_one() {
        let rule = NarrowOperands {
            weights: Element::I4,
            largest: 7.0,
            activations: Element::F8E4m3,
            factor: Factor::Constant(16.0),
        };
        let mut row = [0.7, -0.24, 0.01];
        weight(&mut row, &rule);
        let expected = [0.7, -0.2, 0.0];
        assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
        let mut x = [100.0, 1.03125, 0.0];
        activations(&mut x, &rule);
        assert_eq!(x, [28.0, 1.0, 0.0]);
        let of_rows = NarrowOperands {
            activations: Element::I8,
            factor: Factor::OfRow(127.0),
            ..rule
        };
        let mut x = [2.54, -0.011, 0.031, 0.0];
        activations(&mut x, &of_rows);
        let expected = [2.54, -0.02, 0.04, 0.0];
        assert!(
            x.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
            "{x:?}"
        );
        let mut zeros = [0.0; 3];
        activations(&mut zeros, &of_rows);
        assert_eq!(zeros, [0.0; 3]);
    }
}
