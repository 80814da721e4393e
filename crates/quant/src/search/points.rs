//! The point of a codebook that is nearest to a group of numbers.

/// How many points are looked at for a tuple of levels that is not itself a point.
const NEAR: usize = 16;

/// A codebook, prepared for searches.
pub(crate) struct Points<const N: usize> {
    /// All levels, ascending.
    levels: Vec<f32>,
    points: Vec<[f32; N]>,
    /// By the number of a tuple of levels, `Σ level_i · n_levels^i`: the points nearest to it, nearest first. A tuple that is
    /// a point has only that one, repeated.
    near: Vec<[u16; NEAR]>,
}

impl<const N: usize> Points<N> {
    pub(crate) fn new(points: &[[i8; N]]) -> Points<N> {
        let mut levels = points.as_flattened().to_vec();
        levels.sort_unstable();
        levels.dedup();
        let n_tuples = levels.len().pow(N as u32);
        let mut ordered: Vec<(u32, u16)> = Vec::with_capacity(points.len());
        let near = (0..n_tuples).map(|number| {
            let mut rest = number;
            let tuple: [i8; N] = std::array::from_fn(|_| {
                let level = levels[rest % levels.len()];
                rest /= levels.len();
                level
            });
            ordered.clear();
            let distances = points.iter().map(|point| distance(&tuple, point));
            ordered.extend(distances.zip(0..));
            ordered.select_nth_unstable(NEAR - 1);
            ordered[..NEAR].sort_unstable();
            let is_point = ordered[0].0 == 0;
            std::array::from_fn(|i| ordered[if is_point { 0 } else { i }].1)
        });
        Points {
            near: near.collect(),
            points: points.iter().map(|point| point.map(f32::from)).collect(),
            levels: levels.into_iter().map(f32::from).collect(),
        }
    }

    /// The number of the tuple of the levels nearest to `v`.
    #[inline(always)]
    fn tuple_of(&self, v: &[f32; N]) -> usize {
        let mut tuple = [0; N];
        for pair in self.levels.windows(2) {
            let middle = 0.5 * (pair[0] + pair[1]);
            for (level, v) in tuple.iter_mut().zip(v) {
                *level += usize::from(*v > middle);
            }
        }
        tuple
            .iter()
            .rev()
            .fold(0, |number, level| number * self.levels.len() + level)
    }

    /// The point of least `Σ w·(level − v)²` of those near `v`.
    #[inline(always)]
    pub(crate) fn nearest(&self, v: &[f32; N], w: &[f32; N]) -> &[f32; N] {
        let near = &self.near[self.tuple_of(v)];
        let mut best = &self.points[usize::from(near[0])];
        if near[0] == near[1] {
            return best;
        }
        let mut least = f32::INFINITY;
        for index in near {
            let point = &self.points[usize::from(*index)];
            let mut error = 0.0;
            for i in 0..N {
                let off = point[i] - v[i];
                error += w[i] * off * off;
            }
            if error < least {
                (least, best) = (error, point);
            }
        }
        best
    }

    /// The index of a point that [`Points::nearest`] gave.
    pub(crate) fn index_of(&self, point: &[f32; N]) -> usize {
        usize::from(self.near[self.tuple_of(point)][0])
    }
}

fn distance<const N: usize>(a: &[i8; N], b: &[i8; N]) -> u32 {
    let pairs = a.iter().zip(b);
    pairs
        .map(|(a, b)| (i32::from(*a) - i32::from(*b)).unsigned_abs().pow(2))
        .sum()
}

/// Levels of points that have no sign, with the signs of `x`: of the points' magnitudes nearest to `x · inverse`. Where the
/// number of negative signs of eight elements must be even, the sign that costs least is flipped.
#[inline(always)]
pub(crate) fn magnitudes<const N: usize, const SUB: usize>(
    points: &Points<N>,
    is_even: bool,
    x: &[f32; SUB],
    w: &[f32; SUB],
    inverse: f32,
) -> [f32; SUB] {
    let mut q = [0.0; SUB];
    let groups = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0);
    for ((x, w), q) in groups.zip(q.as_chunks_mut::<8>().0) {
        let mut signs = x.map(|v| if v < 0.0 { -1.0 } else { 1.0 });
        if is_even && x.iter().filter(|v| **v < 0.0).count() % 2 == 1 {
            let cost = |i: usize| w[i] * x[i] * x[i];
            let turned = (1..8).fold(0, |best, i| if cost(i) < cost(best) { i } else { best });
            signs[turned] = -signs[turned];
        }
        for first in (0..8).step_by(N) {
            let v = std::array::from_fn(|i| signs[first + i] * x[first + i] * inverse);
            let point = points.nearest(&v, &std::array::from_fn(|i| w[first + i]));
            for i in 0..N {
                q[first + i] = signs[first + i] * point[i];
            }
        }
    }
    q
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_its_own_nearest_and_others_go_to_the_nearest() {
        let points: Vec<[i8; 4]> = (0..81)
            .map(|i| [i % 3, i / 3 % 3, i / 9 % 3, i / 27 % 3].map(|level| 2 * level + 1))
            .filter(|point| point.iter().sum::<i8>() % 4 == 0)
            .collect();
        let prepared = Points::new(&points);
        for (i, point) in points.iter().enumerate() {
            let point = point.map(f32::from);
            assert_eq!(prepared.nearest(&point, &[1.0; 4]), &point);
            assert_eq!(prepared.index_of(&point), i);
        }
        // [1, 1, 1, 3] is not a point: the weights say which element gives way.
        let v = [1.0, 1.0, 1.0, 3.0];
        assert_eq!(
            prepared.nearest(&v, &[1.0, 9.0, 9.0, 9.0]),
            &[3.0, 1.0, 1.0, 3.0]
        );
        assert_eq!(prepared.nearest(&v, &[9.0, 9.0, 9.0, 1.0]), &[1.0; 4]);
    }

    #[test]
    fn signs_are_made_even_where_it_costs_least() {
        let points = Points::new(
            &(0..81)
                .map(|i| [i % 3, i / 3 % 3, i / 9 % 3, i / 27].map(|level| 4 * level + 1))
                .collect::<Vec<[i8; 4]>>(),
        );
        let x = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, 8.0];
        let free = magnitudes(&points, false, &x, &[1.0; 8], 1.0);
        assert_eq!(free.map(|q| q < 0.0), x.map(|v| v < 0.0));
        let even = magnitudes(&points, true, &x, &[1.0; 8], 1.0);
        let turned: Vec<usize> = (0..8)
            .filter(|&i| (even[i] < 0.0) != (x[i] < 0.0))
            .collect();
        assert_eq!(turned, [0]);
    }
}
