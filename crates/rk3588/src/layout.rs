//! Packing: plain row-major matrices into the buffers that tasks read, and results back.
//!
//! Elements are addressed in whole units, so that the same code serves every type: 16-byte atoms of A and C, blocks of
//! 32 k of B. [`Grid`] says where tiles begin.

use crate::matmul::Precision;
use crate::tiling::{Grid, TileSpan};
use half::{bf16, f16};
use std::ops::Range;

const ATOM: usize = 16;

/// A matrix whose size does not match the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{what}` has {found} elements or bytes; the product needs {expected}")]
pub struct SizeError {
    /// Name of the matrix.
    pub what: &'static str,
    /// Expected size.
    pub expected: u64,
    /// Actual size.
    pub found: u64,
}

fn size(what: &'static str, expected: u64, found: usize) -> Result<(), SizeError> {
    let found = found as u64;
    match expected == found {
        true => Ok(()),
        false => Err(SizeError {
            what,
            expected,
            found,
        }),
    }
}

impl Grid {
    /// Bytes of one row of A or B as given: k elements, two 4-bit ones in a byte.
    pub(crate) fn input_row_bytes(&self) -> usize {
        (self.shape.k as usize * self.shape.kind.input().bits() as usize).div_ceil(8)
    }

    /// Packs A: `rows` is [m, k] row-major, `out` the whole buffer `a`. Padding is zeroed.
    ///
    /// # Errors
    /// Where either has another size.
    pub fn pack_a(&self, rows: &[u8], out: &mut [u8]) -> Result<(), SizeError> {
        let row_bytes = self.input_row_bytes();
        size(
            "a, row-major",
            u64::from(self.shape.m) * row_bytes as u64,
            rows.len(),
        )?;
        size("a, packed", self.a_bytes(), out.len())?;
        for (row_tile, span) in self.rows.iter().enumerate() {
            for part in 0..self.parts.len() {
                let range = self.a_range(row_tile, part);
                let tile = &mut out[range.start as usize..range.end as usize];
                let first_byte = self.shape.kind.row_bytes(self.parts[part].start) as usize;
                for (at, atom_rows) in tile
                    .chunks_exact_mut(span.padded as usize * ATOM)
                    .enumerate()
                {
                    let from = first_byte + at * ATOM;
                    pack_atoms(rows, row_bytes, span, from, atom_rows);
                }
            }
        }
        Ok(())
    }

    /// The rows [m, k] of a whole buffer `a`.
    ///
    /// # Errors
    /// Where it has another size.
    pub(crate) fn read_a(&self, a: &[u8]) -> Result<Vec<u8>, SizeError> {
        size("a, packed", self.a_bytes(), a.len())?;
        let row_bytes = self.input_row_bytes();
        let mut rows = vec![0; self.shape.m as usize * row_bytes];
        for (row_tile, span) in self.rows.iter().enumerate() {
            for (part, k) in self.parts.iter().enumerate() {
                let range = self.a_range(row_tile, part);
                let first_byte = self.shape.kind.row_bytes(k.start) as usize;
                let tile = a[range.start as usize..range.end as usize].chunks_exact(ATOM);
                for (at, atom) in tile.enumerate() {
                    let (m, s) = (at % span.padded as usize, at / span.padded as usize);
                    let from = first_byte + s * ATOM;
                    let len = row_bytes.saturating_sub(from).min(ATOM);
                    // Atoms of padding have no bytes of a row.
                    if m < span.len as usize && len > 0 {
                        let row = (span.start as usize + m) * row_bytes + from;
                        rows[row..row + len].copy_from_slice(&atom[..len]);
                    }
                }
            }
        }
        Ok(rows)
    }

    /// The rows [n, k] of a whole buffer `b`.
    ///
    /// # Errors
    /// Where it has another size.
    pub(crate) fn read_b(&self, b: &[u8]) -> Result<Vec<u8>, SizeError> {
        size("b, packed", self.b_bytes(), b.len())?;
        let row_bytes = self.input_row_bytes();
        let mut rows = vec![0; self.shape.n as usize * row_bytes];
        for (worker, cols) in self.workers.iter().enumerate() {
            let part = self.b_worker(worker);
            let part = &b[part.start as usize..part.end as usize];
            let (first, n): (u32, u32) = (
                cols.first().map_or(0, |span| span.start),
                cols.iter().map(|span| span.len).sum(),
            );
            for n in first..first + n {
                let row = &mut rows[n as usize * row_bytes..][..row_bytes];
                self.each_block(worker, n, |of_row, at| {
                    row[of_row.clone()].copy_from_slice(&part[at..at + of_row.len()]);
                });
            }
        }
        Ok(rows)
    }

