//! Block formats as whole numbers and scales: the weights that integer kernels multiply.
//!
//! Byte layouts are those of ggml's `block_*` structures, and for Q4NX those of the Gemma 3 paper, §3.1.1.

mod divided;

use half::{bf16, f16};
use millrace_quant::DType;

/// 32 columns of a row: `w = d·q + min`.
pub(super) struct Block32 {
    pub(super) q: [i32; 32],
    pub(super) d: f32,
    /// The scale of columns 16 to 31 of a format with two.
    pub(super) upper: Option<f32>,
    pub(super) min: Option<f32>,
}

/// 256 columns of a row: `w = d·scale·q − d_min·min`, scales and minimums for each 16 columns.
pub(super) struct Block256 {
    pub(super) q: [i32; 256],
    pub(super) scales: [i32; 16],
    pub(super) d: f32,
    pub(super) mins: Option<([i32; 16], f32)>,
}

fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn bf16_at(bytes: &[u8], at: usize) -> f32 {
    bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Nibble `i` of 32: the low ones first.
fn nibble(bytes: &[u8], i: usize) -> usize {
    usize::from(bytes[i % 16] >> (4 * (i / 16)) & 15)
}

/// IQ4_NL's values (ggml's `kvalues_iq4nl`).
const IQ4_NL: [i32; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// E2M1's values, doubled.
const MXFP4: [i32; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Block `b` of row `row` of a matrix `[_, k]`, in a format that integer kernels process by 32 columns.
pub(super) fn block32(
    dtype: DType,
    bytes: &[u8],
    k: usize,
    row: usize,
    b: usize,
) -> Option<Block32> {
    if matches!(dtype, DType::Q4nx | DType::Q4nxSub) {
        return Some(q4nx(dtype, bytes, k, row, b));
    }
    if dtype == DType::Iq4Xs {
        return Some(iq4_xs(bytes, k, row, b));
    }
    if dtype.block_elems() != 32 {
        return divided::block32(dtype, bytes, k, row, b);
    }
    let block = &bytes[(row * k / 32 + b) * dtype.block_bytes()..][..dtype.block_bytes()];
    let fifth = |at: usize, i: usize| i32::from(block[at + i / 8] >> (i % 8) & 1) << 4;
    let signed = |at: usize| std::array::from_fn(|i| i32::from(block[at + i].cast_signed()));
    let nibbles =
        |at: usize| -> [i32; 32] { std::array::from_fn(|i| nibble(&block[at..], i) as i32) };
    let (q, min): ([i32; 32], _) = match dtype {
        DType::Q4_0 => (nibbles(2).map(|q| q - 8), None),
        DType::Q4_1 => (nibbles(4), Some(f16_at(block, 2))),
        DType::Q5_0 => {
            let q = nibbles(6);
            (std::array::from_fn(|i| (q[i] | fifth(2, i)) - 16), None)
        }
        DType::Q5_1 => {
            let q = nibbles(8);
            (
                std::array::from_fn(|i| q[i] | fifth(4, i)),
                Some(f16_at(block, 2)),
            )
        }
        DType::Q8_0 => (signed(2), None),
        DType::Q8_1 => (signed(4), None),
        DType::Iq4Nl => (
            std::array::from_fn(|i| IQ4_NL[nibble(&block[2..], i)]),
            None,
        ),
        DType::Mxfp4 => (std::array::from_fn(|i| MXFP4[nibble(&block[1..], i)]), None),
        _ => return None,
    };
    let d = match dtype {
        DType::Mxfp4 => 2.0_f64.powi(i32::from(block[0]) - 128) as f32,
        _ => f16_at(block, 0),
    };
    Some(Block32 {
        q,
        d,
        upper: None,
        min,
    })
}

/// Eight blocks share a scale; each block has a six-bit multiple of it.
fn iq4_xs(bytes: &[u8], k: usize, row: usize, b: usize) -> Block32 {
    let s = &bytes[(row * k / 256 + b / 8) * 136..][..136];
    let j = b % 8;
    let upper = i32::from(s[2 + j / 4] >> (2 * (j % 4)) & 3);
    let lower = i32::from(s[4 + j / 2] >> (4 * (j % 2)) & 15);
    Block32 {
        q: std::array::from_fn(|i| IQ4_NL[nibble(&s[8 + 16 * j..], i)]),
        d: f16_at(s, 0) * (16 * upper + lower - 32) as f32,
        upper: None,
        min: None,
    }
}

fn q4nx(dtype: DType, bytes: &[u8], k: usize, row: usize, b: usize) -> Block32 {
    let tile = &bytes[(row / 32 * (k / 256) + b / 8) * 5120..][..5120];
    let (row, group) = (row % 32, b % 8);
    let at = (group * 32 + row) * 2;
    let (d, offset) = (bf16_at(tile, at), bf16_at(tile, 512 + at));
    let q = std::array::from_fn(|i| {
        let byte = tile[1024 + row / 16 * 2048 + (group * 32 + i) * 8 + row % 16 / 2];
        i32::from(byte >> (4 * (row % 2)) & 15)
    });
    let min = if dtype == DType::Q4nx {
        offset
    } else {
        -(d * offset)
    };
    Block32 {
        q,
        d,
        upper: None,
        min: Some(min),
    }
}

/// Superblock `b` of row `row` of a matrix `[_, k]`, in a format that integer kernels process by 256 columns.
pub(super) fn block256(
    dtype: DType,
    bytes: &[u8],
    k: usize,
    row: usize,
    b: usize,
) -> Option<Block256> {
    let at = (row * k / 256 + b) * dtype.block_bytes();
    let s = || &bytes[at..at + dtype.block_bytes()];
    match dtype {
        DType::Q2K => Some(q2_k(s())),
        DType::Q3K => Some(q3_k(s())),
        DType::Q4K | DType::Q5K => Some(q45_k(s())),
        DType::Q6K => Some(q6_k(s())),
        _ => None,
    }
}

/// Two bits of column `i`: 32 bytes hold 128 columns, a pair of bits for each 32.
fn two_bits(bytes: &[u8], i: usize) -> i32 {
    i32::from(bytes[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3)
}

fn q2_k(s: &[u8]) -> Block256 {
    Block256 {
        q: std::array::from_fn(|i| two_bits(&s[16..], i)),
        scales: std::array::from_fn(|j| i32::from(s[j] & 15)),
        d: f16_at(s, 80),
        mins: Some((std::array::from_fn(|j| i32::from(s[j] >> 4)), f16_at(s, 82))),
    }
}

fn q3_k(s: &[u8]) -> Block256 {
    let scale = |j: usize| {
        let low = s[96 + j % 8] >> (4 * (j / 8)) & 15;
        let high = s[104 + j % 4] >> (2 * (j / 4)) & 3;
        i32::from(low | high << 4) - 32
    };
    let high = |i: usize| i32::from(s[i % 32] >> (i / 32) & 1) << 2;
    Block256 {
        q: std::array::from_fn(|i| (two_bits(&s[32..], i) | high(i)) - 4),
        scales: std::array::from_fn(scale),
        d: f16_at(s, 108),
        mins: None,
    }
}

/// Q4_K and, 32 bytes longer, Q5_K.
fn q45_k(s: &[u8]) -> Block256 {
    let six = &s[4..16];
    let scale_and_min = |j: usize| {
        if j < 4 {
            (six[j] & 63, six[j + 4] & 63)
        } else {
            let upper = six[j + 4];
            (
                upper & 15 | six[j - 4] >> 6 << 4,
                upper >> 4 | six[j] >> 6 << 4,
            )
        }
    };
    let nibbles = &s[s.len() - 128..];
    let fifth = |i: usize| match s.len() {
        176 => i32::from(s[16 + i % 32] >> (i / 32) & 1) << 4,
        _ => 0,
    };
    let q = |i: usize| i32::from(nibbles[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15);
    Block256 {
        q: std::array::from_fn(|i| q(i) | fifth(i)),
        scales: std::array::from_fn(|j| i32::from(scale_and_min(j / 2).0)),
        d: f16_at(s, 0),
        mins: Some((
            std::array::from_fn(|j| i32::from(scale_and_min(j / 2).1)),
            f16_at(s, 2),
        )),
    }
}

fn q6_k(s: &[u8]) -> Block256 {
    let q = |i: usize| {
        let (half, i) = (i / 128, i % 128);
        let low = s[64 * half + i % 64] >> (4 * (i / 64)) & 15;
        let high = s[128 + 32 * half + i % 32] >> (2 * (i / 32)) & 3;
        i32::from(low | high << 4) - 32
    };
    Block256 {
        q: std::array::from_fn(q),
        scales: std::array::from_fn(|j| i32::from(s[192 + j].cast_signed())),
        d: f16_at(s, 208),
        mins: None,
    }
}
