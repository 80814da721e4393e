//! One file a format, and the code that several of them share.
//!
//! A format's file exports its [`Format`]: the shape of a block and the two functions over runs of
//! blocks. Byte layouts are those of ggml's `block_*` structures, little-endian; the reference for
//! values is the Python package `gguf`, whose arithmetic order the decoders keep, so that results
//! agree bit for bit.

use half::f16 as Half;

use crate::MAX_MAGNITUDE;

pub(crate) mod codebook;
mod k_scales;

/// Declares the formats' files, [`DType`] and [`TABLE`] of rows `file: Variant = CONSTANT`; a file may hold several.
macro_rules! formats {
    ($($file:ident: $($(#[$doc:meta])* $variant:ident = $format:ident),+;)+) => {
        $(pub(crate) mod $file;)+

        /// A number format in which a weight tensor can be stored.
        ///
        /// A matrix is `[n_rows, k]`, row-major. Most formats cut each row into blocks of
        /// [`DType::block_elems`] neighbouring elements; the two Q4NX readings cut the matrix into tiles of
        /// [`DType::block_rows`] rows by [`DType::block_elems`] columns, tiles row-major.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // The names are the documentation; shapes are in each format's file.
        pub enum DType {
            $($($(#[$doc])* $variant,)+)+
        }

        impl DType {
            /// Every format, in declaration order.
            pub const ALL: &'static [DType] = &[$($(DType::$variant,)+)+];
        }

        /// The formats, in the order of the enum.
        ///
        /// A constant and not a static. Kernels of other crates compute with a format's shape, and only a value that
        /// is known where they are compiled becomes part of their instructions.
        pub(crate) const TABLE: &[Format; DType::ALL.len()] = &[$($($file::$format,)+)+];
    };
}

// The one list of formats: everything else about a format is in its file, and other lists follow from both.
formats! {
    f32: F32 = FORMAT;
    f16: F16 = FORMAT;
    bf16: BF16 = FORMAT;
    q4_0: Q4_0 = FORMAT;
    q4_1: Q4_1 = FORMAT;
    q5_0: Q5_0 = FORMAT;
    q5_1: Q5_1 = FORMAT;
    q8_0: Q8_0 = FORMAT;
    q8_1: Q8_1 = FORMAT;
    q2_k: Q2K = FORMAT;
    q3_k: Q3K = FORMAT;
    q4_k: Q4K = FORMAT;
    q5_k: Q5K = FORMAT;
    q6_k: Q6K = FORMAT;
    q8_k: Q8K = FORMAT;
    iq4_nl: Iq4Nl = FORMAT;
    iq4_xs: Iq4Xs = FORMAT;
    iq3_xxs: Iq3Xxs = FORMAT;
    iq3_s: Iq3S = FORMAT;
    iq2_xxs: Iq2Xxs = FORMAT;
    iq2_xs: Iq2Xs = FORMAT;
    iq2_s: Iq2S = FORMAT;
    iq1_s: Iq1S = FORMAT;
    iq1_m: Iq1M = FORMAT;
    tq1_0: Tq1_0 = FORMAT;
    tq2_0: Tq2_0 = FORMAT;
    q1_0: Q1_0 = FORMAT;
    q2_0: Q2_0 = FORMAT;
    nvfp4: Nvfp4 = FORMAT;
    mxfp4: Mxfp4 = FORMAT;
    mxfp4_ollama: Mxfp4Ollama = FORMAT;
    q4nx:
        /// Q4NX, additive reading: `w = scale·q + min`.
        Q4nx = ADDITIVE,
        /// Q4NX, the older subtractive reading: `w = scale·(q − zero)`.
        Q4nxSub = SUBTRACTIVE;
}

/// A format: names, numbers, a block's shape, and how blocks become numbers and back.
pub(crate) struct Format {
    /// ggml's spelling in lower case.
    pub(crate) name: &'static str,
    /// Rows of the matrix in a block.
    pub(crate) block_rows: usize,
    /// Elements of one row in a block: a divisor of 256.
    pub(crate) block_elems: usize,
    /// Bytes of a block.
    pub(crate) block_bytes: usize,
    /// Decodes n blocks. A block of several rows decodes to its rows one after the other.
    pub(crate) decode: fn(&[u8], &mut [f32]),
    /// Encodes n blocks, elements in the order that `decode` gives. An importance, one weight of positive size an element, is
    /// used by the formats whose encoders search.
    pub(crate) encode: fn(&[f32], Option<&[f32]>, &mut [u8]),
    /// See [`DType::error_budget`].
    pub(crate) error_budget: f64,
    /// See [`DType::gguf_type`].
    pub(crate) gguf_type: Option<u32>,
    /// See [`DType::safetensors_name`].
    pub(crate) safetensors_name: Option<&'static str>,
    /// See [`DType::file_types`].
    pub(crate) file_types: &'static [FileType],
    /// See [`DType::narrower`].
    pub(crate) narrower: DType,
    /// See [`DType::has_coarse_scales`].
    pub(crate) has_coarse_scales: bool,
    /// See [`DType::needs_importance`].
    pub(crate) needs_importance: bool,
}

/// A kind of file whose matrices are mostly of one format, as llama.cpp names and numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    /// `Q4_K_M`.
    pub name: &'static str,
    /// `general.file_type` of GGUF files (`enum llama_ftype`); `None` where GGUF has no number.
    pub number: Option<u32>,
}

impl FileType {
    const fn new(name: &'static str, number: Option<u32>) -> FileType {
        FileType { name, number }
    }
}

/// Pairs each block's bytes with its elements, for decoding.
fn decode_each<const BYTES: usize, const ELEMS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; ELEMS]),
) {
    let (blocks, _) = bytes.as_chunks();
    let (outs, _) = out.as_chunks_mut();
    for (block, out) in blocks.iter().zip(outs) {
        decode(block, out);
    }
}

/// Pairs each block's elements with its bytes, for encoding; `encode` gets only finite numbers of
/// at most [`MAX_MAGNITUDE`].
fn encode_each<const BYTES: usize, const ELEMS: usize>(
    src: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; ELEMS], &mut [u8; BYTES]),
) {
    encode_weighted(src, None, out, |x, _, block| encode(x, block));
}

