//! The tiles of a product, and the place of each in the three buffers.
//!
//! | buffer | order, outermost first | within |
//! |---|---|---|
//! | `a` | row tiles, parts of k | atoms of 16 bytes of k, rows, the atom |
//! | `b` | workers, parts of k | groups of kernels, blocks of 32 k, kernels of the group, 32 k |
//! | `c` | workers, parts of k, column tiles, row tiles | atoms of 16 bytes of n, rows, the atom |
//!
//! Rows, columns and k are padded with zeros to the sizes of tasks.

use super::{Matmul, Order, Tiling, TilingError, padded_rows};
use crate::machine::Machine;
use std::ops::Range;

/// A tile's extent in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileSpan {
    /// First index.
    pub start: u32,
    /// Indices of the product; the rest is padding.
    pub len: u32,
    /// Indices of the task, with padding.
    pub padded: u32,
}

/// One task's tiles, as indices into the grid's spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTile {
    /// The worker.
    pub worker: usize,
    /// The part of k.
    pub part: usize,
    /// The tile of columns, of the worker's.
    pub col: usize,
    /// The tile of rows.
    pub row: usize,
}

/// All tiles of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The product.
    pub shape: Matmul,
    /// The sizes.
    pub tiling: Tiling,
    /// Tiles of rows.
    pub rows: Vec<TileSpan>,
    /// Parts of k.
    pub parts: Vec<TileSpan>,
    /// Each worker's tiles of columns; a worker may have none.
    pub workers: Vec<Vec<TileSpan>>,
    /// Offsets of row tiles in `a`.
    a: Vec<u64>,
    /// Offsets of workers in `b`.
    b: Vec<u64>,
    /// Offsets of workers in `c`.
    c: Vec<u64>,
    a_bytes: u64,
    b_bytes: u64,
    c_bytes: u64,
}

/// Cuts `0..len` into steps, each padded to a multiple.
fn spans(start: u32, len: u32, step: u32, padded: impl Fn(u32) -> u32) -> Vec<TileSpan> {
    (0..len)
        .step_by(step as usize)
        .map(|at| {
            let len = step.min(len - at);
            TileSpan {
                start: start + at,
                len,
                padded: padded(len),
            }
        })
        .collect()
}

/// Indices with padding. Only a last span has padding, since steps are multiples of the padding unit.
fn padded_sum(spans: &[TileSpan]) -> u64 {
    match (spans.first(), spans.last()) {
        (Some(first), Some(last)) => u64::from(last.start - first.start + last.padded),
        _ => 0,
    }
}

impl Grid {
    /// The tiles of a product.
    ///
    /// # Errors
    /// Errors of [`Tiling::check`], and buffers beyond 32-bit addresses.
    pub fn new(shape: Matmul, tiling: Tiling, machine: &Machine) -> Result<Grid, TilingError> {
        tiling.check(&shape, machine)?;
        let group = shape.kind.n_group();
        let rows = spans(0, shape.m, tiling.rows, padded_rows);
        let parts = spans(0, shape.k, tiling.depth, |len| {
            len.next_multiple_of(machine.k_group)
        });
        let n_groups = shape.n.div_ceil(group);
        let workers: Vec<Vec<TileSpan>> = (0..tiling.workers)
            .map(|w| {
                let border = |w: u32| {
                    let groups = u64::from(n_groups) * u64::from(w) / u64::from(tiling.workers);
                    (groups as u32 * group).min(shape.n)
                };
                let (start, end) = (border(w), border(w + 1));
                spans(start, end - start, tiling.cols, |len| {
                    len.next_multiple_of(group)
                })
            })
            .collect();
        let mut grid = Grid {
            shape,
            tiling,
            rows,
            parts,
            workers,
            a: Vec::new(),
            b: Vec::new(),
            c: Vec::new(),
            a_bytes: 0,
            b_bytes: 0,
            c_bytes: 0,
        };
        grid.place();
        let sizes = [
            ("a", grid.a_bytes),
            ("b", grid.b_bytes),
            ("c", grid.c_bytes),
        ];
        // A page at the front of every address space stays free.
        let max = machine.domain_bytes - 2 * machine.page_bytes;
        match sizes.into_iter().find(|&(_, bytes)| bytes > max) {
            Some((slot, bytes)) => Err(TilingError::Buffer { slot, bytes, max }),
            None => Ok(grid),
        }
    }

