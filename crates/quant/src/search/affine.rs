//! Fits of `w ≈ scale·q + min`: one group (Q4NX), and a block of 256 whose groups share two f16
//! factors (Q2_K, Q4_K, Q5_K).

use super::{LANES, Moments, TINY, f16_covering, f16_nearest, moments, round, sum_of, weights};
use crate::formats::range;

/// Number of levels of a format, and how its groups' scales are stored.
#[derive(Clone, Copy)]
pub(crate) struct Levels {
    /// Levels run from 0 to this.
    q_max: f32,
    /// Groups' scales and minimums are stored as 0 to this.
    scale_max: f32,
    /// Numbers of steps that the range of a group is tried to span: the first, the last, and how many are tried.
    spans: (f32, f32, u8),
}

pub(crate) const LEVELS_4: Levels = Levels {
    q_max: 3.0,
    scale_max: 15.0,
    spans: (2.5, 4.1, 17),
};
pub(crate) const LEVELS_16: Levels = Levels {
    q_max: 15.0,
    scale_max: 63.0,
    spans: (14.0, 16.4, 13),
};
pub(crate) const LEVELS_32: Levels = Levels {
    q_max: 31.0,
    scale_max: 63.0,
    spans: (30.0, 32.4, 13),
};

/// `w ≈ scale·q + min`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) scale: f32,
    pub(crate) min: f32,
}

/// Whether a group's minimum may have any sign.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Min {
    Any,
    /// The format stores −min without a sign.
    NotAboveZero,
}

/// A group with its weights and the sums that do not depend on levels.
struct Group<'a, const N: usize> {
    x: &'a [f32; N],
    w: [f32; N],
    /// Σ w
    sum_w: f32,
    /// Σ w·x
    sum_x: f32,
}

impl<'a, const N: usize> Group<'a, N> {
    fn new(x: &'a [f32; N], importance: Option<&[f32; N]>) -> Self {
        let w = weights(x, importance);
        Group {
            x,
            sum_w: sum_of(&w, &w, |w, _| w),
            sum_x: sum_of(&w, x, |w, x| w * x),
            w,
        }
    }

    /// Σ w·(scale·q + min − x)²
    #[inline(always)]
    fn error_of(&self, q: &[f32; N], line: Line) -> f32 {
        let mut lanes = [0.0; LANES];
        let x = self.x.as_chunks::<LANES>().0;
        let w = self.w.as_chunks::<LANES>().0;
        for ((x, w), q) in x.iter().zip(w).zip(q.as_chunks::<LANES>().0) {
            for l in 0..LANES {
                let off = line.scale * q[l] + line.min - x[l];
                lanes[l] += w[l] * off * off;
            }
        }
        lanes.iter().sum()
    }

    /// The least-squares line of given levels; `None` if there is none with a positive scale.
    fn line_of(&self, q: &[f32; N], bound: Min) -> Option<Line> {
        let Moments { q: sum_q, qq, xq } = moments(self.x, &self.w, q);
        let det = self.sum_w * qq - sum_q * sum_q;
        let mut line = Line {
            scale: (self.sum_w * xq - self.sum_x * sum_q) / det,
            min: (qq * self.sum_x - sum_q * xq) / det,
        };
        if bound == Min::NotAboveZero && line.min > 0.0 {
            line = Line {
                scale: xq / qq,
                min: 0.0,
            };
        }
        // Also false for the NaN of a zero determinant.
        (line.scale > 0.0).then_some(line)
    }

