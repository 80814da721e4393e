//! Properties of a format: names, numbers, block shapes and sizes, read from the table of formats.

use crate::formats::{DType, FileType, Format, TABLE};

/// Columns of a tile that share a scale.
pub const TILE_GROUP: usize = 32;

impl DType {
    /// Every format, in declaration order.
    pub fn all() -> impl Iterator<Item = DType> {
        DType::ALL.iter().copied()
    }

    #[inline]
    pub(crate) const fn format(self) -> &'static Format {
        &TABLE[self as usize]
    }

    /// The worst relative root-mean-square error, `sqrt(Σ(decoded − x)² / Σx²)`, of encoding standard normal data and
    /// decoding it. Tests hold every encoder to it from both sides: it is not exceeded, and exceeds the error by at most a
    /// tenth.
    pub fn error_budget(self) -> f64 {
        self.format().error_budget
    }

    /// ggml's spelling in lower case: `q4_k`, `bf16`, `q4nx`.
    pub fn name(self) -> &'static str {
        self.format().name
    }

    /// The format with that name, in any case.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::all().find(|dtype| dtype.name().eq_ignore_ascii_case(name))
    }

    /// Number of the format in ggml's `enum ggml_type`, as GGUF files have it; `None` if it has none.
    pub fn gguf_type(self) -> Option<u32> {
        self.format().gguf_type
    }

    /// The format with that number.
    pub fn from_gguf_type(number: u32) -> Option<DType> {
        DType::all().find(|dtype| dtype.gguf_type() == Some(number))
    }

    /// Name of the format in headers of safetensors files; `None` if it has none there.
    pub fn safetensors_name(self) -> Option<&'static str> {
        self.format().safetensors_name
    }

    /// The format with that name, in the case used by headers.
    pub fn from_safetensors_name(name: &str) -> Option<DType> {
        DType::all().find(|dtype| dtype.safetensors_name() == Some(name))
    }

    /// The kinds of files whose matrices are mostly of this format; none for formats of activations.
    pub fn file_types(self) -> &'static [FileType] {
        self.format().file_types
    }

    /// Whether ggml uses it only for activations beside other blocks, never for weights.
    pub fn is_for_activations(self) -> bool {
        self.file_types().is_empty()
    }

    /// The format for a matrix whose rows do not divide into this one's blocks, if they divide into those
    /// of the narrower one (llama.cpp, `tensor_type_fallback`). Where they do not, F16 is used.
    pub fn narrower(self) -> DType {
        self.format().narrower
    }

    /// Whether scales are so coarse, powers of two or with three bits of mantissa, that the error depends on the size of the
    /// numbers.
    pub fn has_coarse_scales(self) -> bool {
        self.format().has_coarse_scales
    }

    /// Whether models become useless in this format unless [`crate::encode_rows`] gets the importance of columns. ggml
    /// refuses to encode without it; here the code that quantises a model refuses.
    pub fn needs_importance(self) -> bool {
        self.format().needs_importance
    }

    /// Rows of the matrix that share a block: 1, or 32 for Q4NX.
    #[inline]
    pub const fn block_rows(self) -> usize {
        self.format().block_rows
    }

    /// Elements of one row in a block.
    #[inline]
    pub const fn block_elems(self) -> usize {
        self.format().block_elems
    }

    /// Bytes of a block.
    #[inline]
    pub const fn block_bytes(self) -> usize {
        self.format().block_bytes
    }

    /// Whether the format stores one plain number an element.
    pub fn is_float(self) -> bool {
        self.block_elems() == 1
    }

    /// Whether blocks are tiles of several rows.
    pub fn is_tiled(self) -> bool {
        self.block_rows() > 1
    }

    /// Bits that an element takes, with its part of the scales.
    pub fn bits_per_element(self) -> f64 {
        8.0 * self.block_bytes() as f64 / (self.block_rows() * self.block_elems()) as f64
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

    /// Stored columns of a matrix of `k` columns: in tiles up to the end of the last one where `k` is a
    /// multiple of [`TILE_GROUP`], otherwise `k`. Those beyond `k` are zeros.
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

    /// Names and numbers of every kind identify a format: no two formats share one.
    #[test]
    fn names_and_numbers_lead_back_to_the_format() {
        for dtype in DType::all() {
            assert_eq!(DType::ALL[dtype as usize], dtype);
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            if let Some(number) = dtype.gguf_type() {
                assert_eq!(DType::from_gguf_type(number), Some(dtype), "{dtype}");
            }
            if let Some(name) = dtype.safetensors_name() {
                assert_eq!(DType::from_safetensors_name(name), Some(dtype), "{dtype}");
            }
        }
        let files = || DType::all().flat_map(DType::file_types);
        for file in files() {
            let same = |other: &&FileType| {
                other.name == file.name || (file.number.is_some() && other.number == file.number)
            };
            assert_eq!(files().filter(same).count(), 1, "{}", file.name);
            assert_eq!(file.name, file.name.to_uppercase());
        }
    }

    /// Block shapes that code relies on if it goes over columns by 256, and over blocks of one row or of tiles.
    #[test]
    fn blocks_have_shapes_that_everything_can_cut() {
        for dtype in DType::all() {
            let (rows, elems) = (dtype.block_rows(), dtype.block_elems());
            assert!(elems.is_power_of_two() && elems <= 256, "{dtype}");
            assert!(rows == 1 || (rows, elems) == (32, 256), "{dtype}");
            assert!(dtype.block_bytes() > 0, "{dtype}");
            assert!(dtype.narrower().narrower().narrower().is_float(), "{dtype}");
            let is_sum = dtype.bits_per_element() <= 32.0;
            assert!(
                is_sum && (dtype.error_budget() > 0.0 || dtype == DType::F32),
                "{dtype}"
            );
        }
        assert_eq!(DType::from_name("q9_k"), None);
        assert_eq!(DType::from_gguf_type(u32::MAX), None);
    }
}
