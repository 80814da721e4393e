//! Panels: sixteen rows of a weight matrix, unpacked so that one vector lane holds one row. For plain numbers with AVX2 and AVX-512, a
//! lane holds one column of a row.
//!
//! A kernel is two functions. *Pack* turns [`PANEL_ROWS`] rows × one chunk of columns from the
//! file's bytes into a panel in the thread's scratch. *Tile* multiplies one or two panels with every
//! token and adds to the accumulators. The same two functions serve one token and a thousand, so the
//! order of additions behind an output element cannot depend on the batch. Within a chunk it is the
//! order of columns, and chunks are cut at fixed columns ([`PanelLayout::chunk_k`]).

use super::ahead::Ahead;
use millrace_quant::DType;

/// Rows in a panel: the f32 lanes of a 512-bit register.
pub(crate) const PANEL_ROWS: usize = 16;

/// Panels that one call of a tile function multiplies at most.
pub(crate) const GROUP_PANELS: usize = 2;

/// Rows of a group of panels; also the row stride of the accumulators.
pub(crate) const GROUP_ROWS: usize = PANEL_ROWS * GROUP_PANELS;

/// Bytes of one panel line: sixteen 32-bit lanes.
pub(crate) const LINE_BYTES: usize = 64;

/// Contents of a panel, which determine the form of the activations.
///
/// A *line* is one 32-bit lane for each of the 16 rows. Offsets of bytes and the form of integer scales are those of AVX-512 VNNI.
/// AVX2 and NEON have their own (see their tiles), with the same arithmetic on the whole numbers that they represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PanelLayout {
    /// One f32 line a column; activations f32. Columns of a chunk are summed by fused
    /// multiply-adds from zero, chunk sums are added in order.
    F32,
    /// A line of f32 for each row and 16 columns: lanes are columns; activations f32. The columns of a chunk that share a lane are
    /// summed by fused multiply-adds from zero, lanes in a fixed tree (see `float_columns`). Chunk sums are added in order.
    F32Columns,
    /// Half a line of f32 for each row and 8 columns, otherwise as [`PanelLayout::F32Columns`].
    F32Eights,
    /// A line of bf16 for each row and 32 columns; activations bf16 (nearest even). As [`PanelLayout::F32Columns`], with the
    /// pairwise dot product of AVX512-BF16.
    Bf16Columns,
    /// Blocks of 32 columns: 8 lines of unsigned bytes (4 columns a lane) that represent `byte − 128`,
    /// 1 line of f32 scales. Activations i8 with an f32 scale for each 32 columns; each block adds
    /// `fma(Σ w·q, d_w·d_x, acc)`.
    Block32,
    /// Blocks of 32 columns: 8 lines of unsigned bytes, 1 line of f32 scales, 1 line of f32 minimums.
    /// Each block adds `fma(Σ w·q, d_w·d_x, acc)` and then `fma(m_w, d_x·Σ q, acc)`.
    Block32Min,
    /// As [`PanelLayout::Block32`] with 16 lines of i16 pairs: of 4 columns the even ones in the first 8 lines, the odd ones in the others.
    Block32Wide,
    /// As [`PanelLayout::Block32`] with a second line of f32 scales, for columns 16 to 31. Each block adds the products of its first 16
    /// columns and then those of the others, with a fused multiply-add each.
    Block16,
    /// Superblocks of 256 columns with integer scales for each 16: 64 lines of unsigned bytes that
    /// represent `byte − 32`, 16 lines of i32 scales, 1 line of f32 scales. Activations i8 with an
    /// f32 scale for each 256; each superblock adds `fma(Σ s·Σ w·q, d_w·d_x, acc)`.
    Super16,
    /// Superblocks with integer scales and minimums for each 16: 64 lines of unsigned bytes, 16
    /// lines of i32 scales, 1 line of f32 scales, 1 line of negated f32 scales of the minimums, 8 lines
    /// of i16 pairs of minimums. After the products, `fma(Σ m·Σ q, −d_min·d_x, acc)`.
    Super16Min,
    /// As [`PanelLayout::Super16Min`] with scales and minimums for each 32 columns (8 and 4 lines).
    Super32Min,
    /// Superblocks of 256 columns for AMX: each level times its integer scale is `64·h + l`; 64 lines of signed bytes `h`, 64 of `l`, 1
    /// line of f32 scales. Sums and their addition are those of [`PanelLayout::Super16`].
    Planes,
    /// The same for [`PanelLayout::Super16Min`], whose lines from the f32 scales on follow.
    Planes16Min,
    /// The same for [`PanelLayout::Super32Min`].
    Planes32Min,
    /// Groups of 32 columns for AMX: 16 lines of bf16 pairs. Fused multiply-adds from zero sum the products of a group's even columns,
    /// and those of its odd columns. The sum of both is added to the output. Activations bf16.
    Bf16Tiles,
    /// As [`PanelLayout::Bf16Tiles`] with F16 weights as the sum of two bf16 numbers: 16 lines of the upper ones, which are added first,
    /// and 16 of the lower ones.
    F16Tiles,
}

