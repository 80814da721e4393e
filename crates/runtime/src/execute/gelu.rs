//! GELU by the error function, where it stands alone.

use millrace_kernels::Cpu;

/// `x / 2 · (1 + erf(x / sqrt(2)))` in place, a row of `width` elements a piece of work.
pub(crate) fn gelu(cpu: &Cpu, rows: &mut [f32], width: usize) {
    cpu.pool().run_pieces(rows, width, &|_, row| {
        for x in row {
            *x *= 0.5 * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
        }
    });
}

/// The error function within 2e-7 (Abramowitz and Stegun 1964, 7.1.26).
fn erf(x: f32) -> f32 {
    const TERMS: [f32; 5] = [
        1.061_405_4,
        -1.453_152,
        1.421_413_8,
        -0.284_496_74,
        0.254_829_6,
    ];
    let a = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * a);
    let sum = TERMS.iter().fold(0.0, |sum, term| sum * t + term) * t;
    (1.0 - sum * (-a * a).exp()).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn known_values() {
        // Abramowitz and Stegun 1964, table 7.1.
        let known = [
            (0.0, 0.0),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (4.0, 1.0),
        ];
        for (x, expected) in known {
            for sign in [1.0, -1.0] {
                let found = erf(sign * x);
                assert!((found - sign * expected).abs() < 4e-7, "{x}: {found}");
            }
        }
    }
}