    /// The line of least error from the candidates and two rounds of alternating between levels and line.
    fn fit(&self, levels: Levels, bound: Min) -> Line {
        let (mut lo, hi) = range(self.x);
        if bound == Min::NotAboveZero {
            lo = lo.min(0.0);
        }
        if hi - lo < TINY {
            return Line {
                scale: 0.0,
                min: lo,
            };
        }
        let mut best = Line {
            scale: (hi - lo) / levels.q_max,
            min: lo,
        };
        let mut best_error = f32::INFINITY;
        let (first, last, n) = levels.spans;
        for i in 0..n {
            let span = first + (last - first) * f32::from(i) / f32::from(n - 1);
            let q = nearest_levels(self.x, lo, span / (hi - lo), levels.q_max);
            self.offer(&q, bound, &mut best, &mut best_error);
        }
        for _ in 0..2 {
            let q = nearest_levels(self.x, best.min, 1.0 / best.scale, levels.q_max);
            self.offer(&q, bound, &mut best, &mut best_error);
        }
        best
    }

    #[inline(always)]
    fn offer(&self, q: &[f32; N], bound: Min, best: &mut Line, best_error: &mut f32) {
        if let Some(line) = self.line_of(q, bound) {
            let error = self.error_of(q, line);
            if error < *best_error {
                *best = line;
                *best_error = error;
            }
        }
    }
}

#[inline(always)]
fn nearest_levels<const N: usize>(x: &[f32; N], min: f32, inverse: f32, q_max: f32) -> [f32; N] {
    x.map(|v| round(((v - min) * inverse).clamp(0.0, q_max)))
}

/// A block of 256 as stored: `w = d·scales[j]·q − dmin·mins[j]` in sub-block j.
pub(crate) struct Affine<const SUBS: usize> {
    pub(crate) d: f32,
    pub(crate) dmin: f32,
    pub(crate) scales: [u8; SUBS],
    pub(crate) mins: [u8; SUBS],
    pub(crate) q: [u8; 256],
}

/// The two factors of a block, exact in f16.
#[derive(Clone, Copy)]
struct Factors {
    d: f32,
    dmin: f32,
}

/// One sub-block as stored, and its error.
#[derive(Clone, Copy)]
struct AffineBlock<const N: usize> {
    scale: f32,
    min: f32,
    q: [f32; N],
    error: f32,
}

