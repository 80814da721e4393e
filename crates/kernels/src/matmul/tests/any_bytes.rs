//! Blocks that no encoder writes: codes, signs and scales of all values, against the oracle.

use super::*;
use millrace_quant::decode_blocks;

/// Largest magnitude of a weight: the products of larger ones would not be finite.
const LARGEST_WEIGHT: f32 = 1e4;

/// Random blocks whose weights are finite.
fn blocks(dtype: DType, n_blocks: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut byte = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut bytes = Vec::new();
    let mut weights = vec![0.0; dtype.block_elems()];
    while bytes.len() < n_blocks * dtype.block_bytes() {
        let block: Vec<u8> = (0..dtype.block_bytes()).map(|_| byte()).collect();
        decode_blocks(dtype, &block, &mut weights).unwrap();
        if weights.iter().all(|w| w.abs() <= LARGEST_WEIGHT) {
            bytes.extend(block);
        }
    }
    bytes
}

/// Rows that end inside a panel, and odd numbers of blocks in a chunk and after it.
#[test]
fn whatever_a_block_holds_rows_agree_with_their_oracle() {
    // A tile of many scales is hardly ever finite.
    for row in rows().filter(|row| is_integer(row) && row.dtype.block_rows() == 1) {
        let cpu = cpu(row.level, 1);
        let elems = row.dtype.block_elems();
        for (m, n, k) in [(1, 37, 3 * elems), (3, 17, 512 + elems), (9, 33, 5 * elems)] {
            let bytes = blocks(row.dtype, n * k / elems, (m + k) as u64);
            let weight = WeightMatrix::new(row.dtype, n, k, &bytes).unwrap();
            let x = numbers(m * k, 21);
            let found = run_row(&cpu, row, &x, m, weight);
            let expected = oracle::matmul::matmul_i8(&x, m, &weight).unwrap();
            agrees_exactly(
                &format!("{} [{m}, {n}, {k}]", row.name()),
                &expected,
                &found,
            );
        }
    }
}
