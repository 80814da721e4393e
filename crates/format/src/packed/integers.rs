//! Integers with a scale and a zero point a group: `w = scale · (code − zero)`.
//!
//! Where a group is whole blocks of 32 neighbours, the result is exact as far as F16 can hold the scale:
//!
//! | bits | zero points | becomes | code |
//! |---|---|---|---|
//! | 4 | all 8 | Q4_0 | as it is |
//! | 4 | others | Q5_0 | `code − zero + 16` |
//! | 8 | all 128 | Q8_0 | `code − 128` |
//!
//! F16 holds all scales of type F16, and those of type BF16 from 2⁻¹⁴ on; those of type F32 are rounded to 11 bits.
//! Everything else becomes F16, each weight rounded to 11 bits. That is 8 bits with other zero points, columns whose
//! groups are not neighbours (`desc_act`), groups that are not a multiple of 32. Scales that F16 cannot hold turn the
//! matrix into BF16.

use millrace_quant::{DType, encode_matrix};

use super::codes::Codes;
use super::stored::StoredNumbers;
use crate::checkpoint::FileBytes;

/// Elements of the result's blocks.
const BLOCK: usize = 32;
/// The greatest finite F16.
const F16_MAX: f32 = 65_504.0;
/// The least F16 with all its digits.
const F16_NORMAL: f32 = 6.103_515_6e-5;

/// Rows whose codes are unpacked together.
const TILE_ROWS: usize = 64;

/// Zero points, one for each row and group.
#[derive(Clone, Debug)]
pub(super) enum Zeros {
    /// The middle of the codes' range.
    Middle,
    /// A matrix `[n, n_groups]`.
    Stored {
        codes: Codes,
        /// Whether each is one more than the stored number, within the codes' bits.
        minus_one: bool,
    },
}

/// The group of each column.
#[derive(Clone, Debug)]
pub(super) enum Groups {
    /// This many neighbours each.
    Even(usize),
    /// A list.
    Listed(Vec<u32>),
}

/// A packed matrix `[n, k]`.
pub(super) struct PackedIntegers {
    parts: IntegerParts,
    dtype: DType,
}

/// The parts of the matrix.
pub(super) struct IntegerParts {
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) codes: Codes,
    pub(super) scales: StoredNumbers,
    /// Whether scales have the order `[n_groups, n]`, and not `[n, n_groups]`.
    pub(super) scales_by_group: bool,
    pub(super) zeros: Zeros,
    pub(super) n_groups: usize,
    pub(super) groups: Groups,
}

/// Scales and zero points of all rows, `[n, n_groups]`.
pub(super) struct GroupTable {
    scales: Vec<f32>,
    zeros: Vec<u8>,
    /// The scales, F16.
    steps: Vec<u8>,
}