    fn place(&mut self) {
        let depth: u64 = (self.parts.iter())
            .map(|part| self.shape.kind.row_bytes(part.padded))
            .sum();
        for row in &self.rows {
            self.a.push(self.a_bytes);
            self.a_bytes += u64::from(row.padded) * depth;
        }
        let element = u64::from(self.shape.kind.output_bytes());
        let rows = padded_sum(&self.rows);
        for cols in &self.workers {
            let cols = padded_sum(cols);
            self.b.push(self.b_bytes);
            self.b_bytes += cols * depth;
            self.c.push(self.c_bytes);
            self.c_bytes += cols * rows * self.parts.len() as u64 * element;
        }
    }

    /// Bytes of `a`.
    pub fn a_bytes(&self) -> u64 {
        self.a_bytes
    }

    /// Bytes of `b`.
    pub fn b_bytes(&self) -> u64 {
        self.b_bytes
    }

    /// Bytes of `c`.
    pub fn c_bytes(&self) -> u64 {
        self.c_bytes
    }

    /// Tasks in all.
    pub fn n_tasks(&self) -> usize {
        let cols: usize = self.workers.iter().map(Vec::len).sum();
        cols * self.parts.len() * self.rows.len()
    }

    /// The worker's tasks in the order they run.
    pub fn tiles(&self, worker: usize) -> Vec<TaskTile> {
        let (n_rows, n_cols) = (self.rows.len(), self.workers[worker].len());
        let mut tiles = Vec::with_capacity(n_rows * n_cols * self.parts.len());
        for part in 0..self.parts.len() {
            let mut push = |row, col| {
                tiles.push(TaskTile {
                    worker,
                    part,
                    col,
                    row,
                });
            };
            match self.tiling.order {
                Order::Columns => {
                    (0..n_rows).for_each(|row| (0..n_cols).for_each(|col| push(row, col)));
                }
                Order::Rows => {
                    (0..n_cols).for_each(|col| (0..n_rows).for_each(|row| push(row, col)));
                }
            }
        }
        tiles
    }

    /// Bytes of a row of one part.
    fn part_bytes(&self, part: usize) -> u64 {
        self.shape.kind.row_bytes(self.parts[part].padded)
    }

    /// Bytes of a row of all earlier parts.
    fn parts_before(&self, part: usize) -> u64 {
        self.shape.kind.row_bytes(self.parts[part].start)
    }

    /// Range of a task's A in `a`.
    pub(crate) fn a_range(&self, row: usize, part: usize) -> Range<u64> {
        let rows = u64::from(self.rows[row].padded);
        let start = self.a[row] + rows * self.parts_before(part);
        start..start + rows * self.part_bytes(part)
    }

    /// Range of the weights of a worker's part in `b`.
    pub(crate) fn b_part(&self, worker: usize, part: usize) -> Range<u64> {
        let cols = padded_sum(&self.workers[worker]);
        let start = self.b[worker] + cols * self.parts_before(part);
        start..start + cols * self.part_bytes(part)
    }

    /// Range of a task's B in `b`.
    pub(crate) fn b_range(&self, tile: TaskTile) -> Range<u64> {
        let cols = &self.workers[tile.worker];
        let bytes = self.part_bytes(tile.part);
        let before = padded_sum(&cols[..tile.col]);
        let start = self.b_part(tile.worker, tile.part).start + before * bytes;
        start..start + u64::from(cols[tile.col].padded) * bytes
    }

    /// Range of a task's C in `c`.
    pub fn c_range(&self, tile: TaskTile) -> Range<u64> {
        let cols = &self.workers[tile.worker];
        let element = u64::from(self.shape.kind.output_bytes());
        let rows = padded_sum(&self.rows);
        let part = padded_sum(cols) * rows * tile.part as u64;
        let before = padded_sum(&cols[..tile.col]) * rows;
        let width = u64::from(cols[tile.col].padded);
        let above = width * padded_sum(&self.rows[..tile.row]);
        let start = self.c[tile.worker] + (part + before + above) * element;
        start..start + width * u64::from(self.rows[tile.row].padded) * element
    }
}
