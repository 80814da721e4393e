//! Codebook, ternary and small-block formats: a block is unpacked to bytes, which the tiles of 32-column blocks multiply.
//!
//! A format is an [`Unpack`] in a file of `levels/`. From it come the panels of all levels of x86-64, and one token's products.

mod codebook;
mod small;
mod ternary;

pub(crate) use codebook::{Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
pub(crate) use small::{Nvfp4, Q1_0, Q2_0};
pub(crate) use ternary::{Iq1M, Iq1S, Tq1_0, Tq2_0};

use super::direct::through_panel;
use super::lines::{HALF_LINE, HALF_ROWS, load_f16, load_rows, store, store_ps};
use super::reduce::{sum_halves_i16, sum_halves_i32, sum_i16, sum_i32};
use super::tile_i8x32;
use crate::matmul::PanelLayout;
use crate::matmul::ahead::lines_a_step;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PANEL_ROWS, PackArgs, TileFn, X32};
use millrace_quant::DType;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// A format whose weights are signed bytes times a scale for each 32 or each 16 columns.
pub(crate) trait Unpack {
    /// The format.
    const DTYPE: DType;
    /// Scales of 32 columns: 1 or 2.
    const SCALES: usize;
    /// Subtracted from each byte to get its level. If it is 0, bytes are magnitudes with separate signs.
    const OFFSET: u8;
    /// Largest byte.
    const LARGEST: u8;
    /// The common part of eight rows' scales of a block.
    type Header: Copy;

    /// Reads it.
    ///
    /// # Safety
    /// The CPU has AVX2 and F16C; `block` reaches a block in eight rows, `stride` bytes apart.
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header;

    /// The scales of columns `32j..32j + 32` in eight rows, a lane each. A format with one scale returns it twice.
    ///
    /// # Safety
    /// As [`Unpack::header`], which gave `header`; the block has these columns.
    unsafe fn scales(
        header: Self::Header,
        block: *const u8,
        stride: usize,
        j: usize,
    ) -> [__m256; 2];

    /// The levels of columns `32j..32j + 32` of one row.
    ///
    /// # Safety
    /// The CPU has AVX2; `block` is a block, which has these columns.
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels;
}

/// A format whose blocks have one scale. It is an [`Unpack`].
pub(crate) trait OneScale {
    /// As [`Unpack::DTYPE`].
    const DTYPE: DType;
    /// As [`Unpack::OFFSET`].
    const OFFSET: u8;
    /// As [`Unpack::LARGEST`].
    const LARGEST: u8;
    /// Where a block has its scale, an f16.
    const SCALE_AT: usize;

    /// As [`Unpack::levels`].
    ///
    /// # Safety
    /// As [`Unpack::levels`].
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels;
}

impl<F: OneScale> Unpack for F {
    const DTYPE: DType = F::DTYPE;
    const SCALES: usize = 1;
    const OFFSET: u8 = F::OFFSET;
    const LARGEST: u8 = F::LARGEST;
    type Header = __m256;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> __m256 {
        // SAFETY: forwarded.
        unsafe { load_f16(block.add(F::SCALE_AT), stride) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(d: __m256, _: *const u8, _: usize, _: usize) -> [__m256; 2] {
        [d; 2]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe { <F as OneScale>::levels(block, j) }
    }
}

/// Levels of 32 columns of a row.
#[derive(Clone, Copy)]
pub(crate) struct BlockLevels {
    /// Levels plus [`Unpack::OFFSET`], or their magnitudes where that is 0.
    bytes: __m256i,
    /// Where these are magnitudes, ones in the bytes of negative levels.
    negative: __m256i,
}

impl BlockLevels {
    /// Levels of a format with an offset.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn unsigned(bytes: __m256i) -> BlockLevels {
        BlockLevels {
            bytes,
            negative: _mm256_setzero_si256(),
        }
    }

    /// Σ byte·q of two neighbours in each i16, with the signs of levels. The contribution of the offset of `F` is included.
    ///
    /// Pairs of products fit: 2 · 127 · 127.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs<F: Unpack>(self, q: __m256i) -> __m256i {
        let q = if F::OFFSET == 0 {
            negate(q, self.negative)
        } else {
            q
        };
        _mm256_maddubs_epi16(self.bytes, q)
    }

    /// Levels plus `OFFSET`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn plus<F: Unpack, const OFFSET: u8>(self) -> __m256i {
        if F::OFFSET == 0 {
            let offset = _mm256_set1_epi8(OFFSET.cast_signed());
            return _mm256_add_epi8(negate(self.bytes, self.negative), offset);
        }
        let more = _mm256_set1_epi8((OFFSET - F::OFFSET).cast_signed());
        _mm256_add_epi8(self.bytes, more)
    }
}

