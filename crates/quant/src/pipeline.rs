//! Quantisation step by step, with a measure of its noise. Rows of numbers go through formats, integers with one
//! scale a row or a group, and rotations before and after.

use crate::{DType, Error, decode_blocks, encode_blocks};

/// One step. Each replaces the numbers by those that its result represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Encoded in a block format and decoded. For formats whose blocks span rows, the rows must be whole blocks.
    Format(DType),
    /// Symmetric integers of this many bits, `q = round(x / s)` with `s = max |x| / (2^(bits-1) - 1)`: one scale for
    /// each group of a row, or for the whole row with `None`.
    Integers {
        /// 2 to 16.
        bits: u32,
        /// Elements that share a scale.
        group: Option<usize>,
    },
    /// The Walsh–Hadamard transform of each block of `n` elements, divided by `√n`: it is its own inverse.
    /// Outliers are spread over a block, so that they do not raise a scale.
    Hadamard(usize),
}

/// The largest power of two that divides `k`, at most 4096: the block size of [`Step::Hadamard`].
pub fn hadamard_block(k: usize) -> usize {
    match k {
        0 => 1,
        k => (1 << k.trailing_zeros()).min(4096),
    }
}

/// Takes rows `[n_rows, k]` through the steps.
///
/// # Errors
/// A format or block that `k` does not divide into.
pub fn apply(steps: &[Step], rows: &mut [f32], k: usize) -> Result<(), Error> {
    for step in steps {
        match *step {
            Step::Format(dtype) => through(dtype, rows, k)?,
            Step::Integers { bits, group } => {
                let group = group.unwrap_or(k).max(1);
                for row in rows.chunks_mut(k.max(1)) {
                    row.chunks_mut(group).for_each(|x| integers(bits, x));
                }
            }
            Step::Hadamard(n) => rows.chunks_mut(n.max(1)).for_each(hadamard),
        }
    }
    Ok(())
}

fn through(dtype: DType, rows: &mut [f32], k: usize) -> Result<(), Error> {
    let n_rows = rows.len() / k.max(1);
    let n_bytes = dtype
        .size_bytes(n_rows, k)
        .ok_or(Error::Shape { dtype, n_rows, k })?;
    let mut bytes = vec![0; n_bytes];
    if dtype.block_rows() > 1 {
        crate::encode_matrix(dtype, rows, n_rows, k, &mut bytes)?;
        return crate::decode_rows(dtype, &bytes, n_rows, k, 0..n_rows, rows);
    }
    encode_blocks(dtype, rows, &mut bytes)?;
    decode_blocks(dtype, &bytes, rows)
}

fn integers(bits: u32, x: &mut [f32]) {
    let most = ((1u32 << (bits.clamp(2, 16) - 1)) - 1) as f32;
    let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    if max == 0.0 {
        return;
    }
    let scale = max / most;
    x.iter_mut().for_each(|x| *x = (*x / scale).round() * scale);
}

/// Transforms a block in place; the rest of a row whose length is not a power of two stays unchanged.
fn hadamard(x: &mut [f32]) {
    let n = x.len();
    if !n.is_power_of_two() {
        return;
    }
    let mut half = 1;
    while half < n {
        for pair in x.chunks_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (n as f32).sqrt();
    x.iter_mut().for_each(|x| *x *= scale);
}

/// Energy of a signal and of its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Sum of squares of the signal.
    pub signal: f64,
    /// Sum of squares of the differences.
    pub noise: f64,
}

impl Noise {
    /// Between a signal and its changed version.
    pub fn of(signal: &[f32], found: &[f32]) -> Noise {
        let square = |x: f64| x * x;
        Noise {
            signal: signal.iter().map(|x| square(f64::from(*x))).sum(),
            noise: signal
                .iter()
                .zip(found)
                .map(|(a, b)| square(f64::from(*a) - f64::from(*b)))
                .sum(),
        }
    }

    /// Signal-to-noise ratio in decibels, `10 log10(Σ x² / Σ (x - y)²)`; infinite without noise.
    pub fn snr_db(&self) -> f64 {
        10.0 * (self.signal / self.noise).log10()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal numbers from a fixed stream (splitmix64, twelve uniforms each).
    fn normal(n: usize) -> Vec<f32> {
        let mut state = 7u64;
        let mut uniform = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n)
            .map(|_| ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32)
            .collect()
    }

    fn snr(steps: &[Step], x: &[f32], k: usize) -> f64 {
        let mut y = x.to_vec();
        apply(steps, &mut y, k).unwrap();
        Noise::of(x, &y).snr_db()
    }

    const fn int(bits: u32, group: Option<usize>) -> Step {
        Step::Integers { bits, group }
    }

    /// Uniform steps of size s have noise s²/12, so a bit is 6.02 dB, and from 127 steps to 7 it is 25.2.
    #[test]
    fn integers_have_the_noise_of_their_steps() {
        let x = normal(64 * 4096);
        let (eight, four) = (
            snr(&[int(8, Some(64))], &x, 4096),
            snr(&[int(4, Some(64))], &x, 4096),
        );
        assert!(
            (eight - four - 20.0 * (127.0f64 / 7.0).log10()).abs() < 0.3,
            "{eight} {four}"
        );
        // The published sanity check: 44.8 dB in 8 bits, 19.7 in 4.
        assert!(
            (eight - 44.8).abs() < 1.0 && (four - 19.7).abs() < 1.0,
            "{eight} {four}"
        );
        // One scale for a whole row of 4096 is coarser, because its largest number is further out.
        let row = snr(&[int(8, None)], &x, 4096);
        assert!((39.0..42.5).contains(&row), "{row}");
        assert!((snr(&[int(8, Some(64)), int(4, Some(64))], &x, 4096) - four).abs() < 0.3);
    }

    #[test]
    fn a_rotation_is_its_own_inverse_and_spreads_outliers() {
        let x = normal(8 * 256);
        assert!(snr(&[Step::Hadamard(256), Step::Hadamard(256)], &x, 256) > 120.0);
        let mut spiky = x;
        spiky.iter_mut().step_by(256).for_each(|x| *x = 60.0);
        let quantised = int(8, None);
        let plain = snr(&[quantised], &spiky, 256);
        let rotated = [Step::Hadamard(256), quantised, Step::Hadamard(256)];
        assert!(snr(&rotated, &spiky, 256) > plain + 6.0);
        assert_eq!(
            [0, 1, 96, 2048, 1 << 20].map(hadamard_block),
            [1, 1, 32, 2048, 4096]
        );
    }

    #[test]
    fn formats_keep_what_their_budget_says() {
        let x = normal(64 * 256);
        for dtype in DType::all().filter(|d| *d != DType::F32) {
            let least = -20.0 * dtype.error_budget().log10();
            let found = snr(&[Step::Format(dtype)], &x, 256);
            assert!(
                found > least - 1.0,
                "{dtype}: {found} dB, {least} in the budget"
            );
        }
        assert!(apply(&[Step::Format(DType::Q4K)], &mut [0.0; 100], 100).is_err());
        assert!(snr(&[int(8, None)], &[0.0; 8], 8).is_nan());
    }
}