    /// Packs one row of B (a kernel) into the whole buffer `b`: `row` has k elements. Other
    /// rows' bytes stay; the buffer must be zero where nothing is packed.
    ///
    /// # Errors
    /// Where the row does not exist, or either has another size.
    pub(crate) fn pack_b_row(&self, n: u32, row: &[u8], out: &mut [u8]) -> Result<(), SizeError> {
        size("a row of b", self.input_row_bytes() as u64, row.len())?;
        size("b, packed", self.b_bytes(), out.len())?;
        let owner = (self.workers.iter())
            .position(|cols| cols.last().is_some_and(|last| n < last.start + last.len));
        let (Some(worker), true) = (owner, n < self.shape.n) else {
            return Err(SizeError {
                what: "number of a row of b",
                expected: self.shape.n.into(),
                found: n.into(),
            });
        };
        let range = self.b_worker(worker);
        let part = &mut out[range.start as usize..range.end as usize];
        self.put_b_row(worker, n, row, part);
        Ok(())
    }

    /// Range of a worker's weights in `b`. It is apart from the others', so that a separate thread can pack each.
    pub(crate) fn b_worker(&self, worker: usize) -> Range<u64> {
        let last = self.parts.len().saturating_sub(1);
        self.b_part(worker, 0).start..self.b_part(worker, last).end
    }

    /// Packs a row of a worker into its part of `b`; the sizes were checked.
    pub(crate) fn put_b_row(&self, worker: usize, n: u32, row: &[u8], out: &mut [u8]) {
        self.each_block(worker, n, |of_row, at| {
            out[at..at + of_row.len()].copy_from_slice(&row[of_row]);
        });
    }

    /// Calls `take` with every block of a row of B: its bytes in the plain row, and where it begins in
    /// the worker's part of `b`.
    fn each_block(&self, worker: usize, n: u32, mut take: impl FnMut(Range<usize>, usize)) {
        let first = self.workers[worker].first().map_or(0, |span| span.start);
        let start = self.b_worker(worker).start;
        let group = self.shape.kind.n_group();
        let (block_of, within) = ((n - first) / group, (n - first) % group);
        let block_bytes = self.shape.kind.row_bytes(32) as usize;
        let group_block = group as usize * block_bytes;
        let bits = self.shape.kind.input().bits() as usize;
        for (part, span) in self.parts.iter().enumerate() {
            let blocks = span.padded as usize / 32;
            let base = (self.b_part(worker, part).start - start) as usize
                + block_of as usize * blocks * group_block
                + within as usize * block_bytes;
            let from = self.shape.kind.row_bytes(span.start) as usize;
            let to = ((span.start + span.len) as usize * bits).div_ceil(8);
            for (block, start) in (from..to).step_by(block_bytes).enumerate() {
                take(
                    start..to.min(start + block_bytes),
                    base + block * group_block,
                );
            }
        }
    }

    /// Packs B: `rows` is [n, k] row-major, `out` the whole buffer `b`.
    ///
    /// # Errors
    /// Where either has another size.
    pub fn pack_b(&self, rows: &[u8], out: &mut [u8]) -> Result<(), SizeError> {
        let row_bytes = self.input_row_bytes();
        size(
            "b, row-major",
            u64::from(self.shape.n) * row_bytes as u64,
            rows.len(),
        )?;
        out.fill(0);
        for n in 0..self.shape.n {
            let at = n as usize * row_bytes;
            self.pack_b_row(n, &rows[at..at + row_bytes], out)?;
        }
        Ok(())
    }

