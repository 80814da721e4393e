//! Fits of a block of 256 whose sub-blocks share an f16 factor and take their levels from a codebook: `w ≈ d·scale·q`
//! (IQ4_XS, IQ3_*, IQ2_*, IQ1_*).

use super::{Moments, ScaleSearch, TINY, error_of, f16_covering, f16_nearest, moments, weights};
use crate::formats::extreme;

/// How a format stores the scales of its sub-blocks, and where the search for them begins.
pub(crate) struct Scales<'a> {
    /// Scales that may be stored, as multiples of the factor, ascending. The ones of largest magnitude begin or end it.
    pub(crate) stored: &'a [f32],
    /// Levels on which the largest element is tried to fall: the first, the last, how many. With negative levels the sign
    /// of the element counts.
    pub(crate) ends: &'a [(f32, f32, u8)],
}

/// A block as stored: `w = d·stored[scales[j]]·q[j]` in sub-block j.
pub(crate) struct CodebookFit<const SUB: usize, const SUBS: usize> {
    pub(crate) d: f32,
    pub(crate) scales: [usize; SUBS],
    pub(crate) q: [[f32; SUB]; SUBS],
}

/// One sub-block as stored, and its error.
#[derive(Clone, Copy)]
struct SubBlockCode<const SUB: usize> {
    scale: usize,
    q: [f32; SUB],
    error: f32,
}

/// A sub-block with its weights and the best scale for it alone.
struct Sub<'a, const SUB: usize> {
    x: &'a [f32; SUB],
    w: [f32; SUB],
    free: f32,
}

/// Fits a block. `levels(x, w, inverse)` gives the levels nearest to `x · inverse`.
///
/// As in [`super::symmetric::fit`]: free scales of the sub-blocks first, then the shared factor. Then come stored scales
/// next to the free ones, and the factor again as long as that helps.
#[inline(always)]
pub(crate) fn fit<const SUB: usize, const SUBS: usize>(
    x: &[f32; 256],
    importance: Option<&[f32; 256]>,
    scales: &Scales<'_>,
    levels: impl Fn(&[f32; SUB], &[f32; SUB], f32) -> [f32; SUB],
) -> CodebookFit<SUB, SUBS> {
    let xs = x.as_chunks::<SUB>().0;
    let importance = importance.map(|of| of.as_chunks::<SUB>().0);
    let subs: [Sub<'_, SUB>; SUBS] = std::array::from_fn(|j| {
        let x = &xs[j];
        let w = weights(x, importance.map(|of| &of[j]));
        let free = free_scale(x, &w, scales, &levels);
        Sub { x, w, free }
    });
    let (first, last) = (scales.stored[0], scales.stored[scales.stored.len() - 1]);
    let largest = if -first > last { first } else { last };
    let mut d = f16_covering(extreme(&subs.each_ref().map(|sub| sub.free)) / largest);
    let store = |d: f32| {
        subs.each_ref()
            .map(|sub| store(sub, d, scales.stored, &levels))
    };
    let error = |stored: &[SubBlockCode<SUB>; SUBS]| stored.iter().map(|s| s.error).sum::<f32>();
    let mut best = store(d);
    for _ in 0..3 {
        let (mut aa, mut ax) = (0.0, 0.0);
        for (sub, stored) in subs.iter().zip(&best) {
            let Moments { qq, xq, .. } = moments(sub.x, &sub.w, &stored.q);
            let scale = scales.stored[stored.scale];
            aa += scale * scale * qq;
            ax += scale * xq;
        }
        let refitted = f16_nearest(ax / aa);
        if !refitted.is_finite() || refitted == d {
            break;
        }
        let stored = store(refitted);
        if error(&stored) >= error(&best) {
            break;
        }
        (d, best) = (refitted, stored);
    }
    CodebookFit {
        d,
        scales: best.map(|s| s.scale),
        q: best.map(|s| s.q),
    }
}

/// The least-squares scale of the best levels: over the levels on which the largest element may fall, and two
/// rounds of alternating between levels and scale from there.
#[inline(always)]
fn free_scale<const SUB: usize>(
    x: &[f32; SUB],
    w: &[f32; SUB],
    scales: &Scales<'_>,
    levels: &impl Fn(&[f32; SUB], &[f32; SUB], f32) -> [f32; SUB],
) -> f32 {
    let mut largest = extreme(x);
    if largest.abs() < TINY {
        return 0.0;
    }
    if scales.stored[0] >= 0.0 {
        largest = largest.abs();
    }
    let mut best = ScaleSearch::default();
    for &(first, last, n) in scales.ends {
        for i in 0..n {
            let end = first + (last - first) * f32::from(i) / f32::from(n - 1);
            best.offer(x, w, &levels(x, w, end / largest));
        }
    }
    for _ in 0..2 {
        if best.scale != 0.0 {
            best.offer(x, w, &levels(x, w, 1.0 / best.scale));
        }
    }
    // Levels of the wrong sign throughout: the least stored scale is the best.
    if scales.stored[0] >= 0.0 {
        best.scale.max(0.0)
    } else {
        best.scale
    }
}

/// The stored scale of least error among the neighbours of the free one.
#[inline(always)]
fn store<const SUB: usize>(
    sub: &Sub<'_, SUB>,
    d: f32,
    stored: &[f32],
    levels: &impl Fn(&[f32; SUB], &[f32; SUB], f32) -> [f32; SUB],
) -> SubBlockCode<SUB> {
    let wanted = if d == 0.0 { 0.0 } else { sub.free / d };
    let above = stored.partition_point(|scale| *scale < wanted);
    let mut best = SubBlockCode {
        scale: 0,
        q: [0.0; SUB],
        error: f32::INFINITY,
    };
    let last = stored.len() - 1;
    let (first, last) = (above.saturating_sub(2).min(last), (above + 1).min(last));
    for (scale, multiple) in stored.iter().enumerate().take(last + 1).skip(first) {
        let factor = d * multiple;
        let inverse = if factor == 0.0 { 0.0 } else { 1.0 / factor };
        let q = levels(sub.x, &sub.w, inverse);
        let error = error_of(sub.x, &sub.w, &q, factor);
        if error < best.error {
            best = SubBlockCode { scale, q, error };
        }
    }
    best
}