/// Negates the bytes that `negative` has ones for.
#[inline]
#[target_feature(enable = "avx2")]
fn negate(v: __m256i, negative: __m256i) -> __m256i {
    _mm256_sub_epi8(_mm256_xor_si256(v, negative), negative)
}

/// Whether any four pairs of products add up to an i16.
const fn is_narrow(largest: u8) -> bool {
    4 * 2 * 127 * (largest as i32) <= i16::MAX as i32
}

/// Packs levels plus `OFFSET`: [`PanelLayout::Block32`], or [`PanelLayout::Block16`] of a format with two scales.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn pack<F: Unpack, const OFFSET: u8>(args: &PackArgs) {
    const { assert!(OFFSET >= F::OFFSET && (F::OFFSET > 0 || OFFSET >= F::LARGEST)) };
    let source = &args.source;
    let (parts, bytes) = const { (F::DTYPE.block_elems() / 32, F::DTYPE.block_bytes()) };
    let unit_bytes = const { layout(F::SCALES).unit_bytes() };
    let mut ahead = source.ahead;
    for b in 0..source.k / (32 * parts) {
        for half in 0..2 {
            // SAFETY: block `b` of each row and its units of the panel exist.
            unsafe {
                let block = source
                    .base
                    .add(half * HALF_ROWS * source.stride + b * bytes);
                let header = F::header(block, source.stride);
                for j in 0..parts {
                    ahead.fetch(lines_a_step(F::DTYPE, 2 * parts));
                    let unit = args.panel.add((b * parts + j) * unit_bytes);
                    let line = |i: usize| unit.add(i * LINE_BYTES + half * HALF_LINE);
                    put_levels::<F, OFFSET>(block, source.stride, j, line(0));
                    let scales = F::scales(header, block, source.stride, j);
                    for (i, d) in scales.into_iter().enumerate().take(F::SCALES) {
                        store_ps(line(8 + i), d);
                    }
                }
            }
        }
    }
}

/// The layout of a format with that many scales for 32 columns.
pub(crate) const fn layout(scales: usize) -> PanelLayout {
    if scales == 1 {
        PanelLayout::Block32
    } else {
        PanelLayout::Block16
    }
}

/// Levels of half a panel's rows.
#[repr(align(32))]
struct HalfLevels(MaybeUninit<[[u8; 32]; HALF_ROWS]>);

/// Writes the halves of eight lines, from `first` on: columns `32j..32j + 32` of eight rows' levels, plus `OFFSET`.
///
/// # Safety
/// As [`Unpack::levels`], for eight rows; the lines are writable and aligned.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn put_levels<F: Unpack, const OFFSET: u8>(
    block: *const u8,
    stride: usize,
    j: usize,
    first: *mut u8,
) {
    let mut levels = HalfLevels(MaybeUninit::uninit());
    let levels = levels.0.as_mut_ptr().cast::<u8>();
    // SAFETY: forwarded; all rows are written before they are read.
    unsafe {
        for r in 0..HALF_ROWS {
            let of_row = F::levels(block.add(r * stride), j);
            store(levels.add(32 * r), of_row.plus::<F, OFFSET>());
        }
        for side in 0..2 {
            let lines = load_rows(levels.add(16 * side), 32);
            for (i, v) in lines.into_iter().enumerate() {
                store(first.add((4 * side + i) * LINE_BYTES), v);
            }
        }
    }
}

/// Multiplies with a few tokens; `OFFSET` is that of the panels' tile.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn direct<F: Unpack, const OFFSET: u8>(args: &DirectArgs) {
    let tile: TileFn = const {
        match (OFFSET, F::SCALES) {
            (12, 1) => tile_i8x32::tile_e2m1,
            (12, _) => tile_i8x32::tile_e2m1_twice,
            (16, 1) => tile_i8x32::tile_five,
            (64, 1) => tile_i8x32::tile_seven,
            (64, _) => tile_i8x32::tile_seven_twice,
            _ => panic!("no tile has this offset"),
        }
    };
    // SAFETY: forwarded.
    unsafe { one_or_few::<F, OFFSET>(args, tile) }
}

