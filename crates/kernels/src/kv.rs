//! The paged KV cache as kernels see it: element types, the layout of a page, appending rows.
//!
//! A page holds `page_tokens` consecutive positions of every KV head of one layer, for K or for V. It is self-contained, so that
//! copying a page is copying [`KvLayout::page_bytes`] bytes. Inside, a page is `[n_kv_heads][page_tokens / 16]` *tiles* of 16
//! positions. A tile of K is stored `[head_dim][16]` (scores are computed with one position a SIMD lane), a tile of V
//! `[16][head_dim]` (outputs are computed with one dimension a lane). `head_dim` is padded to a multiple of 16 in both. In
//! [`KvType::Q8_0`] the 8-bit values of a tile follow its f16 scales, one for 32 dimensions of a position: `[head_dim / 32][16]`
//! for K, `[16][head_dim / 32]` for V. Types of fewer bits have the same scales, and planes of bits instead of bytes
//! (`kv/narrow.rs`).

mod append;
mod buffer;
pub(crate) mod narrow;
mod read;
#[cfg(test)]
mod tests;

pub use append::kv_append;
pub use buffer::KvBuffer;
pub use read::kv_read;

use crate::error::Error;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Positions in a tile, the unit in which kernels walk the cache.
pub const TILE_TOKENS: usize = 16;

/// Dimensions that share a scale in [`KvType::Q8_0`].
pub(crate) const Q8_DIMS: usize = 32;

/// Largest head dimension that attention accepts.
pub const MAX_HEAD_DIM: usize = 1024;

/// K or V: which of the two tile orders a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvSide {
    /// Keys, `[head_dim][16]`.
    K,
    /// Values, `[16][head_dim]`.
    V,
}

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KvType {
    /// 32-bit floats: no rounding at all.
    F32,
    /// Half precision (values beyond ±65504 become infinite).
    #[default]
    F16,
    /// bfloat16.
    BF16,
    /// Signed bytes with one f16 scale for 32 dimensions of a position.
    Q8_0,
    /// Six bits with the same scales, of rotated rows; `head_dim` is a multiple of 32.
    Q6_0,
    /// Five bits, likewise.
    Q5_0,
    /// Four bits, likewise.
    Q4_0,
}

impl KvType {
    /// Every type.
    pub const ALL: [KvType; 7] = [
        KvType::F32,
        KvType::F16,
        KvType::BF16,
        KvType::Q8_0,
        KvType::Q6_0,
        KvType::Q5_0,
        KvType::Q4_0,
    ];

    /// The name used on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::BF16 => "bf16",
            KvType::Q8_0 => "q8_0",
            KvType::Q6_0 => "q6_0",
            KvType::Q5_0 => "q5_0",
            KvType::Q4_0 => "q4_0",
        }
    }

    /// Bits of one element, without scales.
    pub(crate) const fn elem_bits(self) -> usize {
        match self {
            KvType::F32 => 32,
            KvType::F16 | KvType::BF16 => 16,
            KvType::Q8_0 => 8,
            KvType::Q6_0 => 6,
            KvType::Q5_0 => 5,
            KvType::Q4_0 => 4,
        }
    }

    /// Bits of one element with its share of the scales, of a `head_dim` that is a multiple of 32.
    #[must_use]
    pub const fn bits_with_scales(self) -> f64 {
        let scale = match self {
            KvType::F32 | KvType::F16 | KvType::BF16 => 0.0,
            KvType::Q8_0 | KvType::Q6_0 | KvType::Q5_0 | KvType::Q4_0 => 16.0 / Q8_DIMS as f64,
        };
        self.elem_bits() as f64 + scale
    }

    /// Bytes of one element, without scales, for types whose tiles kernels multiply.
    pub(crate) const fn elem_bytes(self) -> usize {
        self.kernel_type().elem_bits() / 8
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KvType {
    type Err = Error;

    fn from_str(name: &str) -> Result<KvType, Error> {
        KvType::ALL
            .into_iter()
            .find(|kv_type| kv_type.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::UnknownKvType {
                name: name.to_owned(),
            })
    }
}

/// Shape of one layer's cache pages. K and V pages have the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Element type.
    pub dtype: KvType,
    /// KV heads of the layer.
    pub n_kv_heads: usize,
    /// Dimensions of a head, a multiple of 4.
    pub head_dim: usize,
    /// Positions in a page, a multiple of [`TILE_TOKENS`].
    pub page_tokens: usize,
}

