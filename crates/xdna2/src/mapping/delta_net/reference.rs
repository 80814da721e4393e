//! A token of gated delta nets by its formula, a column after the other.

use super::LANES;
use crate::mapping::data::{bf16_bytes, f32_bytes};

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}

/// The states after the token and the results of its queries, for rows and states of the slots.
pub(super) fn run(k_dim: usize, v_dim: usize, slots: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let (rows, mut state) = (numbers(&slots[0]), numbers(&slots[1]));
    let lanes = LANES as usize;
    let mut y = Vec::new();
    let of_head = 2 * k_dim + v_dim + super::GATES as usize;
    for (row, state) in (rows.chunks_exact(of_head)).zip(state.chunks_exact_mut(k_dim * v_dim)) {
        let (q, k) = (&row[..k_dim], &row[k_dim..2 * k_dim]);
        let [decay, strength] = [0, 1].map(|gate| row[2 * k_dim + v_dim + gate]);
        for column in 0..v_dim {
            // Element `i` of the column.
            let at = |i: usize| (column / lanes * k_dim + i) * lanes + column % lanes;
            let mut seen = 0.0;
            for (i, k) in k.iter().enumerate() {
                seen += state[at(i)] * k;
            }
            let correction = strength * (row[2 * k_dim + column] - decay * seen);
            let mut read = 0.0;
            for (i, (k, q)) in k.iter().zip(q).enumerate() {
                state[at(i)] = decay * state[at(i)] + k * correction;
                read += state[at(i)] * q;
            }
            y.push(read);
        }
    }
    (f32_bytes(&state), bf16_bytes(&y))
}
