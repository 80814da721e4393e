//! Recurrences that revise a head's matrix by rank one: the rule, its state and its cost.

use super::delta_net::STATE_LANES;
use crate::{OpCost, Real, SequenceMemory, StateShape};

/// A token's update of a head's matrix: `S = decay ⊙ S + write ⊗ (Sᵀ read) + k ⊗ v` by rows, then `out = Sᵀ q`.
pub(super) struct RuleToken<R> {
    /// `[head_dim]`: the query.
    pub(super) q: Vec<R>,
    /// `[head_dim]`: the factor on each row.
    pub(super) decay: Vec<R>,
    /// `[head_dim]`: the direction in which the values are added.
    pub(super) k: Vec<R>,
    /// `[head_dim]`: the direction in which the matrix is read before it decays.
    pub(super) read: Vec<R>,
    /// `[head_dim]`: the direction in which the read values are added.
    pub(super) write: Vec<R>,
}

impl<R: Real> RuleToken<R> {
    /// Updates a head's matrix with the token, whose values are `v`, and reads the output.
    pub(super) fn apply(&self, v: &[R], state: &mut [R], out: &mut [R]) {
        let n = self.q.len();
        for (j, (out, v)) in out.iter_mut().zip(v).enumerate() {
            let block = j / STATE_LANES * n * STATE_LANES;
            let column = &mut state[block + j % STATE_LANES..];
            let seen: R = (0..n).map(|i| column[i * STATE_LANES] * self.read[i]).sum();
            *out = R::default();
            for i in 0..n {
                let cell = &mut column[i * STATE_LANES];
                *cell = self.decay[i] * *cell + self.write[i] * seen + self.k[i] * *v;
                *out += *cell * self.q[i];
            }
        }
    }
}

/// State of `n_heads` heads of this size: `[n_heads, head_dim / 16 rounded up, head_dim, 16]`.
pub(super) fn rule_state(state: usize, n_heads: usize, head_dim: usize) -> SequenceMemory {
    SequenceMemory::State(StateShape {
        index: state,
        n_elems: n_heads * head_dim.next_multiple_of(STATE_LANES) * head_dim,
    })
}

/// Cost of a token for such heads.
pub(super) fn rule_cost(n_heads: usize, head_dim: usize) -> OpCost {
    let n_elems = (n_heads * head_dim.next_multiple_of(STATE_LANES) * head_dim) as f64;
    OpCost {
        flops: 9.0 * n_elems,
        memory_bytes: 2.0 * 4.0 * n_elems,
        ..OpCost::default()
    }
}
