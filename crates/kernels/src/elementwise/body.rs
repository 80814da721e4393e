//! The loops, in plain Rust. They are inlined into one function for each level
//! ([`crate::x86`], [`super::rows`]) and vectorised there with that level's instructions. `FMA`
//! says whether the level has fused multiply-add; without it `mul_add` would be a library call.

use super::Activation;

/// Coefficients of `f, f², …, f⁶` in `2^f = 1 + …` for |f| ≤ ½: interpolation at Chebyshev nodes,
/// relative error below 8e-8 in f32.
pub(crate) const EXP2_POLY: [f32; 6] = [
    std::f32::consts::LN_2,
    0.240_226_5,
    0.055_503_57,
    0.009_618_083,
    0.001_339_086_3,
    0.000_154_531_63,
];

/// Coefficients of `r², …, r⁶` in `e^r = 1 + r + …` for |r| ≤ ln 2 / 2, made likewise.
const EXP_POLY: [f32; 5] = [
    0.5,
    0.166_665_78,
    0.041_666_556,
    0.008_363_174,
    0.001_392_617_7,
];

/// Partial sums of a norm. Enough for two 16-lane vectors in flight; the same at every level.
const NORM_LANES: usize = 32;

/// Parameters of a norm.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    /// One weight for each element of a group.
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) offset: f32,
}

/// Cosines and sines of one position, one for each rotated pair.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<'a> {
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
}

/// `a * b + c`, in one rounding where the level can.
#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `e^x`, error below 2 units in the last place; 0 and infinity beyond the range of f32. NaN gives
/// an unspecified number.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // Adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; multiples of the first are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -0.000_212_194_44;
    let x = if x < 89.0 { x } else { 89.0 };
    let x = if x > -105.0 { x } else { -105.0 };
    let rounded = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let exponent = rounded
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .cast_signed();
    let whole = rounded - ROUND;
    let rest = fma::<FMA>(whole, -LN_2_HIGH, x);
    let rest = fma::<FMA>(whole, -LN_2_LOW, rest);
    let mut poly = EXP_POLY[4];
    for coefficient in EXP_POLY[..4].iter().rev() {
        poly = fma::<FMA>(poly, rest, *coefficient);
    }
    let power = 1.0 + fma::<FMA>(poly, rest * rest, rest);
    // Two factors, since 2^exponent alone may be beyond the range while the product is not.
    let half = exponent >> 1;
    let factor = |exponent: i32| f32::from_bits(((exponent + 127) << 23).cast_unsigned());
    power * factor(half) * factor(exponent - half)
}

/// `gate = g · sigmoid(alpha · g) · (u + 1)` of the bounded `g` and `u`.
#[inline(always)]
pub(crate) fn glu_clamped_body<const FMA: bool>(
    (alpha, limit): (f32, f32),
    gate: &mut [f32],
    up: &[f32],
) {
    for (gate, up) in gate.iter_mut().zip(up) {
        let g = if *gate < limit { *gate } else { limit };
        let u = if *up < limit { *up } else { limit };
        let u = if u > -limit { u } else { -limit };
        *gate = g / (1.0 + exp::<FMA>(-alpha * g)) * (u + 1.0);
    }
}

/// xIELU by its square, exponential, linear part and bound: see [`super::xielu`].
#[inline(always)]
pub(crate) fn xielu_body<const FMA: bool>(
    [square, exponential, linear, bound]: [f32; 4],
    x: &mut [f32],
) {
    for x in x {
        let power = exp::<FMA>(if *x < bound { *x } else { bound }) - 1.0;
        let below = exponential * (power - *x);
        let above = square * *x * *x;
        *x = fma::<FMA>(linear, *x, if *x > 0.0 { above } else { below });
    }
}

/// `x = cap · tanh(x / cap)`, tanh by `1 - 2 / (e^2x + 1)`.
#[inline(always)]
pub(crate) fn softcap_body<const FMA: bool>(x: &mut [f32], cap: f32) {
    for x in x {
        let power = exp::<FMA>(*x * (2.0 / cap));
        *x = cap * (1.0 - 2.0 / (power + 1.0));
    }
}

/// Partial sums of [`sum_exp_body`]: four vectors of eight lanes.
const SUM_EXP_LANES: usize = 32;

/// The sum of `e^(x - max)` in f64, NaN if an `x` is; no `x` is above `max`.
#[inline(always)]
pub(crate) fn sum_exp_body<const FMA: bool>(x: &[f32], max: f32) -> f64 {
    let max = f64::from(max);
    let mut sums = [0.0_f64; SUM_EXP_LANES];
    let (vectors, rest) = x.as_chunks::<SUM_EXP_LANES>();
    for vector in vectors {
        for (sum, x) in sums.iter_mut().zip(vector) {
            *sum += exp_f64::<FMA>(f64::from(*x) - max);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += exp_f64::<FMA>(f64::from(*x) - max);
    }
    sums.iter().sum()
}

/// `e^x` for `x` up to 0, relative error below 2e-14. Below -700, where its sum with 1 is 1, the result is `e^-700`.
#[inline(always)]
pub(super) fn exp_f64<const FMA: bool>(x: f64) -> f64 {
    // Adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // ln 2 in two parts; multiples of the first are exact.
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // 1 / i!, up to the eleventh: the remainder is below 7e-15 for |rest| up to ln 2 / 2.
    const POLY: [f64; 12] = {
        let mut poly = [1.0; 12];
        let mut i = 1;
        while i < 12 {
            poly[i] = poly[i - 1] / i as f64;
            i += 1;
        }
        poly
    };
    let fma = |a: f64, b: f64, c: f64| if FMA { a.mul_add(b, c) } else { a * b + c };
    // In this order, NaN stays.
    let x = if x < -700.0 { -700.0 } else { x };
    let rounded = fma(x, std::f64::consts::LOG2_E, ROUND);
    let whole = rounded - ROUND;
    let rest = fma(whole, -LN_2_LOW, fma(whole, -LN_2_HIGH, x));
    let mut power = POLY[11];
    for coefficient in POLY[..11].iter().rev() {
        power = fma(power, rest, *coefficient);
    }
    f64::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 52))
}

