//! Cutting the groups of a parallel region into chunks.

use std::ops::Range;

/// Number of chunks in a region's last quarter that equal one earlier chunk.
const LAST_PARTS: usize = 3;

/// How the groups of a region are cut into chunks. Chunks of the last quarter are smaller, so that threads end at about the same time
/// even if their speeds differ or another process delays one.
pub(super) struct Cuts {
    n_groups: usize,
    /// Groups of a chunk, and of one of the last quarter's.
    size: usize,
    last_size: usize,
    /// Chunks before those.
    n_first: usize,
}

impl Cuts {
    pub(super) fn new(n_groups: usize, size: usize) -> Cuts {
        Cuts {
            n_groups,
            size,
            last_size: size.div_ceil(LAST_PARTS),
            n_first: n_groups * 3 / 4 / size,
        }
    }

    pub(super) fn n_chunks(&self) -> usize {
        let left = self.n_groups - self.n_first * self.size;
        self.n_first + left.div_ceil(self.last_size)
    }

    pub(super) fn groups(&self, chunk: usize) -> Range<usize> {
        match chunk.checked_sub(self.n_first) {
            None => chunk * self.size..(chunk + 1) * self.size,
            Some(chunk) => {
                let start = self.n_first * self.size + chunk * self.last_size;
                start..self.n_groups.min(start + self.last_size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_group_once_and_end_small() {
        for n_groups in 1..200 {
            for size in 1..20 {
                let cuts = Cuts::new(n_groups, size);
                let chunks: Vec<_> = (0..cuts.n_chunks()).map(|i| cuts.groups(i)).collect();
                let covered: Vec<usize> = chunks.iter().cloned().flatten().collect();
                assert_eq!(covered, (0..n_groups).collect::<Vec<_>>());
                assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
                let last = chunks.last().expect("a chunk").len();
                assert!(last <= size.div_ceil(LAST_PARTS), "{n_groups} by {size}");
            }
        }
    }
}