    /// Calls `take(row, first column, atom)` for every 16-byte atom of the buffer `c` that holds
    /// results, parts of k one after the other. Atoms at the end of a row may reach into padding.
    ///
    /// Four rows go together: their atoms are one cache line of `c`, and each row is written in order.
    fn each_atom(&self, c: &[u8], mut take: impl FnMut(usize, usize, &[u8; ATOM])) {
        const ROWS: usize = 4;
        let atom = self.shape.kind.output_atom() as usize;
        for worker in 0..self.workers.len() {
            for tile in self.tiles(worker) {
                let range = self.c_range(tile);
                let bytes = &c[range.start as usize..range.end as usize];
                let atoms = bytes.as_chunks::<ATOM>().0;
                let (rows, cols) = (&self.rows[tile.row], &self.workers[worker][tile.col]);
                let (height, len) = (rows.padded as usize, rows.len as usize);
                for first in (0..len).step_by(ROWS) {
                    let last = len.min(first + ROWS);
                    for at in 0..(cols.len as usize).div_ceil(atom) {
                        let column = &atoms[at * height + first..at * height + last];
                        let n = cols.start as usize + at * atom;
                        for (m, atom) in column.iter().enumerate() {
                            take(rows.start as usize + first + m, n, atom);
                        }
                    }
                }
            }
        }
    }

    /// Adds the parts of a buffer `c` of 32-bit integers into `out` [m, n] row-major, which is
    /// overwritten. Sums wrap as the hardware's do.
    ///
    /// # Errors
    /// Where the kind has other results, or a size is wrong.
    pub fn sum_i32(&self, c: &[u8], out: &mut [i32]) -> Result<(), SizeError> {
        self.check_c(Precision::Int32, c, out.len())?;
        out.fill(0);
        let n = self.shape.n as usize;
        self.each_atom(c, |row, col, atom| {
            let out = &mut out[row * n + col..row * n + n.min(col + 4)];
            for (out, bytes) in out.iter_mut().zip(atom.as_chunks::<4>().0) {
                *out = out.wrapping_add(i32::from_le_bytes(*bytes));
            }
        });
        Ok(())
    }

    /// Adds the parts of a buffer `c` of any type as binary32 into `out` [m, n] row-major, which is
    /// overwritten. Parts are added in order of k.
    ///
    /// # Errors
    /// Where a size is wrong.
    pub fn sum_f32(&self, c: &[u8], out: &mut [f32]) -> Result<(), SizeError> {
        let output = self.shape.kind.output();
        self.check_c(output, c, out.len())?;
        out.fill(0.0);
        let (n, per_atom) = (
            self.shape.n as usize,
            self.shape.kind.output_atom() as usize,
        );
        let width = ATOM / per_atom;
        self.each_atom(c, |row, col, atom| {
            let out = &mut out[row * n + col..row * n + n.min(col + per_atom)];
            for (out, bytes) in out.iter_mut().zip(atom.chunks_exact(width)) {
                *out += number(output, bytes);
            }
        });
        Ok(())
    }

    fn check_c(&self, output: Precision, c: &[u8], out_len: usize) -> Result<(), SizeError> {
        let mn = u64::from(self.shape.m) * u64::from(self.shape.n);
        size("c, row-major", mn, out_len)?;
        size("c, packed", self.c_bytes(), c.len())?;
        size(
            "bits of a result",
            output.bits().into(),
            self.shape.kind.output().bits() as usize,
        )
    }
}

/// A little-endian number of a result's type.
fn number(precision: Precision, bytes: &[u8]) -> f32 {
    match (precision, bytes) {
        (Precision::Int32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as f32,
        (Precision::Fp32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (Precision::Fp16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (Precision::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        (Precision::Int16, &[a, b]) => i16::from_le_bytes([a, b]).into(),
        _ => f32::NAN,
    }
}

/// The same 16 bytes of every row of a tile; zeros beyond the matrix.
fn pack_atoms(rows: &[u8], row_bytes: usize, span: &TileSpan, from: usize, out: &mut [u8]) {
    let len = row_bytes.saturating_sub(from).min(ATOM);
    for (m, atom) in out.chunks_exact_mut(ATOM).enumerate() {
        if m >= span.len as usize || len == 0 {
            atom.fill(0);
            continue;
        }
        let at = (span.start as usize + m) * row_bytes + from;
        atom[..len].copy_from_slice(&rows[at..at + len]);
        atom[len..].fill(0);
    }
}

#[cfg(test)]
pub(crate) mod tests;
