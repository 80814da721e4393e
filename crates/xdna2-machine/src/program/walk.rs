//! Values of expressions at a point, and the concrete walks of patterns.

use super::{Affine, Launch, Pattern, Var};

/// The values of all variables at one point. Variables out of scope keep their default. A variable beyond a slice
/// counts as 0 (`Flat::new` refuses programs that use one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Env<'a> {
    /// The grid point.
    pub grid: &'a [u32],
    /// The index of the bundle copy.
    pub index: &'a [u32],
    /// The number of the stage end among its `each` copies.
    pub each: u32,
    /// The core's column in its herd.
    pub x: u32,
    /// The core's row in its herd.
    pub y: u32,
    /// Loop variables, the outermost first.
    pub loops: &'a [i64],
}

impl Env<'_> {
    /// The value of a variable.
    pub fn value(&self, var: Var) -> i64 {
        let at = |values: &[u32], d: u8| values.get(usize::from(d)).map_or(0, |&v| i64::from(v));
        match var {
            Var::Grid(d) => at(self.grid, d),
            Var::Index(d) => at(self.index, d),
            Var::Each => i64::from(self.each),
            Var::X => i64::from(self.x),
            Var::Y => i64::from(self.y),
            Var::Loop(d) => self.loops.get(usize::from(d)).copied().unwrap_or(0),
        }
    }
}

impl Affine {
    /// The value at a point.
    pub fn at(&self, env: &Env<'_>) -> i64 {
        self.eval(|var| env.value(var))
    }
}

impl Pattern {
    /// The walk at a point.
    pub fn walk(&self, env: &Env<'_>) -> PatternWalk {
        PatternWalk {
            offset: self.offset.at(env),
            dims: self
                .dims
                .iter()
                .map(|(size, stride)| (size.at(env), *stride))
                .collect(),
        }
    }
}

/// A pattern with every expression evaluated: visits `offset + Σ index_d · stride_d`, the last
/// dimension fastest. A dimension of size zero or less makes it empty; no dimension at all visits
/// `offset` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternWalk {
    /// The first element.
    pub offset: i64,
    /// (size, stride) per dimension, the outermost first, in elements.
    pub dims: Vec<(i64, i64)>,
}

impl PatternWalk {
    /// Number of elements visited; saturates.
    pub fn n_elements(&self) -> i64 {
        if self.is_empty() {
            return 0;
        }
        let product = |n: i64, &(size, _): &(i64, i64)| n.saturating_mul(size);
        self.dims.iter().fold(1, product)
    }

    /// Whether nothing is visited.
    pub fn is_empty(&self) -> bool {
        self.dims.iter().any(|&(size, _)| size <= 0)
    }

    /// The smallest and the largest element visited (both included); `None` when nothing is.
    /// Saturates.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        if self.is_empty() {
            return None;
        }
        let (mut low, mut high) = (i128::from(self.offset), i128::from(self.offset));
        for &(size, stride) in &self.dims {
            let reach = i128::from(size - 1) * i128::from(stride);
            low += reach.min(0);
            high += reach.max(0);
        }
        let clamp = |v: i128| v.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Some((clamp(low), clamp(high)))
    }

    /// The same walk with the fewest dimensions: sizes of one dropped, and two neighbours joined
    /// where the outer stride continues the inner one.
    #[must_use]
    pub fn canonical(&self) -> PatternWalk {
        if self.is_empty() {
            return PatternWalk {
                offset: self.offset,
                dims: vec![(0, 1)],
            };
        }
        let mut dims: Vec<(i64, i64)> = Vec::with_capacity(self.dims.len());
        for &(size, stride) in self.dims.iter().filter(|d| d.0 != 1) {
            match dims.last_mut() {
                Some(outer)
                    if size.checked_mul(stride) == Some(outer.1)
                        && size.checked_mul(outer.0).is_some() =>
                {
                    *outer = (outer.0 * size, stride);
                }
                _ => dims.push((size, stride)),
            }
        }
        PatternWalk {
            offset: self.offset,
            dims,
        }
    }

    /// Length of the contiguous innermost run: the burst a DMA makes of it, in elements. 0 for an
    /// empty walk.
    pub fn burst_elements(&self) -> i64 {
        match self.canonical().dims.last() {
            None => 1,
            Some(&(size, 1)) => size,
            Some(_) => 1,
        }
    }

    /// The walk as contiguous runs (first element, length), in order, each as long as possible.
    pub fn runs(&self) -> Runs {
        let mut walk = self.canonical();
        let run = match walk.dims.last() {
            Some(&(size, 1)) => {
                walk.dims.pop();
                size
            }
            _ => 1,
        };
        let n = walk.n_elements();
        Runs {
            counters: vec![0; walk.dims.len()],
            next: walk.offset,
            left: if run > 0 { n } else { 0 },
            dims: walk.dims,
            run,
        }
    }
}

/// Iterator of [`PatternWalk::runs`].
#[derive(Clone, Debug)]
pub struct Runs {
    dims: Vec<(i64, i64)>,
    counters: Vec<i64>,
    run: i64,
    next: i64,
    left: i64,
}

impl Runs {
    /// Moves to the next start.
    fn advance(&mut self) {
        self.left -= 1;
        for (counter, &(size, stride)) in self.counters.iter_mut().zip(&self.dims).rev() {
            *counter += 1;
            self.next = self.next.wrapping_add(stride);
            if *counter < size {
                return;
            }
            *counter = 0;
            self.next = self.next.wrapping_sub(size.wrapping_mul(stride));
        }
    }
}

