//! The four conversions, in and out: of flat runs of blocks, and of matrices.
//!
//! Size checks happen here, once; a format's own functions get whole blocks and matching slices.

use std::ops::Range;

use crate::{DType, Error};

/// Decodes a flat run of whole blocks.
///
/// `bytes`: n blocks of [`DType::block_bytes`]; `out`: n · [`DType::block_elems`] numbers.
///
/// # Errors
/// [`Error::Bytes`] or [`Error::Elements`] if the slices are not n blocks each, [`Error::Tiled`]
/// for Q4NX.
pub fn decode_blocks(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    check_flat(dtype, bytes.len(), out.len(), GivenSlice::Bytes)?;
    (dtype.format().decode)(bytes, out);
    Ok(())
}

/// Encodes a flat run of numbers into whole blocks: the inverse of [`decode_blocks`].
///
/// # Errors
/// [`Error::Bytes`] or [`Error::Elements`] if the slices are not n blocks each, [`Error::Tiled`]
/// for Q4NX.
pub fn encode_blocks(dtype: DType, src: &[f32], out: &mut [u8]) -> Result<(), Error> {
    check_flat(dtype, out.len(), src.len(), GivenSlice::Elements)?;
    (dtype.format().encode)(src, None, out);
    Ok(())
}

/// Decodes some rows of a matrix of any format.
///
/// `bytes`: the whole matrix `[n_rows, k]`; `out`: `[rows.len(), k]`, row-major. Of a tiled format
/// only the tiles that hold these rows are decoded.
///
/// # Errors
/// [`Error::Shape`], [`Error::Bytes`], [`Error::Rows`] or [`Error::Elements`], whichever does not
/// fit.
pub fn decode_rows(
    dtype: DType,
    bytes: &[u8],
    n_rows: usize,
    k: usize,
    rows: Range<usize>,
    out: &mut [f32],
) -> Result<(), Error> {
    check_matrix(dtype, bytes.len(), n_rows, k)?;
    if rows.start > rows.end || rows.end > n_rows {
        return Err(Error::Rows {
            start: rows.start,
            end: rows.end,
            n_rows,
        });
    }
    check_elements(dtype, rows.len() * k, out.len())?;
    if dtype.is_tiled() {
        decode_tiled(dtype, bytes, k, rows, out);
    } else {
        let row_bytes = k / dtype.block_elems() * dtype.block_bytes();
        let bytes = &bytes[rows.start * row_bytes..rows.end * row_bytes];
        (dtype.format().decode)(bytes, out);
    }
    Ok(())
}

/// Encodes a whole matrix into any format.
///
/// `src`: `[n_rows, k]`, row-major; `out`: [`DType::size_bytes`] bytes. A range of rows that starts
/// and ends on a multiple of [`DType::block_rows`] may be encoded as a separate matrix: its bytes
/// are the same.
///
/// # Errors
/// [`Error::Shape`], [`Error::Bytes`] or [`Error::Elements`], whichever does not fit.
pub fn encode_matrix(
    dtype: DType,
    src: &[f32],
    n_rows: usize,
    k: usize,
    out: &mut [u8],
) -> Result<(), Error> {
    encode_rows(dtype, src, n_rows, k, None, out)
}

/// As [`encode_matrix`], with the importance of columns: by how much an error in each counts.
///
/// `importance`: k numbers of any size, such as the mean squares of the inputs that the matrix multiplies
/// (llama.cpp's "importance matrix"). The k-quants, IQ*, TQ*, Q1_0, Q2_0 and NVFP4 search with it; other formats
/// ignore it.
///
/// # Errors
/// As [`encode_matrix`]; [`Error::Importance`] for another length, negative numbers, infinities and NaN.
pub fn encode_rows(
    dtype: DType,
    src: &[f32],
    n_rows: usize,
    k: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), Error> {
    check_matrix(dtype, out.len(), n_rows, k)?;
    let expected = n_rows
        .checked_mul(k)
        .ok_or(Error::Shape { dtype, n_rows, k })?;
    check_elements(dtype, expected, src.len())?;
    let encode = dtype.format().encode;
    let weights = match importance {
        Some(importance) => weights_of(importance, k)?,
        None => None,
    };
    match weights {
        _ if dtype.is_tiled() => encode_tiled(dtype, src, k, out),
        None => encode(src, None, out),
        Some(weights) => {
            let row_bytes = out.len() / n_rows.max(1);
            let rows = src.chunks_exact(k).zip(out.chunks_exact_mut(row_bytes));
            rows.for_each(|(row, out)| encode(row, Some(&weights), out));
        }
    }
    Ok(())
}

