//! The loops of recurrent ops with AVX2 and FMA: a row of a state's block is two registers.

use crate::recurrent::{
    ChannelToken, ConvTaps, FadeToken, LANES, MAX_TAPS, RecurrentKernels, RuleToken, conv_body,
    exp_body, fade_body, silu_body, softplus_body, unit_body,
};
use std::arch::x86_64::*;

/// This level's row of the table. Its functions need the features named on them, no more.
pub(crate) static ROWS: RecurrentKernels = RecurrentKernels {
    conv,
    silu,
    unit,
    correct,
    absorb,
    exp,
    softplus,
    fade,
    revise,
};

#[target_feature(enable = "avx2,fma,f16c")]
fn conv(taps: &ConvTaps, window: &mut [[f32; LANES]; MAX_TAPS], out: &mut [f32; LANES]) {
    conv_body::<true>(taps, window, out)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn silu(x: &mut [f32]) {
    silu_body::<true>(x)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn unit(x: &[f32], by: (f32, f32), out: &mut [f32]) {
    unit_body::<true>(x, by, out)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn exp(x: &mut [f32]) {
    exp_body::<true>(x)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn softplus(x: &mut [f32]) {
    softplus_body::<true>(x)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn fade(tile: &mut [f32], token: &ChannelToken<'_>, out: &mut [f32; LANES]) {
    fade_body::<true>(tile, token, out)
}

/// # Safety
/// The tile has [`LANES`] elements for each of a key and of as long a query.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn correct(tile: &mut [f32], token: &FadeToken<'_>, strength: f32, out: &mut [f32; LANES]) {
    // The halves of a block share only the token.
    for half in [0, 8] {
        // SAFETY: by this function's contract; a half is 8 of the `LANES` elements of a row.
        unsafe {
            let tile = tile.as_mut_ptr().add(half);
            let seen = seen(tile, token.k);
            let v = _mm256_loadu_ps(token.v.as_ptr().add(half));
            let error = _mm256_fnmadd_ps(_mm256_set1_ps(token.decay), seen, v);
            let correction = _mm256_mul_ps(_mm256_set1_ps(strength), error);
            let read = absorb_half(tile, token, correction);
            _mm256_storeu_ps(out.as_mut_ptr().add(half), read);
        }
    }
}

/// # Safety
/// As [`correct`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn absorb(tile: &mut [f32], token: &FadeToken<'_>, out: &mut [f32; LANES]) {
    for half in [0, 8] {
        // SAFETY: by this function's contract; a half is 8 of the `LANES` elements of a row.
        unsafe {
            let v = _mm256_loadu_ps(token.v.as_ptr().add(half));
            let read = absorb_half(tile.as_mut_ptr().add(half), token, v);
            _mm256_storeu_ps(out.as_mut_ptr().add(half), read);
        }
    }
}

/// The contents of a half of a block at a token's key.
///
/// # Safety
/// As [`correct`]; `tile` points to the half's first element.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn seen(tile: *const f32, k: &[f32]) -> __m256 {
    let (n, k) = (k.len(), k.as_ptr());
    let mut sums = [_mm256_setzero_ps(); 4];
    // SAFETY: rows and elements below `n` are there, by this function's contract.
    unsafe {
        let step = |i: usize, sum: &mut __m256| {
            let row = _mm256_loadu_ps(tile.add(i * LANES));
            *sum = _mm256_fmadd_ps(row, _mm256_set1_ps(*k.add(i)), *sum);
        };
        let mut i = 0;
        while i + 4 <= n {
            for (p, sum) in sums.iter_mut().enumerate() {
                step(i + p, sum);
            }
            i += 4;
        }
        for (p, sum) in sums.iter_mut().enumerate().take(n - i) {
            step(i + p, sum);
        }
    }
    add_up(sums)
}

/// Decays a half of a block, adds `v` at a token's key, and reads it at its query.
///
/// # Safety
/// As [`seen`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn absorb_half(tile: *mut f32, token: &FadeToken<'_>, v: __m256) -> __m256 {
    let n = token.k.len();
    let (k, q) = (token.k.as_ptr(), token.q.as_ptr());
    let decay = _mm256_set1_ps(token.decay);
    let mut sums = [_mm256_setzero_ps(); 4];
    // SAFETY: rows and elements below `n` are there, by this function's contract.
    unsafe {
        let step = |i: usize, sum: &mut __m256| {
            let at = tile.add(i * LANES);
            let faded = _mm256_mul_ps(decay, _mm256_loadu_ps(at));
            let row = _mm256_fmadd_ps(_mm256_set1_ps(*k.add(i)), v, faded);
            _mm256_storeu_ps(at, row);
            *sum = _mm256_fmadd_ps(row, _mm256_set1_ps(*q.add(i)), *sum);
        };
        let mut i = 0;
        while i + 4 <= n {
            for (p, sum) in sums.iter_mut().enumerate() {
                step(i + p, sum);
            }
            i += 4;
        }
        for (p, sum) in sums.iter_mut().enumerate().take(n - i) {
            step(i + p, sum);
        }
    }
    add_up(sums)
}

/// # Safety
/// The tile has [`LANES`] elements for each of a query, and the token's other vectors are as long.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn revise(tile: &mut [f32], token: &RuleToken<'_>, out: &mut [f32; LANES]) {
    for half in [0, 8] {
        // SAFETY: by this function's contract; a half is 8 of the `LANES` elements of a row.
        unsafe {
            let tile = tile.as_mut_ptr().add(half);
            let seen = seen(tile, token.read);
            let v = _mm256_loadu_ps(token.v.as_ptr().add(half));
            let read = revise_half(tile, token, [seen, v]);
            _mm256_storeu_ps(out.as_mut_ptr().add(half), read);
        }
    }
}

/// Decays a half of a block row by row, adds the values read from it and the token's values, and reads it at the query.
///
/// # Safety
/// As [`revise`]; `tile` points to its first element.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn revise_half(tile: *mut f32, token: &RuleToken<'_>, [seen, v]: [__m256; 2]) -> __m256 {
    let n = token.q.len();
    let vectors = [token.decay, token.k, token.write, token.q];
    let [decay, k, write, q] = vectors.map(<[f32]>::as_ptr);
    let mut sums = [_mm256_setzero_ps(); 4];
    // SAFETY: rows and elements below `n` are there, by this function's contract.
    unsafe {
        let step = |i: usize, sum: &mut __m256| {
            let at = tile.add(i * LANES);
            let faded = _mm256_mul_ps(_mm256_set1_ps(*decay.add(i)), _mm256_loadu_ps(at));
            let row = _mm256_fmadd_ps(_mm256_set1_ps(*k.add(i)), v, faded);
            let row = _mm256_fmadd_ps(_mm256_set1_ps(*write.add(i)), seen, row);
            _mm256_storeu_ps(at, row);
            *sum = _mm256_fmadd_ps(row, _mm256_set1_ps(*q.add(i)), *sum);
        };
        let mut i = 0;
        while i + 4 <= n {
            for (p, sum) in sums.iter_mut().enumerate() {
                step(i + p, sum);
            }
            i += 4;
        }
        for (p, sum) in sums.iter_mut().enumerate().take(n - i) {
            step(i + p, sum);
        }
    }
    add_up(sums)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_up(sums: [__m256; 4]) -> __m256 {
    let [a, b, c, d] = sums;
    _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))
}