impl PackedIntegers {
    /// Chooses the format, which requires reading scales and zero points.
    pub(super) fn new(parts: IntegerParts, files: &[FileBytes]) -> PackedIntegers {
        let scales = parts.scales(files);
        let max = scales.iter().fold(0f32, |max, scale| max.max(scale.abs()));
        let max_code = ((1u32 << parts.codes.bits) - 1) as f32;
        let fits =
            max * max_code <= F16_MAX && (max >= F16_NORMAL || max == 0.0 || parts.scales.is_f16());
        let in_blocks = parts.k.is_multiple_of(BLOCK)
            && matches!(parts.groups, Groups::Even(size) if size.is_multiple_of(BLOCK));
        let middle = parts.middle();
        let is_middle = || parts.zeros(files).iter().all(|zero| *zero == middle);
        let dtype = match (fits, in_blocks, parts.codes.bits) {
            (false, ..) => DType::BF16,
            (true, true, 4) if is_middle() => DType::Q4_0,
            (true, true, 4) => DType::Q5_0,
            (true, true, _) if is_middle() => DType::Q8_0,
            _ => DType::F16,
        };
        PackedIntegers { parts, dtype }
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn set_dtype(&mut self, dtype: DType) {
        self.dtype = dtype;
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        vec![self.parts.n, self.parts.k]
    }

    pub(super) fn n(&self) -> usize {
        self.parts.n
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.dtype.size_bytes(1, self.parts.k).unwrap_or(0)
    }

    pub(super) fn codes<'a>(&self, files: &'a [FileBytes]) -> &'a [u8] {
        self.parts.codes.place.bytes(files)
    }

    pub(super) fn groups(&self, files: &[FileBytes]) -> GroupTable {
        let (scales, zeros) = (self.parts.scales(files), self.parts.zeros(files));
        GroupTable {
            steps: encoded(DType::F16, &scales),
            scales,
            zeros,
        }
    }

    /// Decodes rows from `first` on; `out` is whole rows.
    pub(super) fn decode(&self, codes: &[u8], table: &GroupTable, first: usize, out: &mut [u8]) {
        let IntegerParts { n, k, .. } = self.parts;
        let row_bytes = self.row_bytes();
        let mut tile = vec![0; TILE_ROWS * k];
        for (i, out) in out.chunks_mut(TILE_ROWS * row_bytes).enumerate() {
            let first = first + i * TILE_ROWS;
            let tile = &mut tile[..out.len() / row_bytes * k];
            self.parts.codes.read(codes, [n, k], first, tile);
            let rows = tile.chunks_exact(k).zip(out.chunks_exact_mut(row_bytes));
            for (row, (codes, out)) in (first..).zip(rows) {
                self.decode_row(codes, table, row, out);
            }
        }
    }

    fn decode_row(&self, codes: &[u8], table: &GroupTable, row: usize, out: &mut [u8]) {
        let first = row * self.parts.n_groups;
        let Groups::Even(size) = self.parts.groups else {
            return self.decode_numbers(codes, table, first, out);
        };
        let group = |block: usize| first + block * BLOCK / size;
        let step = |block: usize| &table.steps[2 * group(block)..][..2];
        let (blocks, _) = codes.as_chunks::<BLOCK>();
        match self.dtype {
            DType::Q4_0 => {
                let outs = out.as_chunks_mut::<18>().0.iter_mut();
                for (i, (codes, out)) in blocks.iter().zip(outs).enumerate() {
                    out[..2].copy_from_slice(step(i));
                    put_nibbles(codes, &mut out[2..]);
                }
            }
            DType::Q5_0 => {
                let outs = out.as_chunks_mut::<22>().0.iter_mut();
                for (i, (codes, out)) in blocks.iter().zip(outs).enumerate() {
                    let codes = codes.map(|code| code + 16 - table.zeros[group(i)]);
                    out[..2].copy_from_slice(step(i));
                    put_five_bits(&codes, &mut out[2..]);
                }
            }
            DType::Q8_0 => {
                let outs = out.as_chunks_mut::<34>().0.iter_mut();
                for (i, (codes, out)) in blocks.iter().zip(outs).enumerate() {
                    out[..2].copy_from_slice(step(i));
                    // From 0…255 to −128…127.
                    let signed = codes.iter().map(|code| code ^ 128);
                    out[2..]
                        .iter_mut()
                        .zip(signed)
                        .for_each(|(out, code)| *out = code);
                }
            }
            _ => self.decode_numbers(codes, table, first, out),
        }
    }

    /// One number an element; `first` is the row's first group.
    fn decode_numbers(&self, codes: &[u8], table: &GroupTable, first: usize, out: &mut [u8]) {
        let number = |(column, code): (usize, &u8)| {
            let group = first
                + match &self.parts.groups {
                    Groups::Even(size) => column / size,
                    Groups::Listed(groups) => groups[column] as usize,
                };
            table.scales[group] * (f32::from(*code) - f32::from(table.zeros[group]))
        };
        let numbers: Vec<f32> = codes.iter().enumerate().map(number).collect();
        out.copy_from_slice(&encoded(self.dtype, &numbers));
    }
}

impl IntegerParts {
    fn middle(&self) -> u8 {
        1 << (self.codes.bits - 1)
    }

    /// `[n, n_groups]`.
    fn scales(&self, files: &[FileBytes]) -> Vec<f32> {
        let stored = self.scales.read(files);
        let (n, n_groups) = (self.n, self.n_groups);
        if let [of_all] = stored[..] {
            return vec![of_all; n * n_groups];
        }
        if !self.scales_by_group {
            return stored;
        }
        let elems = (0..n * n_groups).map(|i| stored[i % n_groups * n + i / n_groups]);
        elems.collect()
    }

    /// `[n, n_groups]`.
    fn zeros(&self, files: &[FileBytes]) -> Vec<u8> {
        let mut out = vec![self.middle(); self.n * self.n_groups];
        if let Zeros::Stored { codes, minus_one } = &self.zeros {
            let bytes = codes.place.bytes(files);
            match bytes {
                [of_all] => out.fill(of_all ^ 128),
                _ => codes.read(bytes, [self.n, self.n_groups], 0, &mut out),
            }
            if *minus_one {
                let mask = (1u16 << codes.bits) - 1;
                out.iter_mut()
                    .for_each(|zero| *zero = ((u16::from(*zero) + 1) & mask) as u8);
            }
        }
        out
    }
}

/// Element `i` low and `i + 16` high, as in blocks of ggml.
fn put_nibbles(codes: &[u8; BLOCK], out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = codes[i] | codes[i + BLOCK / 2] << 4;
    }
}

/// The fifth bit of each element first, then the others as nibbles.
fn put_five_bits(codes: &[u8; BLOCK], out: &mut [u8]) {
    let bits = (0..).zip(codes).map(|(i, code)| u32::from(code >> 4) << i);
    let bits = bits.fold(0, |all, bit| all | bit);
    out[..4].copy_from_slice(&bits.to_le_bytes());
    put_nibbles(&codes.map(|code| code & 15), &mut out[4..]);
}

/// Numbers in a format of one element a block.
pub(super) fn encoded(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    let mut out = vec![0; dtype.size_bytes(1, numbers.len()).unwrap_or(0)];
    // Its only errors are those of lengths.
    let _ = encode_matrix(dtype, numbers, 1, numbers.len(), &mut out);
    out
}
