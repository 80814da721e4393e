//! Exact sums of products of 16-bit integers, as the integer array of a simulated device computes
//! them. Sums wrap in 32 bits, so every level gives the same bits.

use crate::level::Level;

/// Step in elements of every leaf; lengths are multiples of it.
const STEP: usize = 32;

/// Dot products of rows with kernels: `sums[row · n + kernel]`, with n kernels. `rows` and `kernels` are
/// row-major with k elements a row. A level that this CPU lacks falls back to portable code.
///
/// # Panics
/// If k is not a multiple of 32, or the lengths contradict each other.
pub fn products_i16(level: Level, k: usize, rows: &[i16], kernels: &[i16], sums: &mut [i32]) {
    assert!(k > 0 && k.is_multiple_of(STEP), "k is {k}");
    let (m, n) = (rows.len() / k, kernels.len() / k);
    let expected = (m * k, n * k, m * n);
    let found = (rows.len(), kernels.len(), sums.len());
    assert_eq!(found, expected, "lengths of rows, kernels and sums");
    match level {
        // SAFETY: the level was found on this CPU; the lengths were checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 | Level::Amx if level.is_supported() => unsafe {
            x86::avx512(k, rows, kernels, sums);
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni if level.is_supported() => unsafe {
            x86::avx2(k, rows, kernels, sums);
        },
        _ => portable(k, rows, kernels, sums),
    }
}

