//! Norms and activations in double precision.

/// Term that norms add to a mean of squares.
const EPSILON: f64 = 1e-5;

pub(super) fn softmax(of: &[f64]) -> Vec<f64> {
    let most = of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = of.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

pub(super) fn rms_norm(of: &[f64]) -> Vec<f64> {
    let mean = of.iter().map(|x| x * x).sum::<f64>() / of.len().max(1) as f64;
    of.iter().map(|x| x / (mean + EPSILON).sqrt()).collect()
}

pub(super) fn layer_norm(of: &[f64]) -> Vec<f64> {
    let n = of.len().max(1) as f64;
    let mean = of.iter().sum::<f64>() / n;
    let variance = of.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let deviation = (variance + EPSILON).sqrt();
    of.iter().map(|x| (x - mean) / deviation).collect()
}

pub(super) fn silu(of: &[f64]) -> Vec<f64> {
    of.iter().map(|x| x / (1.0 + (-x).exp())).collect()
}

pub(super) fn gelu(of: &[f64]) -> Vec<f64> {
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let one = |x: &f64| 0.5 * x * (1.0 + (slope * (x + 0.044715 * x * x * x)).tanh());
    of.iter().map(one).collect()
}
