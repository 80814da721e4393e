//! Copies along access patterns: a walk over a buffer on one side, blocks in stream order on the
//! other.

use crate::program::PatternWalk;
use std::ops::Range;

/// A walk over a buffer, cut into blocks of one length.
#[derive(Clone, Debug)]
pub(super) struct Motion {
    walk: PatternWalk,
    n_blocks: i64,
    block: i64,
    element_bytes: usize,
    /// Bytes of the buffer that are touched.
    range: Range<usize>,
    nest: Option<Nest>,
}

/// Loops of a walk whose blocks begin where an index steps.
#[derive(Clone, Debug)]
struct Nest {
    /// Over the blocks.
    outer: Vec<(i64, i64)>,
    /// Over the runs of a block, but the last.
    middle: Vec<(i64, i64)>,
    /// The last loop over runs.
    rows: (i64, i64),
    run_bytes: usize,
}

impl Motion {
    /// Cuts `walk`, over a buffer of `buffer` elements, into blocks of `block` elements.
    pub(super) fn new(
        walk: &PatternWalk,
        block: u64,
        element_bytes: u64,
        buffer: u64,
    ) -> Result<Motion, String> {
        let walk = walk.canonical();
        let n = walk.n_elements();
        let block = i64::try_from(block).unwrap_or(i64::MAX);
        if n == i64::MAX || block == 0 || n % block != 0 {
            return Err(format!(
                "the pattern visits {n} elements, not a whole number of blocks of {block}"
            ));
        }
        let element_bytes = element_bytes as usize;
        let range = match walk.bounds() {
            None => 0..0,
            Some((low, high)) if low >= 0 && (high as u64) < buffer => {
                low as usize * element_bytes..(high as usize + 1) * element_bytes
            }
            Some((low, high)) => {
                return Err(format!(
                    "the pattern visits elements {low} to {high} of a buffer of {buffer}"
                ));
            }
        };
        Ok(Motion {
            nest: (n > 0).then(|| nest(&walk, block, element_bytes)).flatten(),
            n_blocks: n / block,
            walk,
            block,
            element_bytes,
            range,
        })
    }

    /// Blocks of the whole walk.
    pub(super) fn n_blocks(&self) -> i64 {
        self.n_blocks
    }

    /// Bytes of the buffer from the first to the last that the walk touches.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Whether the walk is one block, in order, of a buffer of that many bytes.
    pub(super) fn is_whole(&self, buffer_bytes: usize) -> bool {
        self.n_blocks == 1 && self.range == (0..buffer_bytes) && self.is_contiguous()
    }

    /// The buffer's bytes of block `number`, if they are in order and contiguous.
    pub(super) fn contiguous(&self, number: i64) -> Option<Range<usize>> {
        let nest = self.nest.as_ref()?;
        if nest.rows.0 != 1 || !nest.middle.is_empty() {
            return None;
        }
        let start = nest.start(self.walk.offset, number) as usize * self.element_bytes;
        Some(start..start + nest.run_bytes)
    }

    fn is_contiguous(&self) -> bool {
        matches!(self.walk.dims[..], [] | [(_, 1)])
    }

    /// Elements visited.
    pub(super) fn n_elements(&self) -> i64 {
        self.n_blocks * self.block
    }

    /// The walk, with the fewest dimensions.
    pub(super) fn walk(&self) -> &PatternWalk {
        &self.walk
    }

    /// Reads block `number` of the walk into `to`. `from` begins at byte `base` of the buffer.
    pub(super) fn gather(&self, number: i64, from: &[u8], base: usize, to: &mut [u8]) {
        let Some(nest) = &self.nest else {
            let mut elements = to.chunks_exact_mut(self.element_bytes);
            return self.each_element(number, base, |at, n| {
                if let Some(to) = elements.next() {
                    to.copy_from_slice(&from[at..at + n]);
                }
            });
        };
        let (stride, run) = (
            nest.rows.1 as isize * self.element_bytes as isize,
            nest.run_bytes,
        );
        let mut rows = to.chunks_exact_mut(nest.rows.0 as usize * run);
        self.each_row(nest, number, base, |at| {
            let Some(to) = rows.next() else { return };
            match run {
                2 => gather_rows::<2>(from, at, stride, to),
                4 => gather_rows::<4>(from, at, stride, to),
                8 => gather_rows::<8>(from, at, stride, to),
                16 => gather_rows::<16>(from, at, stride, to),
                32 => gather_rows::<32>(from, at, stride, to),
                64 => gather_rows::<64>(from, at, stride, to),
                _ => {
                    let mut at = at;
                    for to in to.chunks_exact_mut(run) {
                        to.copy_from_slice(&from[at..at + run]);
                        at = at.wrapping_add_signed(stride);
                    }
                }
            }
        });
    }

