//! E2M1 in pairs of a byte, with a scale for each 16 or 32 columns: NVFP4 and MXFP4.
//!
//! | scales | columns of a scale | becomes |
//! |---|---|---|
//! | E4M3, and a number for the whole matrix | 16 | NVFP4, with the number beside it as `<name>.scale` |
//! | E8M0 | 32 | MXFP4 |
//!
//! Both are exact: codes and scales keep their bits and are rearranged. Rows that are not whole blocks become F16,
//! where products are rounded to 11 bits, or BF16 where F16 cannot hold them.

use millrace_quant::DType;

use super::float8::{self, float_type};
use super::integers::encoded;
use super::stored::{CodePart, CodePlace, StoredTensors, power_of_two};
use super::{FoundMatrix, PackedSource, PackedTensor};
use crate::Error;
use crate::checkpoint::FileBytes;

/// Columns of a scale of NVFP4, and of its blocks.
const NV_GROUP: usize = 16;
const NV_BLOCK: usize = 64;
/// Columns of a scale of MXFP4.
const MX_GROUP: usize = 32;

/// Magnitudes of E2M1 (OCP Microscaling Formats 1.0, table 5).
const LEVELS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// A matrix `[n, k]` of E2M1.
pub(super) struct PackedPairs {
    n: usize,
    k: usize,
    /// Column `2i` is in the low half of byte `i`.
    codes: CodePlace,
    /// A byte a group, E4M3 without sign or E8M0.
    scales: CodePlace,
    kind: PairScales,
    dtype: DType,
}

/// Number format of scales.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PairScales {
    /// E4M3 for each [`NV_GROUP`] columns, times this number for all.
    Nv(f32),
    /// E8M0 for each [`MX_GROUP`] columns.
    Mx,
}

impl PairScales {
    fn group(self) -> usize {
        match self {
            PairScales::Nv(_) => NV_GROUP,
            PairScales::Mx => MX_GROUP,
        }
    }

    /// The block format for rows that are whole blocks, and its length.
    fn block(self) -> (DType, usize) {
        match self {
            PairScales::Nv(_) => (DType::Nvfp4, NV_BLOCK),
            PairScales::Mx => (DType::Mxfp4, MX_GROUP),
        }
    }
}

/// Name that quantisers give the number for a whole matrix, and whether it divides.
#[derive(Clone, Copy)]
pub(super) struct WholeScale {
    pub(super) suffix: &'static str,
    pub(super) divides: bool,
}

/// The matrix `name` whose codes these are. Scales of E4M3 have a number for the whole matrix beside them.
pub(super) fn find(
    stored: &StoredTensors<'_>,
    codes: CodePart<'_>,
    name: &str,
    whole: WholeScale,
) -> Result<FoundMatrix, Error> {
    let [n, n_bytes] = codes.matrix()?;
    let k = 2 * n_bytes;
    let expected = format!("scales [{n}, groups] of type F8_E4M3, U8 or F8_E8M0");
    let scales = stored.require(&format!("{name}_scale"), codes.info, expected)?;
    if let Some(zeros) = stored.get(&format!("{name}_zero_point")) {
        return Err(zeros.wrong("no zero points of 4-bit floats".into(), "some".into()));
    }
    let mut others = vec![scales.info.name.clone()];
    let kind = match scales.is_float8() {
        true => {
            let name = format!("{name}_{}", whole.suffix);
            let part = stored.require(&name, codes.info, "a number of the matrix".into())?;
            others.push(name);
            PairScales::Nv(factor(&part, whole.divides)?)
        }
        false => PairScales::Mx,
    };
    let group = kind.group();
    if !k.is_multiple_of(group) || k == 0 {
        let expected = format!("rows of a multiple of {group} codes, two a byte");
        return Err(codes.wrong(expected, format!("{n_bytes} bytes a row")));
    }
    scales.check_shape(&[n, k / group])?;
    let place = match kind {
        PairScales::Nv(_) => scales.checked_bytes("numbers without sign", |byte| byte < 0x7f)?,
        PairScales::Mx => scales.exponents()?,
    };
    let pairs = PackedPairs::new([n, k], (codes.place(), place), kind, stored.files());
    Ok(FoundMatrix {
        name: name.to_owned(),
        codes: codes.info.name.clone(),
        others,
        tensor: PackedTensor::new(PackedSource::Pairs(pairs)),
    })
}

/// The number for a whole matrix, as a factor.
fn factor(part: &CodePart<'_>, divides: bool) -> Result<f32, Error> {
    let numbers = part.numbers()?;
    match numbers[..] {
        [number] if number.is_finite() && number > 0.0 && number.recip().is_finite() => {
            Ok(if divides { number.recip() } else { number })
        }
        _ => Err(part.wrong("one positive number".into(), format!("{numbers:?}"))),
    }
}