impl Iterator for Runs {
    type Item = (i64, i64);

    fn next(&mut self) -> Option<(i64, i64)> {
        if self.left <= 0 {
            return None;
        }
        let (start, mut len) = (self.next, self.run);
        self.advance();
        // Dimensions that do not join as a whole can still meet at their seams.
        while self.left > 0 && start.checked_add(len) == Some(self.next) {
            len += self.run;
            self.advance();
        }
        Some((start, len))
    }
}

impl Launch {
    /// Number of grid points; `None` when it overflows.
    pub fn n_grid_points(&self) -> Option<u64> {
        self.grid
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(u64::from(d)))
    }

    /// The grid points in order, the last dimension fastest.
    pub fn grid_points(&self) -> Indices {
        Indices::new(&self.grid)
    }
}

/// Iterator over all index vectors of a shape, the last dimension fastest. No dimension gives one
/// empty vector.
#[derive(Clone, Debug)]
pub struct Indices {
    dims: Vec<u32>,
    next: Option<Vec<u32>>,
}

impl Indices {
    /// All indices of that shape.
    pub fn new(dims: &[u32]) -> Indices {
        Indices {
            dims: dims.to_vec(),
            next: (!dims.contains(&0)).then(|| vec![0; dims.len()]),
        }
    }
}

impl Iterator for Indices {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        let at = self.next.take()?;
        let mut following = at.clone();
        for (index, &size) in following.iter_mut().zip(&self.dims).rev() {
            *index += 1;
            if *index < size {
                self.next = Some(following);
                break;
            }
            *index = 0;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walk(offset: i64, dims: &[(i64, i64)]) -> PatternWalk {
        PatternWalk {
            offset,
            dims: dims.to_vec(),
        }
    }

    fn elements(walk: &PatternWalk) -> Vec<i64> {
        let dims: Vec<u32> = walk.dims.iter().map(|d| d.0.max(0) as u32).collect();
        Indices::new(&dims)
            .map(|index| {
                let steps = index.iter().zip(&walk.dims);
                walk.offset + steps.map(|(&i, d)| i64::from(i) * d.1).sum::<i64>()
            })
            .collect()
    }

    #[test]
    fn runs_of_common_walks() {
        let runs = |w: &PatternWalk| w.runs().collect::<Vec<_>>();
        assert_eq!(runs(&walk(5, &[])), [(5, 1)]);
        assert_eq!(runs(&walk(5, &[(7, 1)])), [(5, 7)]);
        assert_eq!(runs(&walk(0, &[(2, 4), (4, 1)])), [(0, 8)]);
        assert_eq!(runs(&walk(0, &[(2, 10), (3, 1)])), [(0, 3), (10, 3)]);
        assert_eq!(runs(&walk(0, &[(3, 2)])), [(0, 1), (2, 1), (4, 1)]);
        assert_eq!(runs(&walk(0, &[(3, 0), (1, 9)])), [(0, 1), (0, 1), (0, 1)]);
        assert_eq!(runs(&walk(0, &[(0, 1)])), []);
        assert_eq!(runs(&walk(0, &[(4, 1), (-1, 1)])), []);
        // A repeat inside an advance: the seam joins, the repeats do not.
        assert_eq!(
            runs(&walk(0, &[(2, 4), (2, 0), (4, 1)])),
            [(0, 4), (0, 8), (4, 4)]
        );
        // 8 × 8 blocks of a 16 × 16 matrix; the middle two of their rows meet.
        let blocks = walk(0, &[(2, 128), (2, 8), (8, 16), (8, 1)]);
        assert_eq!(blocks.burst_elements(), 8);
        assert_eq!(blocks.runs().count(), 31);
    }

    #[test]
    fn extremes_neither_overflow_nor_hang() {
        let huge = walk(i64::MAX, &[(i64::MAX, i64::MAX), (i64::MAX, i64::MIN)]);
        assert_eq!(huge.n_elements(), i64::MAX);
        assert_eq!(huge.bounds(), Some((i64::MIN, i64::MAX)));
        assert_eq!(huge.burst_elements(), 1);
        assert!(huge.runs().take(10).count() == 10);
        assert_eq!(walk(0, &[(i64::MIN, 1)]).bounds(), None);
    }

    #[test]
    fn indices_cover_the_shape() {
        assert_eq!(Indices::new(&[]).collect::<Vec<_>>(), [Vec::<u32>::new()]);
        assert_eq!(Indices::new(&[2, 0]).count(), 0);
        let all: Vec<_> = Indices::new(&[2, 3]).collect();
        assert_eq!(all.len(), 6);
        assert_eq!((&all[1], &all[3]), (&vec![0, 1], &vec![1, 0]));
    }

    proptest! {
        #[test]
        fn runs_visit_the_same_elements_and_are_maximal(
            offset in -20i64..20,
            dims in prop::collection::vec((0i64..5, -6i64..9), 0..5),
        ) {
            let walk = walk(offset, &dims);
            let expected = elements(&walk);
            let runs: Vec<_> = walk.runs().collect();
            let visited: Vec<i64> = runs.iter().flat_map(|&(at, len)| at..at + len).collect();
            prop_assert_eq!(&visited, &expected);
            prop_assert!(runs.windows(2).all(|w| w[0].0 + w[0].1 != w[1].0));
            prop_assert_eq!(walk.n_elements() as usize, expected.len());
            let bounds = expected.iter().min().copied().zip(expected.iter().max().copied());
            prop_assert_eq!(walk.bounds(), bounds);
            prop_assert_eq!(elements(&walk.canonical()), expected);
        }
    }
}
