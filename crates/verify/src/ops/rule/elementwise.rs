//! Norms, rotations and elementwise ops.

use super::{Exact, LAMBDA, U, V, f};

pub(super) fn norm(x: &[f32], weight: &[f32], eps: f64) -> Vec<Exact> {
    let n = x.len() as f64;
    let mean = x.iter().map(|x| f(*x) * f(*x)).sum::<f64>() / n;
    let inverse = 1.0 / (mean + eps).sqrt();
    let relative = U + (LAMBDA * n.sqrt() + 8.0) * V;
    pairs(x, weight, |x, weight| {
        let y = x * inverse * weight;
        Exact {
            y,
            tolerance: relative * y.abs(),
        }
    })
}

/// A number that is rounded once.
pub(super) fn scaled(y: f64) -> Exact {
    Exact {
        y,
        tolerance: U * y.abs(),
    }
}

/// A head and its row of cosines and sines.
pub(super) fn rope(x: &[f32], table: &[f32], table_off: f64) -> Vec<Exact> {
    let half = x.len() / 2;
    let of = |i: usize| {
        let (cos, sin) = (f(table[i % half]), f(table[half + i % half]));
        let other = f(x[(i + half) % x.len()]);
        let sign = if i < half { -1.0 } else { 1.0 };
        let (a, b) = (f(x[i]) * cos, sign * other * sin);
        Exact {
            y: a + b,
            tolerance: U * (a + b).abs() + (4.0 * V + table_off) * (a.abs() + b.abs()),
        }
    };
    (0..x.len()).map(of).collect()
}

pub(super) fn pairs(a: &[f32], b: &[f32], of: impl Fn(f64, f64) -> Exact) -> Vec<Exact> {
    a.iter().zip(b).map(|(a, b)| of(f(*a), f(*b))).collect()
}

pub(super) fn swiglu(gate: f64, up: f64) -> Exact {
    let t = (gate / 2.0).tanh();
    let sigmoid = 0.5 * (1.0 + t);
    Exact {
        y: gate * sigmoid * up,
        tolerance: (0.5 * t.abs() + 3.0 * sigmoid) * U * (gate * up).abs(),
    }
}

pub(super) fn geglu(x: f64, up: f64) -> Exact {
    const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
    let argument = SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x);
    let t = argument.tanh();
    let shape = (1.0 - t * t) * 7.0 * U * argument.abs() + U * t.abs() + 3.0 * U * (1.0 + t);
    Exact {
        y: 0.5 * x * (1.0 + t) * up,
        tolerance: 0.5 * (x * up).abs() * shape,
    }
}