impl KvLayout {
    /// Checks that kernels can work with the layout.
    ///
    /// # Errors
    /// [`Error::Geometry`] naming the number that does not fit.
    pub fn check(&self) -> Result<(), Error> {
        let geometry = |what, found, needs: String| Err(Error::Geometry { what, found, needs });
        if self.n_kv_heads == 0 {
            return geometry("n_kv_heads", 0, "at least one".to_owned());
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(4) || self.head_dim > MAX_HEAD_DIM {
            let needs = format!("a multiple of 4 up to {MAX_HEAD_DIM}");
            return geometry("head_dim", self.head_dim, needs);
        }
        let narrow = self.dtype.narrow_bits();
        if narrow.is_some() && !self.head_dim.is_multiple_of(Q8_DIMS) {
            let needs = format!(
                "a multiple of {Q8_DIMS} for a cache of {}; q8_0 takes any",
                self.dtype
            );
            return geometry("head_dim", self.head_dim, needs);
        }
        if self.page_tokens == 0 || !self.page_tokens.is_multiple_of(TILE_TOKENS) {
            let needs = format!("a multiple of {TILE_TOKENS}");
            return geometry("page_tokens", self.page_tokens, needs);
        }
        Ok(())
    }

    /// Bytes of a page of K, and of a page of V.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.n_kv_heads * self.tiles_per_page() * self.tile_bytes()
    }

    /// Row length of a tile of V: `head_dim` padded to whole 16-lane vectors.
    pub(crate) fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(16)
    }

    /// Scale groups of one position of one head.
    pub(crate) fn scale_blocks(&self) -> usize {
        self.head_dim.div_ceil(Q8_DIMS)
    }

    /// Bytes of scales that precede the elements of a tile.
    pub(crate) fn scale_bytes(&self) -> usize {
        match self.dtype {
            KvType::Q8_0 | KvType::Q6_0 | KvType::Q5_0 | KvType::Q4_0 => {
                TILE_TOKENS * self.scale_blocks() * 2
            }
            KvType::F32 | KvType::F16 | KvType::BF16 => 0,
        }
    }

    /// Bytes of a tile of K, and of a tile of V.
    pub(crate) fn tile_bytes(&self) -> usize {
        self.scale_bytes() + TILE_TOKENS * self.padded_dim() * self.dtype.elem_bits() / 8
    }

    pub(crate) fn tiles_per_page(&self) -> usize {
        self.page_tokens / TILE_TOKENS
    }
}

/// A sequence's part of a batch: which rows are its new tokens, and where its pages are.
#[derive(Debug, Clone)]
pub struct KvRun<'a> {
    /// Rows of q, k, v and out that belong to this sequence, in order of position.
    pub rows: Range<usize>,
    /// Position of `rows.start` in the sequence.
    pub first_pos: usize,
    /// Ids of the sequence's pages: page `i` covers the positions from
    /// `pages_first_pos + i * page_tokens`.
    pub pages: &'a [u32],
    /// Position of the first slot of `pages[0]`, a multiple of `page_tokens` (not 0 where a sliding
    /// window has dropped pages).
    pub pages_first_pos: usize,
}

impl KvRun<'_> {
    /// Byte offset in the layer's pages of the tile of `kv_head` that holds position `pos`.
    ///
    /// # Panics
    /// If no page covers `pos`.
    pub(crate) fn tile_offset(&self, layout: &KvLayout, kv_head: usize, pos: usize) -> usize {
        let slot = pos
            .checked_sub(self.pages_first_pos)
            .expect("a position before the first page");
        let page = self.pages[slot / layout.page_tokens] as usize;
        let tile = kv_head * layout.tiles_per_page() + slot % layout.page_tokens / TILE_TOKENS;
        page * layout.page_bytes() + tile * layout.tile_bytes()
    }

    /// One past the position of the run's last row.
    pub(crate) fn end_pos(&self) -> usize {
        self.first_pos + self.rows.len()
    }

    /// Panics unless the pages cover the run's positions, which is the engine's duty.
    pub(crate) fn assert_covered(&self, layout: &KvLayout, n_rows: usize) {
        assert!(
            self.rows.start <= self.rows.end && self.rows.end <= n_rows,
            "rows {:?}",
            self.rows
        );
        assert!(
            self.pages_first_pos.is_multiple_of(layout.page_tokens),
            "pages must start at a multiple of {} positions, not {}",
            layout.page_tokens,
            self.pages_first_pos
        );
        let end = self.pages_first_pos + self.pages.len() * layout.page_tokens;
        assert!(
            self.pages_first_pos <= self.first_pos && self.end_pos() <= end,
            "positions {}..{} are outside the pages' {}..{end}",
            self.first_pos,
            self.end_pos(),
            self.pages_first_pos
        );
    }
}