/// Importances in the form that searches need: around one, and far enough above zero that squares of sums are too. `None`
/// if none is above zero, because columns then do not differ.
fn weights_of(importance: &[f32], k: usize) -> Result<Option<Vec<f32>>, Error> {
    const LEAST: f64 = 1e-4;
    const MOST: f64 = 1e6;
    let is_wrong = |v: &f32| !(v.is_finite() && *v >= 0.0);
    let wrong = importance.iter().position(is_wrong);
    if importance.len() != k || wrong.is_some() {
        let at = wrong.unwrap_or(importance.len().saturating_sub(1));
        return Err(Error::Importance {
            k,
            found: importance.len(),
            at,
            value: importance.get(at).map(f32::to_string).unwrap_or_default(),
        });
    }
    let sum: f64 = importance.iter().map(|v| f64::from(*v)).sum();
    if sum <= 0.0 {
        return Ok(None);
    }
    let scale = k as f64 / sum;
    let weight = |v: &f32| (f64::from(*v) * scale).clamp(LEAST, MOST) as f32;
    Ok(Some(importance.iter().map(weight).collect()))
}

fn decode_tiled(dtype: DType, bytes: &[u8], k: usize, rows: Range<usize>, out: &mut [f32]) {
    let (tile_rows, tile_cols) = (dtype.block_rows(), dtype.block_elems());
    let tiles_across = k.div_ceil(tile_cols);
    let mut tile = vec![0.0; tile_rows * tile_cols];
    let mut row = rows.start;
    while row < rows.end {
        let tile_row = row / tile_rows;
        let end = rows.end.min((tile_row + 1) * tile_rows);
        for tile_col in 0..tiles_across {
            let at = (tile_row * tiles_across + tile_col) * dtype.block_bytes();
            (dtype.format().decode)(&bytes[at..at + dtype.block_bytes()], &mut tile);
            let cols = tile_cols.min(k - tile_col * tile_cols);
            for r in row..end {
                let to = (r - rows.start) * k + tile_col * tile_cols;
                let from = (r % tile_rows) * tile_cols;
                out[to..to + cols].copy_from_slice(&tile[from..from + cols]);
            }
        }
        row = end;
    }
}

fn encode_tiled(dtype: DType, src: &[f32], k: usize, out: &mut [u8]) {
    let (tile_rows, tile_cols) = (dtype.block_rows(), dtype.block_elems());
    let tiles_across = k.div_ceil(tile_cols);
    let mut tile = vec![0.0; tile_rows * tile_cols];
    for (i, block) in out.chunks_exact_mut(dtype.block_bytes()).enumerate() {
        let (tile_row, tile_col) = (i / tiles_across, i % tiles_across);
        let cols = tile_cols.min(k - tile_col * tile_cols);
        for (r, to) in tile.chunks_exact_mut(tile_cols).enumerate() {
            let from = (tile_row * tile_rows + r) * k + tile_col * tile_cols;
            to[..cols].copy_from_slice(&src[from..from + cols]);
            to[cols..].fill(0.0);
        }
        (dtype.format().encode)(&tile, None, block);
    }
}

/// Which of the two slices of a flat run is given; the other must match it.
enum GivenSlice {
    Bytes,
    Elements,
}

fn check_flat(
    dtype: DType,
    n_bytes: usize,
    n_elems: usize,
    given: GivenSlice,
) -> Result<(), Error> {
    let (block_bytes, block_elems) = (dtype.block_bytes(), dtype.block_elems());
    if dtype.is_tiled() {
        return Err(Error::Tiled { dtype });
    }
    match given {
        GivenSlice::Bytes => {
            let whole = n_bytes / block_bytes;
            check_bytes(dtype, whole * block_bytes, n_bytes)?;
            check_elements(dtype, whole * block_elems, n_elems)
        }
        GivenSlice::Elements => {
            let whole = n_elems / block_elems;
            check_elements(dtype, whole * block_elems, n_elems)?;
            check_bytes(dtype, whole * block_bytes, n_bytes)
        }
    }
}

fn check_matrix(dtype: DType, n_bytes: usize, n_rows: usize, k: usize) -> Result<(), Error> {
    let expected = dtype
        .size_bytes(n_rows, k)
        .ok_or(Error::Shape { dtype, n_rows, k })?;
    check_bytes(dtype, expected, n_bytes)
}

fn check_bytes(dtype: DType, expected: usize, found: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Bytes {
        dtype,
        expected,
        found,
    })
}

fn check_elements(dtype: DType, expected: usize, found: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Elements {
        dtype,
        expected,
        found,
    })
}
