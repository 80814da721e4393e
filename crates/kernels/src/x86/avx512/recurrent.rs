//! The loops of recurrent ops with AVX-512: a row of a state's block is one register.

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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn conv(taps: &ConvTaps, window: &mut [[f32; LANES]; MAX_TAPS], out: &mut [f32; LANES]) {
    conv_body::<true>(taps, window, out)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn silu(x: &mut [f32]) {
    silu_body::<true>(x)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn unit(x: &[f32], by: (f32, f32), out: &mut [f32]) {
    unit_body::<true>(x, by, out)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn exp(x: &mut [f32]) {
    exp_body::<true>(x)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn softplus(x: &mut [f32]) {
    softplus_body::<true>(x)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn fade(tile: &mut [f32], token: &ChannelToken<'_>, out: &mut [f32; LANES]) {
    fade_body::<true>(tile, token, out)
}

/// # Safety
/// The tile has [`LANES`] elements for each of a key and of as long a query.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn correct(tile: &mut [f32], token: &FadeToken<'_>, strength: f32, out: &mut [f32; LANES]) {
    // SAFETY: by this function's contract; arrays of `LANES` elements are one register each.
    unsafe {
        let seen = seen(tile.as_ptr(), token.k);
        let v = _mm512_loadu_ps(token.v.as_ptr());
        let error = _mm512_fnmadd_ps(_mm512_set1_ps(token.decay), seen, v);
        let correction = _mm512_mul_ps(_mm512_set1_ps(strength), error);
        let read = absorb_block(tile.as_mut_ptr(), token, correction);
        _mm512_storeu_ps(out.as_mut_ptr(), read);
    }
}

/// # Safety
/// As [`correct`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn absorb(tile: &mut [f32], token: &FadeToken<'_>, out: &mut [f32; LANES]) {
    // SAFETY: by this function's contract; arrays of `LANES` elements are one register each.
    unsafe {
        let v = _mm512_loadu_ps(token.v.as_ptr());
        let read = absorb_block(tile.as_mut_ptr(), token, v);
        _mm512_storeu_ps(out.as_mut_ptr(), read);
    }
}

/// The contents of a block at a token's key.
///
/// # Safety
/// As [`correct`]; `tile` points to the block's first element.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn seen(tile: *const f32, k: &[f32]) -> __m512 {
    let (n, k) = (k.len(), k.as_ptr());
    let mut sums = [_mm512_setzero_ps(); 4];
    // SAFETY: rows and elements below `n` are there, by this function's contract.
    unsafe {
        let step = |i: usize, sum: &mut __m512| {
            let row = _mm512_loadu_ps(tile.add(i * LANES));
            *sum = _mm512_fmadd_ps(row, _mm512_set1_ps(*k.add(i)), *sum);
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

/// Decays a block, adds `v` at a token's key, and reads it at its query.
///
/// # Safety
/// As [`seen`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn absorb_block(tile: *mut f32, token: &FadeToken<'_>, v: __m512) -> __m512 {
    let n = token.k.len();
    let (k, q) = (token.k.as_ptr(), token.q.as_ptr());
    let decay = _mm512_set1_ps(token.decay);
    let mut sums = [_mm512_setzero_ps(); 4];
    // SAFETY: rows and elements below `n` are there, by this function's contract.
    unsafe {
        let step = |i: usize, sum: &mut __m512| {
            let at = tile.add(i * LANES);
            let faded = _mm512_mul_ps(decay, _mm512_loadu_ps(at));
            let row = _mm512_fmadd_ps(_mm512_set1_ps(*k.add(i)), v, faded);
            _mm512_storeu_ps(at, row);
            *sum = _mm512_fmadd_ps(row, _mm512_set1_ps(*q.add(i)), *sum);
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn revise(tile: &mut [f32], token: &RuleToken<'_>, out: &mut [f32; LANES]) {
    // SAFETY: by this function's contract; arrays of `LANES` elements are one register each.
    unsafe {
        let seen = seen(tile.as_ptr(), token.read);
        let v = _mm512_loadu_ps(token.v.as_ptr());
        let read = revise_block(tile.as_mut_ptr(), token, [seen, v]);
        _mm512_storeu_ps(out.as_mut_ptr(), read);
    }
}

/// Decays a block row by row, adds the values read from it and the token's values, and reads it at the query.
///
/// # Safety
/// As [`revise`]; `tile` points to its first element.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn revise_block(tile: *mut f32, token: &RuleToken<'_>, [seen, v]: [__m512; 2]) -> __m512 {
    let n = token.q.len();
    let vectors = [token.decay, token.k, token.write, token.q];
    let [decay, k, write, q] = vectors.map(<[f32]>::as_ptr);
    let mut sums = [_mm512_setzero_ps(); 4];
    // SAFETY: rows and elements below `n` are there, by this function's contract.
    unsafe {
        let step = |i: usize, sum: &mut __m512| {
            let at = tile.add(i * LANES);
            let faded = _mm512_mul_ps(_mm512_set1_ps(*decay.add(i)), _mm512_loadu_ps(at));
            let row = _mm512_fmadd_ps(_mm512_set1_ps(*k.add(i)), v, faded);
            let row = _mm512_fmadd_ps(_mm512_set1_ps(*write.add(i)), seen, row);
            _mm512_storeu_ps(at, row);
            *sum = _mm512_fmadd_ps(row, _mm512_set1_ps(*q.add(i)), *sum);
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add_up(sums: [__m512; 4]) -> __m512 {
    let [a, b, c, d] = sums;
    _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))
}