impl PackedPairs {
    /// `k` is a multiple of the scales' group.
    fn new(
        [n, k]: [usize; 2],
        (codes, scales): (CodePlace, CodePlace),
        kind: PairScales,
        files: &[FileBytes],
    ) -> PackedPairs {
        let (blocks, block) = kind.block();
        let mut pairs = PackedPairs {
            n,
            k,
            codes,
            scales,
            kind,
            dtype: blocks,
        };
        if !k.is_multiple_of(block) {
            let scales = pairs.scales.bytes(files).iter();
            // The greatest code is 6.
            let max = scales.map(|byte| 6.0 * pairs.scale(*byte));
            pairs.dtype = float_type(max.fold(0.0, f32::max));
        }
        pairs
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        vec![self.n, self.k]
    }

    pub(super) fn n(&self) -> usize {
        self.n
    }

    pub(super) fn codes<'a>(&self, files: &'a [FileBytes]) -> &'a [u8] {
        self.codes.bytes(files)
    }

    pub(super) fn scales<'a>(&self, files: &'a [FileBytes]) -> &'a [u8] {
        self.scales.bytes(files)
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn set_dtype(&mut self, dtype: DType) {
        self.dtype = dtype;
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.dtype.size_bytes(1, self.k).unwrap_or(0)
    }

    /// The factor on all blocks, if they do not hold it.
    pub(super) fn factor(&self) -> Option<f32> {
        match (self.kind, self.dtype) {
            (PairScales::Nv(factor), DType::Nvfp4) => Some(factor),
            _ => None,
        }
    }

    /// A scale with all of its factors.
    fn scale(&self, byte: u8) -> f32 {
        match self.kind {
            PairScales::Nv(factor) => float8::value(byte) * factor,
            PairScales::Mx => power_of_two(byte),
        }
    }

    /// Decodes rows from `first` on; `out` is whole rows.
    pub(super) fn decode(&self, codes: &[u8], scales: &[u8], first: usize, out: &mut [u8]) {
        let n_groups = self.k / self.kind.group();
        let rows = out.chunks_exact_mut(self.row_bytes().max(1));
        for (row, out) in (first..).zip(rows) {
            let codes = &codes[row * self.k / 2..][..self.k / 2];
            let scales = &scales[row * n_groups..][..n_groups];
            match self.dtype {
                DType::Nvfp4 => nv_row(codes, scales, out),
                DType::Mxfp4 => mx_row(codes, scales, out),
                _ => out.copy_from_slice(&encoded(self.dtype, &self.numbers(codes, scales))),
            }
        }
    }

    /// One number an element.
    fn numbers(&self, codes: &[u8], scales: &[u8]) -> Vec<f32> {
        let groups = codes.chunks_exact(self.kind.group() / 2).zip(scales);
        let numbers = groups.flat_map(|(codes, scale)| {
            let scale = self.scale(*scale);
            let pair = |byte: &u8| [byte & 15, byte >> 4].map(|code| scale * level(code));
            codes.iter().flat_map(pair).collect::<Vec<f32>>()
        });
        numbers.collect()
    }
}

/// The number of a code: a sign, 2 bits of exponent, 1 of mantissa.
fn level(code: u8) -> f32 {
    let size = LEVELS[usize::from(code & 7)];
    if code & 8 == 0 { size } else { -size }
}

/// Blocks of four scales, and four times eight bytes: element `i` low and `i + 8` high.
fn nv_row(codes: &[u8], scales: &[u8], out: &mut [u8]) {
    let (codes, _) = codes.as_chunks::<{ NV_BLOCK / 2 }>();
    let (scales, _) = scales.as_chunks::<{ NV_BLOCK / NV_GROUP }>();
    let (blocks, _) = out.as_chunks_mut::<36>();
    for ((out, codes), scales) in blocks.iter_mut().zip(codes).zip(scales) {
        out[..4].copy_from_slice(scales);
        let groups = codes.as_chunks::<{ NV_GROUP / 2 }>().0.iter();
        for (out, codes) in out[4..].chunks_exact_mut(NV_GROUP / 2).zip(groups) {
            halves(codes, out);
        }
    }
}

/// Blocks of a scale, and 16 bytes: element `i` low and `i + 16` high.
fn mx_row(codes: &[u8], scales: &[u8], out: &mut [u8]) {
    let (codes, _) = codes.as_chunks::<{ MX_GROUP / 2 }>();
    let (blocks, _) = out.as_chunks_mut::<17>();
    for ((out, codes), scale) in blocks.iter_mut().zip(codes).zip(scales) {
        out[0] = *scale;
        halves(codes, &mut out[1..]);
    }
}

/// Neighbours in a byte become elements half a group apart.
fn halves(codes: &[u8], out: &mut [u8]) {
    let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
    let half = out.len();
    for (i, out) in out.iter_mut().enumerate() {
        *out = code(i) | code(i + half) << 4;
    }
}
