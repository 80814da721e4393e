//! Errors: only sizes can be wrong, since every byte pattern of the right size decodes.

use crate::DType;

/// Why bytes could not be decoded or numbers encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The matrix does not divide into the format's blocks, or its size overflows.
    #[error(
        "a matrix of {n_rows} rows by {k} columns does not divide into {dtype} blocks of {} by {}",
        dtype.block_rows(), dtype.block_elems()
    )]
    Shape {
        /// The format asked for.
        dtype: DType,
        /// Rows of the matrix.
        n_rows: usize,
        /// Elements of a row.
        k: usize,
    },
    /// The byte slice is not as long as the elements need.
    #[error("{dtype} data holds {found} bytes where {expected} are needed")]
    Bytes {
        /// The format asked for.
        dtype: DType,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The number slice is not as long as the blocks need.
    #[error("a buffer of {found} elements was given where {dtype} data needs {expected}")]
    Elements {
        /// The format asked for.
        dtype: DType,
        /// Elements that the blocks or the rows hold.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// The importance of columns has another length, or an invalid number.
    #[error(
        "the importance of {k} columns has {found} numbers, number {at} being {value}: one finite number not below zero \
         is needed for each column"
    )]
    Importance {
        /// Columns of the matrix.
        k: usize,
        /// Numbers given.
        found: usize,
        /// The first invalid number, or the last one.
        at: usize,
        /// That number, as text; empty if none is given.
        value: String,
    },
    /// Rows outside the matrix were asked for.
    #[error("rows {start}..{end} were asked of a matrix of {n_rows} rows")]
    Rows {
        /// First row asked for.
        start: usize,
        /// One past the last row asked for.
        end: usize,
        /// Rows of the matrix.
        n_rows: usize,
    },
    /// The format's blocks span several rows, so a flat run of blocks has no row order.
    #[error(
        "{dtype} blocks span {} rows: use the matrix functions, which know the row length",
        dtype.block_rows()
    )]
    Tiled {
        /// The format asked for.
        dtype: DType,
    },
}