    /// Writes `from` to where block `number` of the walk is. `to` begins at byte `base` of the
    /// buffer.
    pub(super) fn scatter(&self, number: i64, to: &mut [u8], base: usize, from: &[u8]) {
        let Some(nest) = &self.nest else {
            let mut elements = from.chunks_exact(self.element_bytes);
            return self.each_element(number, base, |at, n| {
                if let Some(from) = elements.next() {
                    to[at..at + n].copy_from_slice(from);
                }
            });
        };
        let (stride, run) = (
            nest.rows.1 as isize * self.element_bytes as isize,
            nest.run_bytes,
        );
        let mut rows = from.chunks_exact(nest.rows.0 as usize * run);
        self.each_row(nest, number, base, |at| {
            let Some(from) = rows.next() else { return };
            match run {
                2 => scatter_rows::<2>(to, at, stride, from),
                4 => scatter_rows::<4>(to, at, stride, from),
                8 => scatter_rows::<8>(to, at, stride, from),
                16 => scatter_rows::<16>(to, at, stride, from),
                32 => scatter_rows::<32>(to, at, stride, from),
                64 => scatter_rows::<64>(to, at, stride, from),
                _ => {
                    let mut at = at;
                    for from in from.chunks_exact(run) {
                        to[at..at + run].copy_from_slice(from);
                        at = at.wrapping_add_signed(stride);
                    }
                }
            }
        });
    }

    /// Calls `f` with the first byte of every row of a block.
    fn each_row(&self, nest: &Nest, number: i64, base: usize, mut f: impl FnMut(usize)) {
        let mut at = nest.start(self.walk.offset, number);
        let byte = |at: i64| (at as usize * self.element_bytes).wrapping_sub(base);
        let mut counters = vec![0; nest.middle.len()];
        loop {
            f(byte(at));
            if !step(&mut counters, &nest.middle, &mut at) {
                return;
            }
        }
    }

    /// Calls `f` with the first byte of every element of a block, and its length.
    fn each_element(&self, number: i64, base: usize, mut f: impl FnMut(usize, usize)) {
        if number >= self.n_blocks {
            return;
        }
        let dims = &self.walk.dims;
        let mut counters = vec![0; dims.len()];
        let (mut at, mut rest) = (self.walk.offset, number * self.block);
        for (counter, &(size, stride)) in counters.iter_mut().zip(dims).rev() {
            *counter = rest % size;
            at += *counter * stride;
            rest /= size;
        }
        for _ in 0..self.block {
            f(
                (at as usize * self.element_bytes).wrapping_sub(base),
                self.element_bytes,
            );
            step(&mut counters, dims, &mut at);
        }
    }
}

impl Nest {
    /// Index of the first element of a block of the walk that begins at `offset`.
    fn start(&self, offset: i64, number: i64) -> i64 {
        let (mut at, mut rest) = (offset, number);
        for &(size, stride) in self.outer.iter().rev() {
            at += rest % size * stride;
            rest /= size;
        }
        at
    }
}

/// Moves to the next index vector; `false` after the last, when it starts again from the first.
fn step(counters: &mut [i64], dims: &[(i64, i64)], at: &mut i64) -> bool {
    for (counter, &(size, stride)) in counters.iter_mut().zip(dims).rev() {
        *counter += 1;
        *at += stride;
        if *counter < size {
            return true;
        }
        *counter = 0;
        *at -= size * stride;
    }
    false
}

/// Splits the loops of a walk at the blocks; `None` where a block ends within a loop's step.
fn nest(walk: &PatternWalk, block: i64, element_bytes: usize) -> Option<Nest> {
    let (mut outer, mut inner, mut rest) = (Vec::new(), Vec::new(), block);
    for &(size, stride) in walk.dims.iter().rev() {
        if rest == 1 {
            outer.push((size, stride));
        } else if rest % size == 0 {
            inner.push((size, stride));
            rest /= size;
        } else if size % rest == 0 {
            inner.push((rest, stride));
            outer.push((size / rest, stride * rest));
            rest = 1;
        } else {
            return None;
        }
    }
    outer.reverse();
    inner.reverse();
    let run = match inner.last() {
        Some(&(size, 1)) => {
            inner.pop();
            size
        }
        _ => 1,
    };
    let rows = inner.pop().unwrap_or((1, 0));
    Some(Nest {
        outer,
        middle: inner,
        rows,
        run_bytes: run as usize * element_bytes,
    })
}

fn gather_rows<const N: usize>(from: &[u8], mut at: usize, stride: isize, to: &mut [u8]) {
    for to in to.as_chunks_mut::<N>().0 {
        to.copy_from_slice(&from[at..at + N]);
        at = at.wrapping_add_signed(stride);
    }
}

fn scatter_rows<const N: usize>(to: &mut [u8], mut at: usize, stride: isize, from: &[u8]) {
    for from in from.as_chunks::<N>().0 {
        to[at..at + N].copy_from_slice(from);
        at = at.wrapping_add_signed(stride);
    }
}

/// Whether the walks together visit every one of `n` elements. Answers no rather than spend more
/// than a few visits an element.
pub(super) fn cover(motions: &[&Motion], n: u64) -> bool {
    let visits = motions
        .iter()
        .fold(0_i64, |sum, motion| sum.saturating_add(motion.n_elements()));
    if (visits as u64) < n || visits as u64 > n.saturating_mul(4) {
        return false;
    }
    let mut written = vec![false; n as usize];
    for motion in motions {
        for (start, len) in motion.walk().runs() {
            written[start as usize..(start + len) as usize].fill(true);
        }
    }
    written.into_iter().all(|written| written)
}