fn portable(k: usize, rows: &[i16], kernels: &[i16], sums: &mut [i32]) {
    let n = kernels.len() / k;
    for (row, sums) in rows.chunks_exact(k).zip(sums.chunks_exact_mut(n.max(1))) {
        for (kernel, sum) in kernels.chunks_exact(k).zip(sums) {
            let products = row
                .iter()
                .zip(kernel)
                .map(|(x, y)| i32::from(*x) * i32::from(*y));
            *sum = products.fold(0i32, i32::wrapping_add);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Kernels of a block.
    const N: usize = 4;

    /// Goes over rows R at a time, the rest one by one; the same for kernels.
    macro_rules! blocks {
        ($block:ident, $rows:literal, $k:ident, $a:ident, $b:ident, $sums:ident) => {{
            let (m, n) = ($a.len() / $k, $b.len() / $k);
            let mut kernel = 0;
            while kernel < n {
                let step = if n - kernel >= N { N } else { 1 };
                let mut row = 0;
                while row < m {
                    let height = if m - row >= $rows { $rows } else { 1 };
                    let (a, b) = (&$a[row * $k..][..height * $k], &$b[kernel * $k..][..step * $k]);
                    let out = &mut $sums[row * n + kernel..];
                    // SAFETY: forwarded; the slices hold the rows and kernels of the block, `out` its
                    // sums with a stride of n.
                    unsafe {
                        match (height, step) {
                            ($rows, N) => $block::<$rows, N>($k, a, b, n, out),
                            (_, N) => $block::<1, N>($k, a, b, n, out),
                            ($rows, _) => $block::<$rows, 1>($k, a, b, n, out),
                            _ => $block::<1, 1>($k, a, b, n, out),
                        }
                    }
                    row += height;
                }
                kernel += step;
            }
        }};
    }

    /// # Safety
    /// The CPU must have AVX-512 F, BW and VNNI; k is a multiple of 32.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn avx512(k: usize, rows: &[i16], kernels: &[i16], sums: &mut [i32]) {
        blocks!(block_avx512, 4, k, rows, kernels, sums);
    }

    /// # Safety
    /// As [`avx512`]; `a` has R · k elements, `b` C · k, `out` at least (R - 1) · n + C.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn block_avx512<const R: usize, const C: usize>(
        k: usize,
        a: &[i16],
        b: &[i16],
        n: usize,
        out: &mut [i32],
    ) {
        assert!(a.len() == R * k && b.len() == C * k);
        let mut sums = [[_mm512_setzero_si512(); C]; R];
        for at in (0..k).step_by(32) {
            // SAFETY: 32 elements from `at` are within each row of k, a multiple of 32.
            let load = |of: &[i16], row: usize| unsafe {
                _mm512_loadu_si512(of.as_ptr().add(row * k + at).cast())
            };
            let y: [__m512i; C] = std::array::from_fn(|kernel| load(b, kernel));
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = load(a, row);
                for (sum, y) in sums.iter_mut().zip(&y) {
                    *sum = _mm512_dpwssd_epi32(*sum, x, *y);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (kernel, sum) in sums.iter().enumerate() {
                out[row * n + kernel] = _mm512_reduce_add_epi32(*sum);
            }
        }
    }

    /// # Safety
    /// The CPU must have AVX2; k is a multiple of 32.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(k: usize, rows: &[i16], kernels: &[i16], sums: &mut [i32]) {
        blocks!(block_avx2, 2, k, rows, kernels, sums);
    }

    /// # Safety
    /// As [`avx2`]; lengths as of [`block_avx512`].
    #[target_feature(enable = "avx2")]
    unsafe fn block_avx2<const R: usize, const C: usize>(
        k: usize,
        a: &[i16],
        b: &[i16],
        n: usize,
        out: &mut [i32],
    ) {
        assert!(a.len() == R * k && b.len() == C * k);
        let mut sums = [[_mm256_setzero_si256(); C]; R];
        for at in (0..k).step_by(16) {
            // SAFETY: 16 elements from `at` are within each row of k, a multiple of 32.
            let load = |of: &[i16], row: usize| unsafe {
                _mm256_loadu_si256(of.as_ptr().add(row * k + at).cast())
            };
            let y: [__m256i; C] = std::array::from_fn(|kernel| load(b, kernel));
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = load(a, row);
                for (sum, y) in sums.iter_mut().zip(&y) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(x, *y));
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (kernel, sum) in sums.iter().enumerate() {
                let half = _mm_add_epi32(
                    _mm256_castsi256_si128(*sum),
                    _mm256_extracti128_si256::<1>(*sum),
                );
                let mut lanes = [0i32; 4];
                // SAFETY: four lanes have 16 bytes; the store needs no alignment.
                unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), half) };
                out[row * n + kernel] = lanes
                    .iter()
                    .fold(0, |sum: i32, lane| sum.wrapping_add(*lane));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u32, n: usize) -> Vec<i16> {
        let mut x = seed;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 16) as i16
            })
            .collect()
    }

    #[test]
    fn every_level_gives_the_bits_of_plain_sums() {
        for (m, n, k) in [(1, 1, 32), (1, 4, 64), (5, 7, 96), (9, 16, 256), (4, 3, 32)] {
            let (rows, kernels) = (numbers(m as u32, m * k), numbers(n as u32 + 99, n * k));
            let mut expected = vec![0i32; m * n];
            for (at, sum) in expected.iter_mut().enumerate() {
                for i in 0..k {
                    let (x, y) = (rows[at / n * k + i], kernels[at % n * k + i]);
                    *sum = sum.wrapping_add(i32::from(x) * i32::from(y));
                }
            }
            for level in Level::ALL {
                let mut found = vec![-1; m * n];
                products_i16(level, k, &rows, &kernels, &mut found);
                assert_eq!(found, expected, "{level:?} {m} {n} {k}");
            }
        }
    }

    #[test]
    fn extremes_wrap() {
        // Pairs of -32768 · -32768 reach 2^31.
        for level in Level::ALL {
            let mut found = [0];
            products_i16(level, 32, &[i16::MIN; 32], &[i16::MIN; 32], &mut found);
            assert_eq!(found, [0], "{level:?}");
            products_i16(level, 32, &[-128; 32], &[127; 32], &mut found);
            assert_eq!(found, [-128 * 127 * 32], "{level:?}");
        }
    }

    #[test]
    #[should_panic(expected = "lengths of rows, kernels and sums")]
    fn contradicting_lengths_panic() {
        products_i16(Level::Scalar, 32, &[0; 64], &[0; 32], &mut [0; 1]);
    }
}