/// One token by [`direct_row`], more through panels.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`]; `tile` is that of panels with the offset and the format's scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn one_or_few<F: Unpack, const OFFSET: u8>(args: &DirectArgs, tile: TileFn) {
    // SAFETY: forwarded.
    unsafe {
        match args.m {
            1 => direct_row::<F>(args),
            _ => through_panel(args, layout(F::SCALES), pack::<F, OFFSET>, tile),
        }
    }
}

/// One token: lanes are columns until the whole-number sums of a block are transposed so that a lane is a row. Those sums are
/// exact, so the accumulators receive the same bits as from the tiles.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn direct_row<F: Unpack>(args: &DirectArgs) {
    let source = &args.source;
    let (parts, bytes) = const { (F::DTYPE.block_elems() / 32, F::DTYPE.block_bytes()) };
    for first in (0..PANEL_ROWS).step_by(HALF_ROWS) {
        // SAFETY: forwarded: sixteen rows of the chunk's blocks, as many records, sixteen accumulators.
        unsafe {
            let mut acc = _mm256_load_ps(args.acc.add(first));
            for b in 0..source.k / (32 * parts) {
                let block = source.base.add(first * source.stride + b * bytes);
                for r in 0..HALF_ROWS {
                    for line in 0..bytes.div_ceil(LINE_BYTES) {
                        let at = b * bytes + line * LINE_BYTES;
                        source.ahead.fetch_at(first + r, at);
                    }
                }
                let header = F::header(block, source.stride);
                for j in 0..parts {
                    let x = &*args.x.cast::<X32>().add(b * parts + j);
                    let d_x = _mm256_set1_ps(x.d);
                    let sums = sums::<F>(block, source.stride, j, x);
                    let scales = F::scales(header, block, source.stride, j);
                    for (sum, d) in sums.into_iter().zip(scales).take(F::SCALES) {
                        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, d_x), acc);
                    }
                }
            }
            _mm256_store_ps(args.acc.add(first), acc);
        }
    }
}

/// Σ w·q of columns `32j..32j + 32` in each of eight rows, or of both halves of them for a format with two scales.
///
/// # Safety
/// As [`Unpack::levels`], for eight rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sums<F: Unpack>(block: *const u8, stride: usize, j: usize, x: &X32) -> [__m256i; 2] {
    let zero = _mm256_setzero_si256();
    let mut rows = [zero; HALF_ROWS];
    // A loop and no closure: calls in it must be inlined into it.
    for (r, products) in rows.iter_mut().enumerate() {
        // SAFETY: forwarded.
        let pairs = unsafe {
            let q = _mm256_loadu_si256(x.q.as_ptr().cast());
            F::levels(block.add(r * stride), j).pairs::<F>(q)
        };
        *products = if is_narrow(F::LARGEST) {
            pairs
        } else {
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        };
    }
    let sums = match (is_narrow(F::LARGEST), F::SCALES) {
        (true, 1) => [sum_i16(rows), zero],
        (true, _) => sum_halves_i16(rows),
        (false, 1) => [sum_i32(rows), zero],
        (false, _) => sum_halves_i32(rows),
    };
    if F::OFFSET == 0 {
        return sums;
    }
    // −128 · Σ q is a multiple of the offset's contribution.
    let offset = i32::from(F::OFFSET);
    let (first, second) = if F::SCALES == 1 {
        (x.offset::<1>(0), 0)
    } else {
        (x.offset::<2>(0), x.offset::<2>(1))
    };
    [
        _mm256_add_epi32(sums[0], _mm256_set1_epi32(first / 128 * offset)),
        _mm256_add_epi32(sums[1], _mm256_set1_epi32(second / 128 * offset)),
    ]
}

/// `d · (2·code + 1)`, `code` being the bits of `mask` in each lane shifted right by `shift`.
#[inline]
#[target_feature(enable = "avx2")]
fn times_odd(d: __m256, codes: __m256i, shift: usize, mask: i32) -> __m256 {
    let code = _mm256_srl_epi32(codes, _mm_cvtsi32_si128(shift as i32));
    let code = _mm256_and_si256(code, _mm256_set1_epi32(mask));
    let odd = _mm256_add_epi32(_mm256_add_epi32(code, code), _mm256_set1_epi32(1));
    _mm256_mul_ps(d, _mm256_cvtepi32_ps(odd))
}

/// A byte of ones for each bit that is set, in the order of bits.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_bits(bits: u32) -> __m256i {
    let order = _mm256_setr_epi64x(
        0,
        0x0101_0101_0101_0101,
        0x0202_0202_0202_0202,
        0x0303_0303_0303_0303,
    );
    let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), order);
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, own), own)
}