impl PanelLayout {
    /// The activations that multiply such panels.
    pub(crate) fn input(self) -> Input {
        match self {
            PanelLayout::F32 | PanelLayout::F32Columns | PanelLayout::F32Eights => Input::F32,
            PanelLayout::Bf16Columns | PanelLayout::Bf16Tiles | PanelLayout::F16Tiles => {
                Input::Bf16
            }
            PanelLayout::Block32
            | PanelLayout::Block32Min
            | PanelLayout::Block32Wide
            | PanelLayout::Block16 => Input::I8x32,
            PanelLayout::Super16
            | PanelLayout::Super16Min
            | PanelLayout::Super32Min
            | PanelLayout::Planes
            | PanelLayout::Planes16Min
            | PanelLayout::Planes32Min => Input::I8x256,
        }
    }

    /// Whether it multiplies f32 with f32, so that neither side is rounded.
    #[must_use]
    pub fn is_f32(self) -> bool {
        self.input() == Input::F32
    }

    /// Columns packed at a time: two panels fit a 48 KiB first-level cache together with the tokens. Drivers cut by it, and
    /// functions with their own column buffers size them by it. They accept longer chunks all the same, part by part.
    pub(crate) const fn chunk_k(self) -> usize {
        match self {
            PanelLayout::F32 => 256,
            // Sums of lanes cost least in long chunks; of panels that long, four rows and six tokens at a time fit.
            PanelLayout::F32Columns | PanelLayout::F32Eights => 1024,
            PanelLayout::Bf16Columns => 2048,
            _ => 512,
        }
    }

    /// Columns that one unit of the panel covers; a chunk is a whole number of units.
    pub(crate) const fn unit_k(self) -> usize {
        match self {
            PanelLayout::F32 => 1,
            PanelLayout::F32Columns => 16,
            PanelLayout::F32Eights => 8,
            PanelLayout::Bf16Columns => 32,
            PanelLayout::Bf16Tiles | PanelLayout::F16Tiles => 32,
            PanelLayout::Block32
            | PanelLayout::Block32Min
            | PanelLayout::Block32Wide
            | PanelLayout::Block16 => 32,
            PanelLayout::Super16
            | PanelLayout::Super16Min
            | PanelLayout::Super32Min
            | PanelLayout::Planes
            | PanelLayout::Planes16Min
            | PanelLayout::Planes32Min => 256,
        }
    }

    /// Lines of one unit.
    pub(crate) const fn unit_lines(self) -> usize {
        match self {
            PanelLayout::F32 => 1,
            PanelLayout::F32Columns | PanelLayout::Bf16Columns => PANEL_ROWS,
            PanelLayout::F32Eights => PANEL_ROWS / 2,
            PanelLayout::Block32 => 8 + 1,
            PanelLayout::Block32Min => 8 + 1 + 1,
            PanelLayout::Block32Wide => 16 + 1,
            PanelLayout::Block16 => 8 + 2,
            PanelLayout::Super16 => 64 + 16 + 1,
            PanelLayout::Super16Min => 64 + 16 + 1 + 1 + 8,
            PanelLayout::Super32Min => 64 + 8 + 1 + 1 + 4,
            PanelLayout::Planes => 2 * 64 + 1,
            PanelLayout::Planes16Min => 2 * 64 + 1 + 1 + 8,
            PanelLayout::Planes32Min => 2 * 64 + 1 + 1 + 4,
            PanelLayout::Bf16Tiles => 16,
            PanelLayout::F16Tiles => 2 * 16,
        }
    }

    /// Bytes of one unit.
    pub(crate) const fn unit_bytes(self) -> usize {
        self.unit_lines() * LINE_BYTES
    }

    /// Bytes of a panel of `k` columns.
    pub(crate) const fn panel_bytes(self, k: usize) -> usize {
        k.div_ceil(self.unit_k()) * self.unit_bytes()
    }
}

