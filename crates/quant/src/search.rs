//! Common code of the encoders that search for scales: weights, weighted sums, and the fit of one group.
//!
//! All of them minimise `Σ w·(decoded − x)²` with `w = rms + |x|`, times the importance of the column where one is given.
//! Large weights give large products, so they are kept a little better than small ones. Sums run in eight fixed lanes, so
//! that they vectorise and give the same bits on every machine.

pub(crate) mod affine;
pub(crate) mod codebook;
pub(crate) mod points;
pub(crate) mod symmetric;
pub(crate) mod ternary;

/// Groups whose largest magnitude is below this are stored as zeros. In f16 their scales would
/// round to zero, and squares of smaller numbers leave the range of f32.
pub(crate) const TINY: f32 = 1e-10;

const LANES: usize = 8;

/// The weight of each element's squared error.
pub(crate) fn weights<const N: usize>(x: &[f32; N], importance: Option<&[f32; N]>) -> [f32; N] {
    let rms = (sum_of(x, x, |x, y| x * y) / N as f32).sqrt();
    let w = x.map(|v| rms + v.abs());
    match importance {
        Some(importance) => std::array::from_fn(|i| w[i] * importance[i]),
        None => w,
    }
}

/// The largest magnitude.
pub(crate) fn largest_magnitude(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |amax: f32, v| amax.max(v.abs()))
}

/// Nearest integer, ties to even, for |v| < 2²². (`f32::round_ties_even` is a library call on
/// baseline x86-64.)
#[inline(always)]
fn round(v: f32) -> f32 {
    /// 1.5·2²³: adding it rounds off all bits below one.
    const SHIFT: f32 = 12_582_912.0;
    (v + SHIFT) - SHIFT
}

/// `Σ term(a, b)`.
#[inline(always)]
fn sum_of<const N: usize>(a: &[f32; N], b: &[f32; N], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(b.as_chunks::<LANES>().0)
    {
        for l in 0..LANES {
            lanes[l] += term(a[l], b[l]);
        }
    }
    lanes.iter().sum()
}

/// Weighted sums over a group with its levels q.
#[derive(Clone, Copy, Default)]
struct Moments {
    /// Σ w·q
    q: f32,
    /// Σ w·q²
    qq: f32,
    /// Σ w·x·q
    xq: f32,
}

#[inline(always)]
fn moments<const N: usize>(x: &[f32; N], w: &[f32; N], q: &[f32; N]) -> Moments {
    let mut lanes = [[0.0; LANES]; 3];
    let x = x.as_chunks::<LANES>().0;
    let w = w.as_chunks::<LANES>().0;
    let q = q.as_chunks::<LANES>().0;
    for ((x, w), q) in x.iter().zip(w).zip(q) {
        for l in 0..LANES {
            let wq = w[l] * q[l];
            lanes[0][l] += wq;
            lanes[1][l] += wq * q[l];
            lanes[2][l] += wq * x[l];
        }
    }
    let [q, qq, xq] = lanes.map(|lanes| lanes.iter().sum());
    Moments { q, qq, xq }
}

/// Σ w·(factor·q − x)²
#[inline(always)]
pub(crate) fn error_of<const N: usize>(
    x: &[f32; N],
    w: &[f32; N],
    q: &[f32; N],
    factor: f32,
) -> f32 {
    let mut lanes = [0.0; LANES];
    let x = x.as_chunks::<LANES>().0;
    let w = w.as_chunks::<LANES>().0;
    for ((x, w), q) in x.iter().zip(w).zip(q.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            let off = factor * q[l] - x[l];
            lanes[l] += w[l] * off * off;
        }
    }
    lanes.iter().sum()
}

/// The best scale seen so far of `x ≈ scale·q`, over choices of levels.
#[derive(Default)]
pub(crate) struct ScaleSearch {
    /// The least-squares scale of the best levels.
    pub(crate) scale: f32,
    /// By how much those levels lower `Σ w·x²`.
    gain: f32,
}

impl ScaleSearch {
    /// Takes these levels' least-squares scale if they are better than all previous ones.
    #[inline(always)]
    pub(crate) fn offer<const N: usize>(&mut self, x: &[f32; N], w: &[f32; N], q: &[f32; N]) {
        let Moments { qq, xq, .. } = moments(x, w, q);
        // With the best scale Σwxq/Σwq² the error is Σwx² − (Σwxq)²/Σwq².
        if qq > 0.0 && xq * xq > self.gain * qq {
            self.gain = xq * xq / qq;
            self.scale = xq / qq;
        }
    }
}

/// The least f16 whose magnitude is not below that of `v`, so that integer multiples of it reach
/// `v`.
fn f16_covering(v: f32) -> f32 {
    let nearest = half::f16::from_f32(v);
    if nearest.to_f32().abs() >= v.abs() {
        return nearest.to_f32();
    }
    half::f16::from_bits(nearest.to_bits() + 1).to_f32()
}

/// `v` as stored in f16.
fn f16_nearest(v: f32) -> f32 {
    half::f16::from_f32(v).to_f32()
}
