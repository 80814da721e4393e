//! The state of a gated delta net after a token, and the result of its query, with tolerances.

use crate::ops::rule::{LAMBDA, SECOND_ORDER, TINY, U, V};
use millrace_graph::{DeltaNet, STATE_LANES};

/// A head's row and its state before the token, as a device's slots hold them.
pub(super) struct DeltaColumns<'a> {
    pub(super) net: &'a DeltaNet,
    /// Query, key, values, decay, strength.
    pub(super) row: &'a [f32],
    /// `[v_dim / 16 rounded up, k_dim, 16]`.
    pub(super) before: &'a [f32],
}

impl DeltaColumns<'_> {
    /// Adds the head's state after the token, in the state's order, and its results: exact values and tolerances.
    pub(super) fn exact(&self, states: &mut Vec<(f64, f64)>, results: &mut Vec<(f64, f64)>) {
        let (k_dim, v_dim) = (self.net.k_dim, self.net.v_dim);
        let start = states.len();
        states.resize(start + self.before.len(), (0.0, 0.0));
        let number = |at: usize| f64::from(self.row[at]);
        let [decay, strength] = [0, 1].map(|gate| number(2 * k_dim + v_dim + gate));
        let of_sum = LAMBDA * (k_dim as f64).sqrt() * V;
        for column in 0..v_dim {
            let cell =
                |i: usize| (column / STATE_LANES * k_dim + i) * STATE_LANES + column % STATE_LANES;
            let cells = (0..k_dim).map(|i| (i, f64::from(self.before[cell(i)])));
            let products = cells.clone().map(|(i, s)| s * number(k_dim + i));
            let (seen, size) =
                products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
            let value = number(2 * k_dim + column);
            let correction = strength * (value - decay * seen);
            let parts = value.abs() + (decay * seen).abs();
            let off = strength.abs() * (decay.abs() * of_sum * size + 4.0 * V * parts);
            let (mut y, mut read, mut tolerance) = (0.0, 0.0, 0.0);
            for (i, s) in cells {
                let (q, k) = (number(i), number(k_dim + i));
                let (faded, added) = (decay * s, k * correction);
                let own = k.abs() * off + 4.0 * V * (faded.abs() + added.abs());
                let behind = faded + added;
                states[start + cell(i)] = (behind, own * SECOND_ORDER + TINY);
                y += q * behind;
                read += (q * behind).abs();
                tolerance += q.abs() * own;
            }
            let tolerance = tolerance + of_sum * read + U * y.abs();
            results.push((y, tolerance * SECOND_ORDER + TINY));
        }
    }
}
