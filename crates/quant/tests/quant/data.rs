//! Test data: a reproducible generator and the measure of error.

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal numbers (Box and Muller).
    pub(crate) fn normal(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let radius = (-2.0 * self.unit().ln()).sqrt();
                (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
            })
            .collect()
    }
}

/// `sqrt(Σ(found − expected)² / Σ expected²)`
pub(crate) fn relative_rms(expected: &[f32], found: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let error: f64 = expected
        .iter()
        .zip(found)
        .map(|(e, f)| square(f64::from(*e) - f64::from(*f)))
        .sum();
    let norm: f64 = expected.iter().map(|e| square(f64::from(*e))).sum();
    (error / norm).sqrt()
}
