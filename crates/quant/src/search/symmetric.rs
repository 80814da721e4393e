//! Fits of a block of 256 whose 16 sub-blocks share an f16 factor: `w ≈ d·scale·q` (Q3_K, Q6_K).

use super::{
    Moments, ScaleSearch, TINY, error_of, f16_covering, f16_nearest, moments, round, weights,
};
use crate::formats::extreme;

const SUBS: usize = 16;
const SUB: usize = 16;

/// Number of levels of a format, and how its sub-blocks' scales are stored.
#[derive(Clone, Copy)]
pub(crate) struct Levels {
    /// The lowest level; the highest is one less than its opposite.
    q_min: f32,
    /// The lowest stored scale; the highest is one less than its opposite.
    scale_min: f32,
    /// Levels on which the extreme of a sub-block is tried to fall: the first, the last, how many.
    ends: (f32, f32, u8),
}

pub(crate) const LEVELS_8: Levels = Levels {
    q_min: -4.0,
    scale_min: -32.0,
    ends: (2.4, 4.8, 13),
};
pub(crate) const LEVELS_64: Levels = Levels {
    q_min: -32.0,
    scale_min: -128.0,
    ends: (30.6, 33.0, 13),
};

/// A block as stored: `w = d·scales[j]·q` in sub-block j.
pub(crate) struct Symmetric {
    pub(crate) d: f32,
    pub(crate) scales: [i8; SUBS],
    pub(crate) q: [i8; 256],
}

/// One sub-block as stored, and its error.
#[derive(Clone, Copy)]
struct SymmetricBlock {
    scale: f32,
    q: [f32; SUB],
    error: f32,
}

/// Fits a block: free scales of the sub-blocks first, then the shared factor. Then come stored
/// scales next to the free ones, and the factor again as long as that helps.
pub(crate) fn fit(x: &[f32; 256], importance: Option<&[f32; 256]>, levels: Levels) -> Symmetric {
    let (subs, _) = x.as_chunks::<SUB>();
    let subs: [&[f32; SUB]; SUBS] = std::array::from_fn(|j| &subs[j]);
    let importance = importance.map(|of| of.as_chunks::<SUB>().0);
    let weights: [[f32; SUB]; SUBS] =
        std::array::from_fn(|j| weights(subs[j], importance.map(|of| &of[j])));
    let free: [f32; SUBS] = std::array::from_fn(|j| free_scale(subs[j], &weights[j], levels));
    let mut d = f16_covering(extreme(&free) / levels.scale_min);
    let store = |d: f32| -> [SymmetricBlock; SUBS] {
        std::array::from_fn(|j| store(subs[j], &weights[j], free[j], d, levels))
    };
    let error = |stored: &[SymmetricBlock; SUBS]| stored.iter().map(|s| s.error).sum::<f32>();
    let mut best = store(d);
    for _ in 0..2 {
        let (mut aa, mut ax) = (0.0, 0.0);
        for j in 0..SUBS {
            let Moments { qq, xq, .. } = moments(subs[j], &weights[j], &best[j].q);
            aa += best[j].scale * best[j].scale * qq;
            ax += best[j].scale * xq;
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
    Symmetric {
        d,
        scales: best.map(|s| s.scale as i8),
        q: std::array::from_fn(|i| best[i / SUB].q[i % SUB] as i8),
    }
}

/// The least-squares scale of the best levels, over both signs and the levels on which the extreme may fall.
fn free_scale(x: &[f32; SUB], w: &[f32; SUB], levels: Levels) -> f32 {
    let extreme = extreme(x);
    if extreme.abs() < TINY {
        return 0.0;
    }
    let mut best = ScaleSearch::default();
    let (first, last, n) = levels.ends;
    for sign in [-1.0, 1.0] {
        for i in 0..n {
            let end = first + (last - first) * f32::from(i) / f32::from(n - 1);
            best.offer(x, w, &nearest_levels(x, sign * end / extreme, levels));
        }
    }
    best.scale
}

#[inline(always)]
fn nearest_levels(x: &[f32; SUB], inverse: f32, levels: Levels) -> [f32; SUB] {
    let q_max = -levels.q_min - 1.0;
    x.map(|v| round((v * inverse).clamp(levels.q_min, q_max)))
}

/// The stored scale of least error among the neighbours of the free one.
fn store(x: &[f32; SUB], w: &[f32; SUB], free: f32, d: f32, levels: Levels) -> SymmetricBlock {
    let scale_max = -levels.scale_min - 1.0;
    let near = if d == 0.0 {
        0.0
    } else {
        round((free / d).clamp(levels.scale_min, scale_max))
    };
    let mut best = SymmetricBlock {
        scale: 0.0,
        q: [0.0; SUB],
        error: f32::INFINITY,
    };
    for step in [0.0, -1.0, 1.0] {
        let scale = near + step;
        if !(levels.scale_min..=scale_max).contains(&scale) {
            continue;
        }
        let factor = d * scale;
        let inverse = if factor == 0.0 { 0.0 } else { 1.0 / factor };
        let q = nearest_levels(x, inverse, levels);
        let error = error_of(x, w, &q, factor);
        if error < best.error {
            best = SymmetricBlock { scale, q, error };
        }
    }
    best
}