/// As [`encode_each`], with the importance of each element.
fn encode_weighted<const BYTES: usize, const ELEMS: usize>(
    src: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
    encode: impl Fn(&[f32; ELEMS], Option<&[f32; ELEMS]>, &mut [u8; BYTES]),
) {
    let (sources, _) = src.as_chunks::<ELEMS>();
    let (blocks, _) = out.as_chunks_mut();
    let importance = importance.map(|of| of.as_chunks::<ELEMS>().0);
    for (i, (x, block)) in sources.iter().zip(blocks).enumerate() {
        let importance = importance.and_then(|of| of.get(i));
        if x.iter().fold(true, |ok, v| ok & (v.abs() <= MAX_MAGNITUDE)) {
            encode(x, importance, block);
        } else {
            encode(&x.map(to_storable), importance, block);
        }
    }
}

fn to_storable(v: f32) -> f32 {
    if v.is_nan() {
        0.0
    } else {
        v.clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE)
    }
}

fn get_f16(block: &[u8], at: usize) -> f32 {
    Half::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn put_f16(block: &mut [u8], at: usize, v: f32) {
    block[at..at + 2].copy_from_slice(&Half::from_f32(v).to_le_bytes());
}

/// 1 / d, or 0 where that is not finite: with so small a scale all numbers are stored as zeros.
fn reciprocal(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// The first element of largest magnitude, with its sign.
pub(crate) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(
        0.0,
        |best: f32, &v| if v.abs() > best.abs() { v } else { best },
    )
}

/// The smallest and the largest element.
pub(crate) fn range(x: &[f32]) -> (f32, f32) {
    x.iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| {
            (lo.min(v), hi.max(v))
        })
}

/// Nearest integer, halves away from zero, for |v| < 2³¹. (`f32::round` is a library call on
/// baseline x86-64.)
fn round_half_away(v: f32) -> i32 {
    let whole = v as i32;
    let rest = v - whole as f32;
    whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)
}

/// Splits 16 bytes into 32 elements: low nibbles are the first half, high nibbles the second.
fn unpack_nibbles(packed: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| packed[i % 16] >> (4 * (i / 16)) & 0x0F)
}

/// The inverse of [`unpack_nibbles`]; bits above the low four of an element are dropped.
fn pack_nibbles(q: &[u8; 32], packed: &mut [u8]) {
    for (j, byte) in packed.iter_mut().enumerate() {
        *byte = q[j] & 0x0F | q[j + 16] << 4;
    }
}

/// Bit 4 of each of 32 five-bit elements, element i in bit i.
fn fifth_bits(q: &[u8; 32]) -> u32 {
    q.iter()
        .enumerate()
        .fold(0, |bits, (i, q)| bits | u32::from(q >> 4 & 1) << i)
}