/// Fits a block of `SUBS` sub-blocks of `SUB` elements.
///
/// Sub-blocks are first fitted freely, and their lines give the shared factors. Then stored scales
/// are chosen next to the free ones, and the factors are fitted again to all levels as long as that
/// helps.
pub(crate) fn fit<const SUBS: usize, const SUB: usize>(
    x: &[f32; 256],
    importance: Option<&[f32; 256]>,
    levels: Levels,
) -> Affine<SUBS> {
    let (subs, _) = x.as_chunks::<SUB>();
    let importance = importance.map(|of| of.as_chunks::<SUB>().0);
    let groups: [Group<'_, SUB>; SUBS] =
        std::array::from_fn(|j| Group::new(&subs[j], importance.map(|of| &of[j])));
    let lines = groups
        .each_ref()
        .map(|group| group.fit(levels, Min::NotAboveZero));
    let largest = |of: fn(&Line) -> f32| lines.iter().map(of).fold(0.0, f32::max);
    let mut factors = Factors {
        d: f16_covering(largest(|line| line.scale) / levels.scale_max),
        dmin: f16_covering(largest(|line| -line.min) / levels.scale_max),
    };
    let store = |factors: Factors| -> [AffineBlock<SUB>; SUBS] {
        std::array::from_fn(|j| store(&groups[j], lines[j], factors, levels))
    };
    let error = |stored: &[AffineBlock<SUB>; SUBS]| stored.iter().map(|s| s.error).sum::<f32>();
    let mut best = store(factors);
    for _ in 0..2 {
        let Some(refitted) = refit(&groups, &best) else {
            break;
        };
        let stored = store(refitted);
        if error(&stored) >= error(&best) {
            break;
        }
        (factors, best) = (refitted, stored);
    }
    Affine {
        d: factors.d,
        dmin: factors.dmin,
        scales: best.map(|s| s.scale as u8),
        mins: best.map(|s| s.min as u8),
        q: std::array::from_fn(|i| best[i / SUB].q[i % SUB] as u8),
    }
}

/// The stored scale and minimum of least error among the neighbours of the free line's.
fn store<const N: usize>(
    group: &Group<'_, N>,
    line: Line,
    factors: Factors,
    levels: Levels,
) -> AffineBlock<N> {
    let near = |v: f32, factor: f32| {
        if factor > 0.0 {
            round((v / factor).clamp(0.0, levels.scale_max))
        } else {
            0.0
        }
    };
    let (scale, min) = (near(line.scale, factors.d), near(-line.min, factors.dmin));
    let mut best = AffineBlock {
        scale: 0.0,
        min: 0.0,
        q: [0.0; N],
        error: f32::INFINITY,
    };
    for ds in [0.0, -1.0, 1.0] {
        for dm in [0.0, -1.0, 1.0] {
            let (scale, min) = (scale + ds, min + dm);
            if !(0.0..=levels.scale_max).contains(&scale)
                || !(0.0..=levels.scale_max).contains(&min)
            {
                continue;
            }
            let line = Line {
                scale: factors.d * scale,
                min: -(factors.dmin * min),
            };
            let inverse = if line.scale > 0.0 {
                1.0 / line.scale
            } else {
                0.0
            };
            let q = nearest_levels(group.x, line.min, inverse, levels.q_max);
            let error = group.error_of(&q, line);
            if error < best.error {
                best = AffineBlock {
                    scale,
                    min,
                    q,
                    error,
                };
            }
        }
    }
    best
}

/// The least-squares factors of given stored scales, minimums and levels.
fn refit<const SUBS: usize, const N: usize>(
    groups: &[Group<'_, N>; SUBS],
    stored: &[AffineBlock<N>; SUBS],
) -> Option<Factors> {
    // With a = scale·q and b = min, minimise Σ w·(d·a − dmin·b − x)². Differences of these sums
    // cancel: f64.
    let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (group, stored) in groups.iter().zip(stored) {
        let Moments { q, qq, xq } = moments(group.x, &group.w, &stored.q);
        let (scale, min) = (f64::from(stored.scale), f64::from(stored.min));
        aa += scale * scale * f64::from(qq);
        ab += scale * min * f64::from(q);
        bb += min * min * f64::from(group.sum_w);
        ax += scale * f64::from(xq);
        bx += min * f64::from(group.sum_x);
    }
    let det = aa * bb - ab * ab;
    let factors = if det > 1e-9 * aa * bb {
        Factors {
            d: f16_nearest(((ax * bb - bx * ab) / det) as f32),
            dmin: f16_nearest(((ax * ab - bx * aa) / det) as f32),
        }
    } else {
        Factors {
            d: f16_nearest((ax / aa) as f32),
            dmin: 0.0,
        }
    };
    let sound = factors.d > 0.0 && factors.d.is_finite() && factors.dmin >= 0.0;
    sound.then_some(factors)
}

/// Fits one group of a format with 16 levels whose scale and offset are stored in few bits.
///
/// `candidates` lists, for a free line, the pairs that may be stored; the one of least error is returned, with its levels.
pub(crate) fn fit_stored<const N: usize, T: Copy>(
    x: &[f32; N],
    candidates: impl FnOnce(Line, &mut dyn FnMut(T, Line)),
) -> Option<(T, [u8; N])> {
    let group = Group::new(x, None);
    let free = group.fit(LEVELS_16, Min::Any);
    let mut best = None;
    let mut best_error = f32::INFINITY;
    candidates(free, &mut |stored, line| {
        let inverse = if line.scale == 0.0 {
            0.0
        } else {
            1.0 / line.scale
        };
        let q = nearest_levels(x, line.min, inverse, LEVELS_16.q_max);
        let error = group.error_of(&q, line);
        if error < best_error {
            best_error = error;
            best = Some((stored, q));
        }
    });
    best.map(|(stored, q)| (stored, q.map(|q| q as u8)))
}
