//! Definitions of the elementwise ops, in f64.

use crate::elementwise::{Activation, RopeTable};

/// See [`crate::elementwise::rms_norm`].
#[must_use]
pub fn rms_norm(x: &[f32], group: usize, weight: &[f32], eps: f32, offset: f32) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    let weights = weight.chunks(group).cycle();
    for (group, weight) in x.chunks(group).zip(weights) {
        let squares: f64 = group.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let factor = 1.0 / (squares / group.len() as f64 + f64::from(eps)).sqrt();
        for (&x, &weight) in group.iter().zip(weight) {
            out.push(f64::from(x) * factor * (f64::from(weight) + f64::from(offset)));
        }
    }
    out
}

/// See [`crate::elementwise::layer_norm`].
#[must_use]
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks(weight.len()) {
        let n = row.len() as f64;
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let squares = row.iter().map(|&x| (f64::from(x) - mean).powi(2));
        let factor = 1.0 / (squares.sum::<f64>() / n + f64::from(eps)).sqrt();
        for ((&x, &weight), &bias) in row.iter().zip(weight).zip(bias) {
            out.push((f64::from(x) - mean) * factor * f64::from(weight) + f64::from(bias));
        }
    }
    out
}

/// See [`crate::elementwise::glu`].
#[must_use]
pub fn glu(activation: Activation, gate: &[f32], up: &[f32]) -> Vec<f64> {
    let activated = |x: f64| match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::ReluSquared => x.max(0.0) * x.max(0.0),
    };
    gate.iter()
        .zip(up)
        .map(|(&gate, &up)| activated(f64::from(gate)) * f64::from(up))
        .collect()
}

/// The error function by its series (Abramowitz and Stegun 1964, 7.1.5), where less than 1e-9 is missing to 1 by 1.
fn erf(x: f64) -> f64 {
    let a = x.abs().min(4.5);
    let (mut term, mut sum) = (a, a);
    for n in 1..200 {
        term *= -a * a / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x)
}

/// See [`crate::elementwise::rope`]: one row of heads at `position`, rotated by the frequencies of
/// `table`. The angle is rounded to f32 as the reference implementation does.
#[must_use]
pub fn rope(x: &[f32], head_dim: usize, position: u32, table: &RopeTable) -> Vec<f64> {
    let mut out: Vec<f64> = x.iter().copied().map(f64::from).collect();
    let n_pairs = table.inv_freq().len();
    for head in out.chunks_mut(head_dim) {
        for (i, inv_freq) in table.inv_freq().iter().enumerate() {
            let (a, b) = if table.interleaved() {
                (2 * i, 2 * i + 1)
            } else {
                (i, i + n_pairs)
            };
            let angle = f64::from(position as f32 * inv_freq);
            let factor = f64::from(table.attention_factor());
            let (cos, sin) = (angle.cos() * factor, angle.sin() * factor);
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
        }
    }
    out
}
