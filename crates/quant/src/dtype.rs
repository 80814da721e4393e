//! The table of number formats: names, block shapes and sizes.

use crate::formats::{self, Format};

/// Columns of a tile that share a scale.
pub const TILE_GROUP: usize = 32;

/// A number format in which a weight tensor can be stored.
///
/// A matrix is `[n_rows, k]`, row-major. Most formats cut each row into blocks of
/// [`DType::block_elems`] neighbouring elements; the two Q4NX readings cut the matrix into tiles of
/// [`DType::block_rows`] rows by [`DType::block_elems`] columns, tiles row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The names are the documentation; shapes are in each format's file.
pub enum DType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    Iq4Nl,
    Mxfp4,
    /// Q4NX, additive reading: `w = scale·q + min`.
    Q4nx,
    /// Q4NX, the older subtractive reading: `w = scale·(q − zero)`.
    Q4nxSub,
}

struct Row {
    dtype: DType,
    name: &'static str,
    format: Format,
}

const fn row(dtype: DType, name: &'static str, format: Format) -> Row {
    Row {
        dtype,
        name,
        format,
    }
}

/// One row a format, in the order of the enum. Shapes and functions live in the format's own file.
///
/// A constant and not a static: kernels of other crates compute with a format's shape, and only what is known where they
/// are compiled becomes part of their instructions.
const TABLE: &[Row; 19] = &[
    row(DType::F32, "f32", formats::f32::FORMAT),
    row(DType::F16, "f16", formats::f16::FORMAT),
    row(DType::BF16, "bf16", formats::bf16::FORMAT),
    row(DType::Q4_0, "q4_0", formats::q4_0::FORMAT),
    row(DType::Q4_1, "q4_1", formats::q4_1::FORMAT),
    row(DType::Q5_0, "q5_0", formats::q5_0::FORMAT),
    row(DType::Q5_1, "q5_1", formats::q5_1::FORMAT),
    row(DType::Q8_0, "q8_0", formats::q8_0::FORMAT),
    row(DType::Q8_1, "q8_1", formats::q8_1::FORMAT),
    row(DType::Q2K, "q2_k", formats::q2_k::FORMAT),
    row(DType::Q3K, "q3_k", formats::q3_k::FORMAT),
    row(DType::Q4K, "q4_k", formats::q4_k::FORMAT),
    row(DType::Q5K, "q5_k", formats::q5_k::FORMAT),
    row(DType::Q6K, "q6_k", formats::q6_k::FORMAT),
    row(DType::Q8K, "q8_k", formats::q8_k::FORMAT),
    row(DType::Iq4Nl, "iq4_nl", formats::iq4_nl::FORMAT),
    row(DType::Mxfp4, "mxfp4", formats::mxfp4::FORMAT),
    row(DType::Q4nx, "q4nx", formats::q4nx::ADDITIVE),
    row(DType::Q4nxSub, "q4nx_sub", formats::q4nx::SUBTRACTIVE),
];

impl DType {
    /// Every format, in declaration order.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.dtype)
    }

    #[inline]
    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    pub(crate) fn codec(self) -> &'static Format {
        &self.row().format
    }

    /// The worst relative root-mean-square error of encoding standard normal data and decoding it:
    /// the format's constant in [`crate::budget`].
    pub fn error_budget(self) -> f64 {
        self.row().format.budget
    }

    /// ggml's spelling in lower case: `q4_k`, `bf16`, `q4nx`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The format with that name, in any case.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))
            .map(|row| row.dtype)
    }

    /// Rows of the matrix that share a block: 1, or 32 for Q4NX.
    #[inline]
    pub const fn block_rows(self) -> usize {
        self.row().format.block_rows
    }

    /// Elements of one row in a block.
    #[inline]
    pub const fn block_elems(self) -> usize {
        self.row().format.block_elems
    }

    /// Bytes of a block.
    #[inline]
    pub const fn block_bytes(self) -> usize {
        self.row().format.block_bytes
    }

    /// Whether the format stores one plain number an element.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// Bytes of a matrix `[n_rows, k]`, or `None` if the shape does not divide into blocks or the
    /// size overflows. Tiles may reach beyond the last column, by whole groups of one scale.
    pub fn size_bytes(self, n_rows: usize, k: usize) -> Option<usize> {
        let stored = self.stored_width(k);
        if !stored.is_multiple_of(self.block_elems()) || !n_rows.is_multiple_of(self.block_rows()) {
            return None;
        }
        let blocks = (stored / self.block_elems()).checked_mul(n_rows / self.block_rows())?;
        blocks.checked_mul(self.block_bytes())
    }

    /// Columns that a matrix of `k` columns is stored with: in tiles up to the end of the last one where `k` is
    /// a multiple of [`TILE_GROUP`], otherwise `k`. Those beyond `k` are zeros.
    pub fn stored_width(self, k: usize) -> usize {
        match self.block_rows() > 1 && k.is_multiple_of(TILE_GROUP) {
            true => k
                .div_ceil(self.block_elems())
                .saturating_mul(self.block_elems()),
            false => k,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_enum_order_and_names_parse_back() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.dtype as usize, i);
            assert_eq!(DType::from_name(row.name), Some(row.dtype));
        }
    }
}
