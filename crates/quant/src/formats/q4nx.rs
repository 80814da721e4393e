//! Q4NX: tiles of 32 rows by 256 columns in 5,120 bytes, made for NPU memories (the Gemma 3 paper *Mapping Gemma3 onto an Edge
//! Dataflow Architecture*, §3.1.1). A group is 32 neighbouring columns of a row.
//!
//! Bytes: bf16 scale[8 groups][32 rows]; bf16 offset[8 groups][32 rows]; nibbles[2 halves][256 columns][8], where byte k of a
//! half h holds rows 16h + 2k (low) and 16h + 2k + 1 (high). The readings differ only in the meaning of the offset:
//! `w = scale·q + offset` (additive), or the older `w = scale·(q − offset)` (subtractive).

use half::bf16;

use super::{DType, FileType, Format, decode_each, encode_each};
use crate::search::affine::{Line, fit_stored};
use crate::search::{TINY, largest_magnitude};

const BYTES: usize = 5120;
const ROWS: usize = 32;
const COLS: usize = 256;
const ELEMS: usize = ROWS * COLS;
const GROUP: usize = 32;
const OFFSETS: usize = 512;
const NIBBLES: usize = 1024;

pub(crate) const ADDITIVE: Format = Format {
    name: "q4nx",
    block_rows: ROWS,
    block_elems: COLS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, |b, o| decode(b, o, |s, q, m| s * q + m)),
    encode: |src, _, out| encode_each(src, out, |x, b| encode(x, b, additive)),
    // 16 levels, bf16 scale and minimum in 32.
    error_budget: 0.0708,
    gguf_type: None,
    safetensors_name: None,
    file_types: &[FileType::new("Q4NX", None)],
    narrower: DType::BF16,
    has_coarse_scales: false,
    needs_importance: false,
};

pub(crate) const SUBTRACTIVE: Format = Format {
    name: "q4nx_sub",
    block_rows: ROWS,
    block_elems: COLS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, |b, o| decode(b, o, |s, q, z| s * (q - z))),
    encode: |src, _, out| encode_each(src, out, |x, b| encode(x, b, subtractive)),
    // 16 levels, bf16 scale and zero point in 32.
    error_budget: 0.0708,
    gguf_type: None,
    safetensors_name: Some("Q4NX"),
    file_types: &[FileType::new("Q4NX_SUB", None)],
    narrower: DType::BF16,
    has_coarse_scales: false,
    needs_importance: false,
};

/// Stored numbers of one group: scale and offset are exact in bf16.
struct Group {
    scale: f32,
    offset: f32,
    q: [u8; GROUP],
}

/// Place of an element's nibble: byte and shift.
fn nibble(row: usize, col: usize) -> (usize, usize) {
    let byte = NIBBLES + row / 16 * (COLS * 8) + col * 8 + row % 16 / 2;
    (byte, row % 2 * 4)
}

fn get_bf16(block: &[u8; BYTES], at: usize) -> f32 {
    bf16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS], value: impl Fn(f32, f32, f32) -> f32) {
    for (i, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        let (row, group) = (i / (COLS / GROUP), i % (COLS / GROUP));
        let at = (group * ROWS + row) * 2;
        let (scale, offset) = (get_bf16(block, at), get_bf16(block, OFFSETS + at));
        for (j, out) in out.iter_mut().enumerate() {
            let (byte, shift) = nibble(row, group * GROUP + j);
            *out = value(scale, f32::from(block[byte] >> shift & 0x0F), offset);
        }
    }
}

fn encode(
    x: &[f32; ELEMS],
    block: &mut [u8; BYTES],
    encode_group: impl Fn(&[f32; GROUP]) -> Group,
) {
    block[NIBBLES..].fill(0);
    for (i, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
        let (row, group) = (i / (COLS / GROUP), i % (COLS / GROUP));
        let stored = encode_group(x);
        let at = (group * ROWS + row) * 2;
        block[at..at + 2].copy_from_slice(&bf16::from_f32(stored.scale).to_le_bytes());
        let offset = bf16::from_f32(stored.offset).to_le_bytes();
        block[OFFSETS + at..OFFSETS + at + 2].copy_from_slice(&offset);
        for (j, q) in stored.q.iter().enumerate() {
            let (byte, shift) = nibble(row, group * GROUP + j);
            block[byte] |= q << shift;
        }
    }
}

fn additive(x: &[f32; GROUP]) -> Group {
    search(x, |line| line.min, |_, offset| offset)
}

fn subtractive(x: &[f32; GROUP]) -> Group {
    let to_offset = |line: Line| -line.min / line.scale;
    search(x, to_offset, |scale, offset| -scale * offset)
}

/// The scale and offset of least error that bf16 can hold; `to_offset` and `to_min` are the
/// reading.
fn search(
    x: &[f32; GROUP],
    to_offset: impl Fn(Line) -> f32,
    to_min: impl Fn(f32, f32) -> f32,
) -> Group {
    let zero = ((0.0, 0.0), [0; GROUP]);
    let ((scale, offset), q) = if largest_magnitude(x) < TINY {
        zero
    } else {
        fit_stored(x, |free, offer| {
            if free.scale == 0.0 {
                // All elements are equal: level 8 of a scale without an offset, in either reading.
                let scale = bf16_near(free.min / 8.0, 0);
                return offer((scale, 0.0), Line { scale, min: 0.0 });
            }
            let mut line = free;
            for _ in 0..8 {
                let offset = to_offset(line);
                for (ds, dm) in NEIGHBOURS {
                    let scale = bf16_near(line.scale, ds);
                    let offset = bf16_near(offset, dm);
                    let min = to_min(scale, offset);
                    if scale > 0.0 && min.is_finite() {
                        offer((scale, offset), Line { scale, min });
                    }
                }
                let stored_min = to_min(bf16_near(line.scale, 0), bf16_near(offset, 0));
                if (stored_min - free.min).abs() <= line.scale {
                    break;
                }
                // The offset is so large that rounding it shifts the levels by more than one: take
                // wider steps.
                line.scale *= 2.0;
            }
        })
        .unwrap_or(zero)
    };
    Group { scale, offset, q }
}

const NEIGHBOURS: [(i32, i32); 9] = [
    (0, 0),
    (0, -1),
    (0, 1),
    (-1, 0),
    (-1, -1),
    (-1, 1),
    (1, 0),
    (1, -1),
    (1, 1),
];

/// Rounds to bf16, then moves the given number of representable numbers away from zero; zero stays.
fn bf16_near(v: f32, step: i32) -> f32 {
    let bits = bf16::from_f32(v).to_bits();
    if bits & 0x7FFF == 0 {
        return 0.0;
    }
    bf16::from_bits((i32::from(bits) + step) as u16).to_f32()
}
