//! One tensor from one format to another, in pieces of rows, on several threads.

use std::ops::Range;

use millrace_quant::{DType, decode_rows, encode_rows};

use super::Error;
use super::merge::Addend;
use super::transform::Transform;

/// Elements that a thread works on at a time: 4 MB of f32.
const PIECE_ELEMS: usize = 1 << 20;

/// Takes the next bytes of a tensor and the elements they hold.
pub(super) type Out<'a> = dyn FnMut(&[u8], usize) -> Result<(), Error> + 'a;

/// The work on one tensor.
pub(super) struct EncodeJob<'a> {
    /// The tensor's name in the source, for messages.
    pub(super) tensor: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) from: DType,
    pub(super) to: DType,
    /// Rows that the bytes have.
    pub(super) n: usize,
    /// The rows to write.
    pub(super) rows: Range<usize>,
    pub(super) k: usize,
    /// Factor on the rows, before they are transformed.
    pub(super) factor: f32,
    /// Terms that adapters add to the rows, before that factor.
    pub(super) addends: &'a [Addend<'a>],
    pub(super) transform: Transform,
    /// Weight of an error in each column, `[k]`.
    pub(super) importance: Option<&'a [f32]>,
}

impl EncodeJob<'_> {
    /// Writes the rows to `out` in order.
    pub(super) fn run(&self, n_threads: usize, out: &mut Out<'_>) -> Result<(), Error> {
        if self.from == self.to
            && self.transform == Transform::NONE
            && self.addends.is_empty()
            && self.factor == 1.0
            && let Some(bytes) = self.bytes_of_rows()
        {
            return self.copy(bytes, out);
        }
        let mut start = self.rows.start;
        while start < self.rows.end {
            let pieces = self.pieces(start, n_threads);
            let encoded: Vec<Result<Vec<u8>, Error>> = std::thread::scope(|scope| {
                let (last, others) = pieces.split_last().expect("rows are left, so pieces are");
                let spawn = |rows: &Range<usize>| {
                    let rows = rows.clone();
                    scope.spawn(move || self.encode(rows))
                };
                let handles: Vec<_> = others.iter().map(spawn).collect();
                let last = self.encode(last.clone());
                let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
                    handle
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                handles.into_iter().map(join).chain([last]).collect()
            });
            for (bytes, rows) in encoded.into_iter().zip(&pieces) {
                out(&bytes?, rows.len() * self.k)?;
                start = rows.end;
            }
        }
        Ok(())
    }

    /// The bytes of these rows, where each row occupies whole bytes.
    fn bytes_of_rows(&self) -> Option<&[u8]> {
        if self.rows == (0..self.n) {
            return Some(self.bytes);
        }
        let at = |row: usize| self.from.size_bytes(row, self.k);
        (self.from.block_rows() == 1)
            .then(|| self.bytes.get(at(self.rows.start)?..at(self.rows.end)?))?
    }

    fn copy(&self, bytes: &[u8], out: &mut Out<'_>) -> Result<(), Error> {
        let n_elems = self.rows.len() * self.k;
        let mut done = 0;
        for (i, piece) in bytes.chunks(4 * PIECE_ELEMS).enumerate() {
            let copied = i * 4 * PIECE_ELEMS + piece.len();
            let elems = (copied as u128 * n_elems as u128 / bytes.len() as u128) as usize;
            out(piece, elems - done)?;
            done = elems;
        }
        Ok(())
    }

    /// The next rows for up to `n_threads` threads, in ranges that neither cut a block of either
    /// format nor a head that is permuted.
    fn pieces(&self, start: usize, n_threads: usize) -> Vec<Range<usize>> {
        let group = lcm(
            lcm(self.from.block_rows(), self.to.block_rows()),
            self.transform.row_group(),
        );
        let rows = (PIECE_ELEMS / self.k.max(1)).max(1).next_multiple_of(group);
        (0..n_threads.max(1))
            .map(|i| start + i * rows)
            .take_while(|&first| first < self.rows.end)
            .map(|first| first..self.rows.end.min(first + rows))
            .collect()
    }

    /// The rows as numbers, transformed.
    pub(super) fn numbers(&self, rows: Range<usize>) -> Result<Vec<f32>, Error> {
        let first = rows.start;
        let mut numbers = vec![0.0; rows.len() * self.k];
        let decoded = decode_rows(
            self.from,
            self.bytes,
            self.n,
            self.k,
            rows.clone(),
            &mut numbers,
        );
        decoded.map_err(|source| self.quant(source))?;
        for addend in self.addends {
            addend.add(rows.clone(), self.k, &mut numbers);
        }
        if self.factor != 1.0 {
            numbers.iter_mut().for_each(|number| *number *= self.factor);
        }
        self.check(&numbers, first)?;
        self.transform.apply(&mut numbers, self.k);
        Ok(numbers)
    }

    fn quant(&self, source: millrace_quant::Error) -> Error {
        Error::Quant {
            tensor: self.tensor.to_owned(),
            source,
        }
    }

    fn encode(&self, rows: Range<usize>) -> Result<Vec<u8>, Error> {
        let quant = |source| self.quant(source);
        let numbers = self.numbers(rows.clone())?;
        let shape = millrace_quant::Error::Shape {
            dtype: self.to,
            n_rows: rows.len(),
            k: self.k,
        };
        let size_bytes = self
            .to
            .size_bytes(rows.len(), self.k)
            .ok_or_else(|| quant(shape))?;
        let mut encoded = vec![0; size_bytes];
        let (n_rows, k, importance) = (rows.len(), self.k, self.importance);
        encode_rows(self.to, &numbers, n_rows, k, importance, &mut encoded).map_err(quant)?;
        Ok(encoded)
    }

    /// Refuses numbers that the result could not hold.
    fn check(&self, numbers: &[f32], first_row: usize) -> Result<(), Error> {
        let limit = if self.to == DType::F16 {
            F16_OVERFLOW
        } else {
            f32::INFINITY
        };
        if numbers
            .iter()
            .fold(true, |sound, v| sound & (v.abs() < limit))
        {
            return Ok(());
        }
        let Some(at) = numbers.iter().position(|v| v.is_nan() || v.abs() >= limit) else {
            return Ok(());
        };
        let (tensor, found) = (self.tensor.to_owned(), numbers[at]);
        let (row, column) = (first_row + at / self.k, at % self.k);
        Err(match found.is_finite() {
            true => Error::F16Range {
                tensor,
                row,
                column,
                found,
            },
            false => Error::NotFinite {
                tensor,
                row,
                column,
                found,
            },
        })
    }
}

