//! Rows, tiles and sizes.

use millrace_quant::{DType, Error, decode_blocks, decode_rows, encode_blocks, encode_matrix};

use crate::data::Rng;

const N_ROWS: usize = 96;
const K: usize = 512;

fn encoded(dtype: DType, x: &[f32], n_rows: usize) -> Vec<u8> {
    let mut bytes = vec![0; dtype.size_bytes(n_rows, K).unwrap()];
    encode_matrix(dtype, x, n_rows, K, &mut bytes).unwrap();
    bytes
}

#[test]
fn any_range_of_rows_decodes_as_within_the_whole() {
    let x = Rng(4).normal(N_ROWS * K);
    for dtype in DType::all() {
        let bytes = encoded(dtype, &x, N_ROWS);
        let mut whole = vec![0.0; N_ROWS * K];
        decode_rows(dtype, &bytes, N_ROWS, K, 0..N_ROWS, &mut whole).unwrap();
        for rows in [0..1, 31..33, 5..5, 95..96, 17..90, 96..96] {
            let mut part = vec![0.0; rows.len() * K];
            decode_rows(dtype, &bytes, N_ROWS, K, rows.clone(), &mut part).unwrap();
            assert_eq!(
                part,
                whole[rows.start * K..rows.end * K],
                "{dtype} {rows:?}"
            );
        }
    }
}

#[test]
fn row_ranges_encoded_apart_give_the_bytes_of_the_whole() {
    let x = Rng(5).normal(N_ROWS * K);
    for dtype in DType::all() {
        let mut parts = encoded(dtype, &x[..32 * K], 32);
        parts.extend(encoded(dtype, &x[32 * K..], 64));
        assert!(parts == encoded(dtype, &x, N_ROWS), "{dtype}");
    }
}

#[test]
fn q4nx_tiles_lie_row_major_and_rows_pair_up_in_bytes() {
    let (n_rows, k) = (64, 512);
    let mut rng = Rng(6);
    let mut bytes = vec![0; 4 * 5120];
    for tile in bytes.chunks_exact_mut(5120) {
        for pair in tile[..1024].chunks_exact_mut(2) {
            // Between 1 and 2 in bf16: sums below stay exact.
            pair.copy_from_slice(&(0x3F80 | rng.next_u64() as u16 & 0x7F).to_le_bytes());
        }
        tile[1024..].fill_with(|| rng.next_u64() as u8);
    }
    let bf16 =
        |at: usize| f32::from_bits(u32::from(bytes[at]) << 16 | u32::from(bytes[at + 1]) << 24);
    let mut out = vec![0.0; n_rows * k];
    decode_rows(DType::Q4nx, &bytes, n_rows, k, 0..n_rows, &mut out).unwrap();
    for row in 0..n_rows {
        for col in 0..k {
            let tile = (row / 32 * 2 + col / 256) * 5120;
            let (r, c) = (row % 32, col % 256);
            let field = tile + (c / 32 * 32 + r) * 2;
            let byte = bytes[tile + 1024 + (r / 16 * 256 + c) * 8 + r % 16 / 2];
            let q = if r % 2 == 1 { byte >> 4 } else { byte & 15 };
            let expected = bf16(field) * f32::from(q) + bf16(field + 512);
            assert_eq!(out[row * k + col], expected, "row {row} column {col}");
        }
    }
}

/// Tiles that reach beyond the last column, by whole groups of one scale, equal those of the matrix with zeros there.
#[test]
fn q4nx_tiles_may_end_beyond_the_last_column() {
    let (n_rows, k, stored) = (64, 288, 512);
    let x = Rng(9).normal(n_rows * k);
    for dtype in [DType::Q4nx, DType::Q4nxSub] {
        assert_eq!(dtype.stored_width(k), stored);
        assert_eq!(
            dtype.size_bytes(n_rows, k),
            dtype.size_bytes(n_rows, stored)
        );
        assert_eq!(dtype.size_bytes(n_rows, 300), None);
        let mut wide = vec![0.0; n_rows * stored];
        for (wide, narrow) in wide.chunks_mut(stored).zip(x.chunks(k)) {
            wide[..k].copy_from_slice(narrow);
        }
        let mut bytes = vec![0; dtype.size_bytes(n_rows, k).unwrap()];
        encode_matrix(dtype, &x, n_rows, k, &mut bytes).unwrap();
        let mut of_wide = vec![0; bytes.len()];
        encode_matrix(dtype, &wide, n_rows, stored, &mut of_wide).unwrap();
        assert!(bytes == of_wide, "{dtype}");
        let (mut out, mut out_wide) = (vec![0.0; 40 * k], vec![0.0; 40 * stored]);
        decode_rows(dtype, &bytes, n_rows, k, 3..43, &mut out).unwrap();
        decode_rows(dtype, &bytes, n_rows, stored, 3..43, &mut out_wide).unwrap();
        for (narrow, wide) in out.chunks(k).zip(out_wide.chunks(stored)) {
            assert_eq!(narrow, &wide[..k]);
        }
    }
    assert_eq!(DType::Q8_0.size_bytes(1, 48), None);
}

#[test]
fn wrong_sizes_are_named_errors() {
    let (q4k, nx) = (DType::Q4K, DType::Q4nx);
    let mut numbers = vec![0.0; 512];
    let bytes = vec![0; 288];
    assert_eq!(
        decode_blocks(q4k, &bytes[1..], &mut numbers),
        Err(Error::Bytes {
            dtype: q4k,
            expected: 144,
            found: 287
        })
    );
    assert_eq!(
        decode_blocks(q4k, &bytes, &mut numbers[1..]),
        Err(Error::Elements {
            dtype: q4k,
            expected: 512,
            found: 511
        })
    );
    assert_eq!(
        encode_blocks(q4k, &numbers[..300], &mut [0; 144]),
        Err(Error::Elements {
            dtype: q4k,
            expected: 256,
            found: 300
        })
    );
    assert_eq!(
        encode_blocks(q4k, &numbers, &mut [0; 144]),
        Err(Error::Bytes {
            dtype: q4k,
            expected: 288,
            found: 144
        })
    );
    assert_eq!(
        decode_blocks(nx, &[0; 5120], &mut [0.0; 8192]),
        Err(Error::Tiled { dtype: nx })
    );
    assert_eq!(
        encode_matrix(nx, &numbers, 2, 256, &mut []),
        Err(Error::Shape {
            dtype: nx,
            n_rows: 2,
            k: 256
        })
    );
    assert_eq!(
        decode_rows(q4k, &bytes, 2, 256, 1..3, &mut numbers),
        Err(Error::Rows {
            start: 1,
            end: 3,
            n_rows: 2
        })
    );
    let (start, end) = (2, 1);
    assert_eq!(
        decode_rows(q4k, &bytes, 2, 256, start..end, &mut []),
        Err(Error::Rows {
            start: 2,
            end: 1,
            n_rows: 2
        })
    );
    assert_eq!(
        decode_rows(q4k, &bytes, usize::MAX / 2, 1024, 0..1, &mut numbers),
        Err(Error::Shape {
            dtype: q4k,
            n_rows: usize::MAX / 2,
            k: 1024
        })
    );
}

#[test]
fn empty_input_is_fine() {
    for dtype in DType::all() {
        decode_rows(dtype, &[], 0, 256, 0..0, &mut []).unwrap();
        encode_matrix(dtype, &[], 32, 0, &mut []).unwrap();
    }
}