#[inline(always)]
pub(crate) fn norm_body<const FMA: bool>(norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
    let group = norm.weight.len();
    for (x, out) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)) {
        let mean = sum_of_squares::<FMA>(x) / group as f32;
        let factor = 1.0 / (mean + norm.eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(norm.weight) {
            *out = x * factor * (weight + norm.offset);
        }
    }
}

#[inline(always)]
fn sum_of_squares<const FMA: bool>(x: &[f32]) -> f32 {
    let mut sums = [0.0f32; NORM_LANES];
    let (vectors, rest) = x.as_chunks::<NORM_LANES>();
    for vector in vectors {
        for (sum, x) in sums.iter_mut().zip(vector) {
            *sum = fma::<FMA>(*x, *x, *sum);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum = fma::<FMA>(*x, *x, *sum);
    }
    let mut width = NORM_LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}

/// `1 - erf(a)` of a positive number, within 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26).
#[inline(always)]
fn erfc<const FMA: bool>(a: f32) -> f32 {
    const TERMS: [f32; 5] = [
        1.061_405_4,
        -1.453_152,
        1.421_413_8,
        -0.284_496_74,
        0.254_829_6,
    ];
    let t = 1.0 / fma::<FMA>(0.327_591_1, a, 1.0);
    let mut sum = TERMS[0];
    for term in &TERMS[1..] {
        sum = fma::<FMA>(sum, t, *term);
    }
    sum * t * exp::<FMA>(-a * a)
}

#[inline(always)]
pub(crate) fn glu_body<const FMA: bool>(activation: Activation, gate: &mut [f32], up: &[f32]) {
    match activation {
        Activation::Silu => {
            for (gate, up) in gate.iter_mut().zip(up) {
                *gate = *gate / (1.0 + exp::<FMA>(-*gate)) * up;
            }
        }
        Activation::GeluTanh => {
            // (1 + tanh u) / 2 = 1 / (1 + e^-2u), without the cancellation near tanh u = -1.
            const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
            for (gate, up) in gate.iter_mut().zip(up) {
                let x = *gate;
                let inner = fma::<FMA>(0.044_715 * x * x, x, x);
                *gate = x / (1.0 + exp::<FMA>(-TWICE_SQRT_2_OVER_PI * inner)) * up;
            }
        }
        Activation::Gelu => {
            for (gate, up) in gate.iter_mut().zip(up) {
                // Subtracts from max(x, 0) the share of |x| that erf leaves out, without cancellation.
                let a = gate.abs();
                let rest = 0.5 * a * erfc::<FMA>(a * std::f32::consts::FRAC_1_SQRT_2);
                *gate = (gate.max(0.0) - rest) * up;
            }
        }
        Activation::Sigmoid => {
            for (gate, up) in gate.iter_mut().zip(up) {
                *gate = 1.0 / (1.0 + exp::<FMA>(-*gate)) * up;
            }
        }
        Activation::Relu => {
            for (gate, up) in gate.iter_mut().zip(up) {
                *gate = gate.max(0.0) * up;
            }
        }
        Activation::ReluSquared => {
            for (gate, up) in gate.iter_mut().zip(up) {
                *gate = gate.max(0.0) * gate.max(0.0) * up;
            }
        }
    }
}

#[inline(always)]
pub(crate) fn add_body(acc: &mut [f32], x: &[f32]) {
    for (acc, x) in acc.iter_mut().zip(x) {
        *acc += x;
    }
}

#[inline(always)]
pub(crate) fn scale_body(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

/// Rotates the pairs `(x[i], x[i + n_rot / 2])` of each head.
#[inline(always)]
pub(crate) fn rotate_halves_body(x: &mut [f32], head_dim: usize, rotation: Rotation<'_>) {
    let half = rotation.cos.len();
    for head in x.chunks_exact_mut(head_dim) {
        let (first, rest) = head.split_at_mut(half);
        let second = &mut rest[..half];
        for (((a, b), cos), sin) in first
            .iter_mut()
            .zip(second)
            .zip(rotation.cos)
            .zip(rotation.sin)
        {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// Rotates the pairs `(x[2 i], x[2 i + 1])` of each head.
#[inline(always)]
pub(crate) fn rotate_pairs_body(x: &mut [f32], head_dim: usize, rotation: Rotation<'_>) {
    for head in x.chunks_exact_mut(head_dim) {
        let (pairs, _) = head.as_chunks_mut::<2>();
        for (([a, b], cos), sin) in pairs.iter_mut().zip(rotation.cos).zip(rotation.sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}