/// The forms in which activations are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The caller's own numbers.
    F32,
    /// Rounded to bf16, an odd last column padded with zero.
    Bf16,
    /// [`X32`] records.
    I8x32,
    /// [`X256`] records.
    I8x256,
}

/// Thirty-two activations of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct X32 {
    /// `round(x / d)`, halves to even.
    pub(crate) q: [i8; 32],
    /// Largest magnitude / 127.
    pub(crate) d: f32,
    /// −128 · Σ q, which the offset of the panel's bytes adds to the dot product.
    pub(crate) offset_128: i32,
    /// d · Σ q.
    pub(crate) scaled_sum: f32,
    /// −128 · Σ q of the first 16.
    pub(crate) first_offset_128: i32,
}

impl X32 {
    /// −128 · Σ q of part `s` of `PARTS`, which is 1 or 2.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "other architectures have signed dot products")
    )]
    #[inline(always)]
    pub(crate) fn offset<const PARTS: usize>(&self, s: usize) -> i32 {
        match (PARTS, s) {
            (1, _) => self.offset_128,
            (_, 0) => self.first_offset_128,
            _ => self.offset_128 - self.first_offset_128,
        }
    }
}

/// 256 activations of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct X256 {
    /// `round(x / d)`, halves to even.
    pub(crate) q: [i8; 256],
    /// −32 · Σ q over each 16.
    pub(crate) offset_32: [i32; 16],
    /// Σ q over each 16.
    pub(crate) sums_16: [i16; 16],
    /// Σ q over each 32.
    pub(crate) sums_32: [i16; 8],
    /// Largest magnitude / 127.
    pub(crate) d: f32,
    /// Which sums of products may exceed an i16.
    pub(crate) wide: Wide,
    /// Keeps the next record's fields aligned.
    pub(crate) pad: [u32; 2],
}

/// A bit for each group of columns of an [`X256`] whose dot product with weights of some levels may exceed an i16. Few do;
/// the others apply their scale with a cheaper multiplication, which gives the same exact result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Wide {
    /// Groups of sixteen, with levels −32…31: 32 · Σ |q| exceeds an i16.
    pub(crate) six_bits: u16,
    /// Groups of thirty-two, with levels 0…31: 32 times the sum of the positive or of the negative q exceeds it.
    pub(crate) five_bits: u16,
}

impl Wide {
    /// From Σ |q| and Σ q over each sixteen.
    #[inline(always)]
    pub(crate) fn new(magnitudes_16: &[i16; 16], sums_16: &[i16; 16]) -> Wide {
        let mut six_bits = 0;
        for (j, magnitude) in magnitudes_16.iter().enumerate() {
            six_bits |= u16::from(*magnitude > i16::MAX / 32) << j;
        }
        let mut five_bits = 0;
        let pairs = magnitudes_16.as_chunks::<2>().0.iter();
        for (j, (m, s)) in pairs.zip(sums_16.as_chunks::<2>().0).enumerate() {
            // The larger of the sums of one sign.
            let one_sign = (m[0] + m[1] + (s[0] + s[1]).abs()) / 2;
            five_bits |= u16::from(one_sign > i16::MAX / 31) << j;
        }
        Wide {
            six_bits,
            five_bits,
        }
    }
}

/// Sixteen rows of a weight matrix, one chunk of columns of each.
#[derive(Clone, Copy)]
pub(crate) struct PanelSource {
    /// Format of the bytes.
    pub(crate) dtype: DType,
    /// First block of the chunk in the panel's first row; the tile of a tiled format.
    pub(crate) base: *const u8,
    /// Bytes from a row to the next; of a tiled format, from a tile to the next in the same rows.
    pub(crate) stride: usize,
    /// Row of the panel in its tile; 0 unless the format is tiled.
    pub(crate) tile_row: usize,
    /// Columns of the chunk: whole blocks.
    pub(crate) k: usize,
    /// Bytes to fetch meanwhile.
    pub(crate) ahead: Ahead,
}

impl PanelSource {
    /// `k` of the columns from column `first` on, both whole blocks. The prefetch covers the same part of its rows.
    pub(crate) fn columns(&self, first: usize, k: usize) -> PanelSource {
        let bytes_of = |k: usize| k / self.dtype.block_elems() * self.dtype.block_bytes();
        let (at, ahead) = if self.dtype.block_rows() == 1 {
            let at = bytes_of(first);
            (at, self.ahead.part(at, bytes_of(k)))
        } else {
            // Tiles in place of rows, and a part of each.
            let tile = first / self.dtype.block_elems();
            (tile * self.stride, self.ahead.rows_from(tile))
        };
        PanelSource {
            base: self.base.wrapping_add(at),
            k,
            ahead,
            ..*self
        }
    }
}

