//! The elementwise loops compiled with AVX-512.

use crate::elementwise::{
    Activation, ElementwiseKernels, Norm, Rotation, add_body, glu_body, glu_clamped_body,
    norm_body, rotate_halves_body, rotate_pairs_body, scale_body, softcap_body, sum_exp_body,
};

/// This level's row of the table. Its functions need the features named on them, no more.
pub(crate) static ROWS: ElementwiseKernels = ElementwiseKernels {
    norm,
    glu,
    add,
    scale,
    softcap,
    glu_clamped,
    sum_exp,
    rotate_halves,
    rotate_pairs,
};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn norm(norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
    norm_body::<true>(norm, x, out)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn glu(activation: Activation, gate: &mut [f32], up: &[f32]) {
    glu_body::<true>(activation, gate, up)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add(acc: &mut [f32], x: &[f32]) {
    add_body(acc, x)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn scale(x: &mut [f32], factor: f32) {
    scale_body(x, factor)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn softcap(x: &mut [f32], cap: f32) {
    softcap_body::<true>(x, cap)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn glu_clamped(clamp: (f32, f32), gate: &mut [f32], up: &[f32]) {
    glu_clamped_body::<true>(clamp, gate, up)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn sum_exp(x: &[f32], max: f32) -> f64 {
    sum_exp_body::<true>(x, max)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn rotate_halves(x: &mut [f32], head_dim: usize, rotation: Rotation<'_>) {
    rotate_halves_body(x, head_dim, rotation)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn rotate_pairs(x: &mut [f32], head_dim: usize, rotation: Rotation<'_>) {
    rotate_pairs_body(x, head_dim, rotation)
}
