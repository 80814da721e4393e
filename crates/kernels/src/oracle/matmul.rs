//! Definition of matrix multiplication: over decoded weights, and as the integer kernels compute it.

mod levels;

use crate::matmul::WeightMatrix;
use levels::{Block32, Block256, block32, block256};
use millrace_quant::decode_rows;

/// `out[m, n] = x[m, k] · W[n, k]ᵀ + bias` over the decoded weights, summed in f64 and rounded once.
///
/// # Panics
/// If the lengths contradict each other.
#[must_use]
pub fn matmul(x: &[f32], m: usize, weight: &WeightMatrix<'_>, bias: Option<&[f32]>) -> Vec<f32> {
    let (n, k) = (weight.n(), weight.k());
    assert_eq!(x.len(), m * k);
    let mut w = vec![0.0; n * k];
    decode_rows(weight.dtype(), weight.bytes(), n, k, 0..n, &mut w)
        .expect("a Matrix has as many bytes as its shape needs");
    let mut out = Vec::with_capacity(m * n);
    for t in 0..m {
        for r in 0..n {
            let (x, w) = (&x[t * k..(t + 1) * k], &w[r * k..(r + 1) * k]);
            let dot: f64 = x
                .iter()
                .zip(w)
                .map(|(x, w)| f64::from(*x) * f64::from(*w))
                .sum();
            out.push((dot + bias.map_or(0.0, |bias| f64::from(bias[r]))) as f32);
        }
    }
    out
}

/// The same with activations quantised to i8, as the layouts of [`crate::matmul::PanelLayout`] define it. Sums of products of whole numbers
/// are exact. Each block adds one fused multiply-add to its output (and one for its minimum, and one for each half with a scale).
/// `None` for formats that no integer kernel multiplies.
///
/// # Panics
/// If the lengths contradict each other.
#[must_use]
pub fn matmul_i8(x: &[f32], m: usize, weight: &WeightMatrix<'_>) -> Option<Vec<f32>> {
    let (n, k) = (weight.n(), weight.k());
    let (dtype, bytes) = (weight.dtype(), weight.bytes());
    assert_eq!(x.len(), m * k);
    let mut out = Vec::with_capacity(m * n);
    for t in 0..m {
        let x = &x[t * k..(t + 1) * k];
        for r in 0..n {
            let mut acc = 0.0;
            let has_superblocks = k >= 256 && block256(dtype, bytes, k, r, 0).is_some();
            if has_superblocks {
                for (b, x) in x.as_chunks::<256>().0.iter().enumerate() {
                    add_256(&mut acc, x, &block256(dtype, bytes, k, r, b)?);
                }
            } else {
                for (b, x) in x.as_chunks::<32>().0.iter().enumerate() {
                    add_32(&mut acc, x, &block32(dtype, bytes, k, r, b)?);
                }
            }
            out.push(acc);
        }
    }
    Some(out)
}

/// Symmetric quantisation to i8: levels and scale.
fn quantise<const N: usize>(x: &[f32; N]) -> ([i32; N], f32) {
    let largest = x.iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
    if largest < 1e-36 {
        return ([0; N], 0.0);
    }
    let inverse = 127.0 / largest;
    (
        x.map(|v| (v * inverse).round_ties_even() as i32),
        largest / 127.0,
    )
}

fn dot(a: &[i32], b: &[i32]) -> i32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_32(acc: &mut f32, x: &[f32; 32], w: &Block32) {
    let (q, d) = quantise(x);
    if let Some(upper) = w.upper {
        *acc = (dot(&w.q[..16], &q[..16]) as f32).mul_add(w.d * d, *acc);
        *acc = (dot(&w.q[16..], &q[16..]) as f32).mul_add(upper * d, *acc);
    } else {
        *acc = (dot(&w.q, &q) as f32).mul_add(w.d * d, *acc);
    }
    if let Some(min) = w.min {
        *acc = min.mul_add(d * q.iter().sum::<i32>() as f32, *acc);
    }
}

fn add_256(acc: &mut f32, x: &[f32; 256], w: &Block256) {
    let (q, d) = quantise(x);
    let (mut products, mut minimums) = (0, 0);
    for (j, (w_q, q)) in w.q.chunks(16).zip(q.chunks(16)).enumerate() {
        products += w.scales[j] * dot(w_q, q);
        minimums += w
            .mins
            .map_or(0, |(mins, _)| mins[j] * q.iter().sum::<i32>());
    }
    *acc = (products as f32).mul_add(w.d * d, *acc);
    if let Some((_, d_min)) = w.mins {
        *acc = (minimums as f32).mul_add(-d_min * d, *acc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_quant::{DType, decode_rows};

    /// The levels, scales and minimums agree with the reference decoder.
    #[test]
    fn levels_decode_to_the_same_weights() {
        let (n, k) = (32, 512);
        for dtype in DType::all() {
            let n_bytes = dtype.size_bytes(n, k).unwrap();
            // Bytes whose 16-bit numbers are small, so that every field takes many values.
            let bytes: Vec<u8> = (0..n_bytes).map(|i| (i * 151 % 241) as u8 & 0xBB).collect();
            let mut expected = vec![0.0; n * k];
            decode_rows(dtype, &bytes, n, k, 0..n, &mut expected).unwrap();
            for (i, expected) in expected.iter().enumerate() {
                let (row, column) = (i / k, i % k);
                let (product, min) = if let Some(w) = block256(dtype, &bytes, k, row, column / 256)
                {
                    let i = column % 256;
                    let min = w.mins.map_or(0.0, |(mins, d)| -d * mins[i / 16] as f32);
                    (w.d * w.scales[i / 16] as f32 * w.q[i] as f32, min)
                } else if let Some(w) = block32(dtype, &bytes, k, row, column / 32) {
                    let upper = w.upper.filter(|_| column % 32 >= 16);
                    let d = upper.unwrap_or(w.d);
                    (d * w.q[column % 32] as f32, w.min.unwrap_or(0.0))
                } else {
                    break;
                };
                let error = (product + min - expected).abs();
                let rounding = 1e-6 * (product.abs() + min.abs());
                assert!(
                    error <= rounding,
                    "{dtype} {i}: {product} + {min}, expected {expected}"
                );
            }
        }
    }
}