/// Arguments of a pack function.
pub(crate) struct PackArgs {
    /// The source to pack.
    pub(crate) source: PanelSource,
    /// Where the panel goes, 64-byte aligned, [`PanelLayout::panel_bytes`] long.
    pub(crate) panel: *mut u8,
}

/// Packs one panel.
///
/// # Safety
/// The CPU has the row's level; the source's `base` and `stride` reach [`PANEL_ROWS`] rows (or the tiles) of `k` columns in `dtype`;
/// `panel` is as [`PackArgs::panel`] says and has no other user.
pub(crate) type PackFn = unsafe fn(args: &PackArgs);

/// Arguments of a tile function.
pub(crate) struct TileArgs {
    /// The panels, `panel_stride` bytes apart, 64-byte aligned.
    pub(crate) panels: *const u8,
    /// Bytes from a panel to the next.
    pub(crate) panel_stride: usize,
    /// 1 or 2.
    pub(crate) n_panels: usize,
    /// Columns of the chunk.
    pub(crate) k: usize,
    /// Activations of the first token at the first column of the chunk.
    pub(crate) x: *const u8,
    /// Bytes from a token to the next.
    pub(crate) x_stride: usize,
    /// Tokens.
    pub(crate) m: usize,
    /// `[m, GROUP_ROWS]` f32, 64-byte aligned: the sums of earlier chunks.
    pub(crate) acc: *mut f32,
}

/// Multiplies panels with every token.
///
/// # Safety
/// The CPU has the row's level; panels were packed in the row's layout with the same `k`; `x` reaches `m` rows of `k` columns
/// in the layout's input form; `acc` is as [`TileArgs::acc`] says and has no other user.
pub(crate) type TileFn = unsafe fn(args: &TileArgs);

/// Arguments of a direct function.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "other architectures have no direct functions")
)]
pub(crate) struct DirectArgs {
    /// The source to multiply.
    pub(crate) source: PanelSource,
    /// Activations of the first token at the first column of the chunk.
    pub(crate) x: *const u8,
    /// Bytes from a token to the next.
    pub(crate) x_stride: usize,
    /// Tokens: 1 to [`DIRECT_TOKENS`]; of layouts by columns, any number.
    pub(crate) m: usize,
    /// `[m, GROUP_ROWS]` f32, the panel's first lane, 64-byte aligned: the sums of earlier chunks.
    pub(crate) acc: *mut f32,
}

/// Multiplies a source with a few tokens without a panel in between. Each accumulator gets the same operations as with pack and
/// tile, in the same order.
///
/// # Safety
/// As [`PackFn`] and [`TileFn`].
pub(crate) type DirectFn = unsafe fn(args: &DirectArgs);

/// Arguments of a rows function.
pub(crate) struct RowsArgs {
    /// First row; of a tiled format, first row of tiles.
    pub(crate) base: *const u8,
    /// Bytes from a row, or a row of tiles, to the next.
    pub(crate) row_bytes: usize,
    /// Rows, at least one; of a tiled format, whole tiles.
    pub(crate) n: usize,
    /// Columns.
    pub(crate) k: usize,
    /// Activations of the token.
    pub(crate) x: *const u8,
    /// `[n]` f32, overwritten.
    pub(crate) out: *mut f32,
}

/// Multiplies whole rows with one token. Each sum gets the same operations as with pack and tile, in the same order.
///
/// # Safety
/// The CPU has the row's level; `base` and `row_bytes` reach `n` rows of `k` columns; `x` has `k` columns in the layout's input form;
/// `out` has no other user.
pub(crate) type RowsFn = unsafe fn(args: &RowsArgs);

/// Most tokens that a direct function takes: beyond it, loading lines again costs less than unpacking with few registers.
pub(crate) const DIRECT_TOKENS: usize = 8;

/// The token that slot `i` of a register tile of more than `m` slots multiplies. Slots beyond the last token repeat
/// it, and their results are dropped.
#[inline(always)]
pub(crate) fn slot(i: usize, m: usize) -> usize {
    if i < m { i } else { m - 1 }
}

/// Tokens for the next register tile: full tiles while many are left, then equal ones.
pub(crate) fn tile_tokens(left: usize, most: usize) -> usize {
    left.div_ceil(left.div_ceil(most))
}