/// The least magnitude that F16 rounds to infinity.
const F16_OVERFLOW: f32 = 65520.0;

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::transform::{Permutation, RowOrder};

    fn bytes_of(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn run(job: &EncodeJob<'_>, n_threads: usize) -> Result<(Vec<u8>, usize), Error> {
        let (mut bytes, mut n_elems) = (Vec::new(), 0);
        job.run(n_threads, &mut |piece, elems| {
            bytes.extend_from_slice(piece);
            n_elems += elems;
            Ok(())
        })?;
        Ok((bytes, n_elems))
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bytes() {
        // Rows so long that a piece is one group of rows.
        let (n, k) = (160, 1 << 15);
        let numbers: Vec<f32> = (0..n * k).map(|i| (i as f32 * 0.7).sin()).collect();
        let bytes = bytes_of(&numbers);
        let permutation = Some(Permutation {
            head_dim: 80,
            n_rot: 80,
            order: RowOrder::Interleave,
        });
        let job = EncodeJob {
            tensor: "t",
            bytes: &bytes,
            from: DType::F32,
            to: DType::Q8_0,
            n,
            rows: 0..n,
            k,
            transform: Transform {
                permutation,
                ..Transform::NONE
            },
            importance: None,
            addends: &[],
            factor: 1.0,
        };
        let (one, n_elems) = run(&job, 1).unwrap();
        assert_eq!(n_elems, n * k);
        assert_eq!(one.len(), DType::Q8_0.size_bytes(n, k).unwrap());
        for n_threads in [2, 3, 7] {
            assert!(
                run(&job, n_threads).unwrap().0 == one,
                "{n_threads} threads"
            );
        }
    }

    #[test]
    fn equal_formats_are_copied_byte_by_byte() {
        let bytes: Vec<u8> = (0..144 * 6).map(|i| i as u8).collect();
        let job = EncodeJob {
            tensor: "t",
            bytes: &bytes,
            from: DType::Q4K,
            to: DType::Q4K,
            n: 3,
            rows: 0..3,
            k: 512,
            transform: Transform::NONE,
            importance: None,
            addends: &[],
            factor: 1.0,
        };
        assert_eq!(run(&job, 2).unwrap(), (bytes, 3 * 512));
    }

    #[test]
    fn numbers_that_the_result_cannot_hold_are_named() {
        let mut numbers = vec![0.5f32; 8 * 32];
        numbers[5 * 32 + 7] = 70000.0;
        let bytes = bytes_of(&numbers);
        let job = |bytes, to| EncodeJob {
            tensor: "t",
            bytes,
            from: DType::F32,
            to,
            n: 8,
            rows: 0..8,
            k: 32,
            transform: Transform::NONE,
            importance: None,
            addends: &[],
            factor: 1.0,
        };
        assert!(run(&job(&bytes, DType::BF16), 1).is_ok());
        let error = run(&job(&bytes, DType::F16), 1).unwrap_err();
        assert!(
            matches!(
                error,
                Error::F16Range {
                    row: 5,
                    column: 7,
                    ..
                }
            ),
            "{error}"
        );
        numbers[5 * 32 + 7] = f32::NAN;
        let bytes = bytes_of(&numbers);
        let error = run(&job(&bytes, DType::Q8_0), 1).unwrap_err();
        assert!(
            matches!(
                error,
                Error::NotFinite {
                    row: 5,
                    column: 7,
                    ..
                }
            ),
            "{error}"
        );
    }
}
