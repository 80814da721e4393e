//! Selective scan of Mamba-2.

use super::heads::{STRIP_TOKENS, softplus};
use super::leaves::{FadeToken, RecurrentKernels};
use super::{LANES, MAX_KEY_DIM, SharedSlots, StateRun, StateSlots};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use std::ops::Range;

/// Heads of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsmShape {
    /// Heads of values.
    pub n_heads: usize,
    /// Heads of keys and queries; the same number of neighbouring value heads reads each.
    pub n_groups: usize,
    /// Elements of a head of values.
    pub head_dim: usize,
    /// Elements of a key.
    pub d_state: usize,
}

/// Inputs of a selective scan, besides its state.
#[derive(Clone, Copy, Debug)]
pub struct SsmInput<'a> {
    /// Rows of values, keys and queries.
    pub xbc: &'a [f32],
    /// Rows of a number a head, for the step.
    pub dt: &'a [f32],
    /// `[n_heads]`: rates of decay, or logarithms of their negatives.
    pub rate: &'a [f32],
    /// Whether they are logarithms.
    pub rate_is_log: bool,
    /// `[n_heads]`: added to `dt`.
    pub dt_bias: &'a [f32],
    /// Least and largest step.
    pub dt_limit: (f32, f32),
    /// `[n_heads]`: the share of the value that goes past the state.
    pub skip: &'a [f32],
}

impl SsmShape {
    /// Elements of a head's state: `[head_dim / 16 rounded up, d_state, 16]`.
    #[must_use]
    pub fn head_elems(&self) -> usize {
        self.head_dim.next_multiple_of(LANES) * self.d_state
    }

    /// Elements of values, keys and queries of a token.
    #[must_use]
    pub fn xbc_width(&self) -> usize {
        self.n_heads * self.head_dim + 2 * self.n_groups * self.d_state
    }
}

/// For each head: the state decays, the token's value is added at its key by the step, and the state is read at its query.
///
/// # Panics
/// If lengths do not fit each other or the shape, a key has more than [`MAX_KEY_DIM`] elements, or a run's slots do not
/// cover its positions or lie outside.
pub fn ssm_scan(
    cpu: &Cpu,
    shape: &SsmShape,
    input: SsmInput<'_>,
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let n_heads = shape.n_heads;
    assert!(shape.n_groups > 0 && n_heads.is_multiple_of(shape.n_groups));
    assert!((1..=MAX_KEY_DIM).contains(&shape.d_state), "{shape:?}");
    assert!(n_heads > 0 && shape.head_dim > 0);
    let n_rows = out.len() / (n_heads * shape.head_dim);
    assert_eq!(input.xbc.len(), n_rows * shape.xbc_width());
    assert_eq!(input.dt.len(), n_rows * n_heads);
    let vectors = [input.rate, input.dt_bias, input.skip];
    assert!(vectors.iter().all(|x| x.len() == n_heads));
    let kernels = RecurrentKernels::for_level(cpu.level());
    let slots = SharedSlots::new(slots, n_heads * shape.head_elems());
    let out = DisjointMut::new(out);
    cpu.pool().run(n_heads, &|head| {
        let n_elems = shape.head_elems();
        let head = SsmHead {
            shape,
            input,
            head,
            kernels,
        };
        for run in runs {
            let place = (head.head * n_elems, n_elems);
            // SAFETY: a head's part of every slot belongs to it alone, and it runs once.
            unsafe {
                slots.for_strips(run, place, STRIP_TOKENS, |rows, state| {
                    head.compute(rows, state, &out);
                });
            }
        }
    });
}

/// One head.
struct SsmHead<'a> {
    shape: &'a SsmShape,
    input: SsmInput<'a>,
    head: usize,
    kernels: &'a RecurrentKernels,
}

impl SsmHead<'_> {
    /// Decay and step of a token.
    fn gates(&self, row: usize) -> (f32, f32) {
        let SsmInput { rate, dt_limit, .. } = self.input;
        let rate = match self.input.rate_is_log {
            true => -rate[self.head].exp(),
            false => rate[self.head],
        };
        let dt = self.input.dt[row * self.shape.n_heads + self.head];
        let step = softplus(dt + self.input.dt_bias[self.head]);
        let step = step.max(dt_limit.0).min(dt_limit.1);
        ((rate * step).exp(), step)
    }

    /// Block by block: a block of a state stays in the nearest cache while the tokens pass.
    fn compute(&self, rows: Range<usize>, state: &mut [f32], out: &DisjointMut<'_, f32>) {
        let SsmShape {
            n_heads,
            n_groups,
            head_dim,
            d_state,
        } = *self.shape;
        let mut gates = [(0.0, 0.0); STRIP_TOKENS];
        for (gates, row) in gates.iter_mut().zip(rows.clone()) {
            *gates = self.gates(row);
        }
        let skip = self.input.skip[self.head];
        let first_k = n_heads * head_dim + self.head / (n_heads / n_groups) * d_state;
        for (block, tile) in state.chunks_exact_mut(d_state * LANES).enumerate() {
            let column = block * LANES;
            let width = LANES.min(head_dim - column);
            for (row, (decay, step)) in rows.clone().zip(gates) {
                let xbc = &self.input.xbc[row * self.shape.xbc_width()..];
                let x = &xbc[self.head * head_dim + column..][..width];
                let mut v = [0.0; LANES];
                for (v, x) in v.iter_mut().zip(x) {
                    *v = step * x;
                }
                let mut sums = [0.0; LANES];
                let token = FadeToken {
                    k: &xbc[first_k..][..d_state],
                    q: &xbc[first_k + n_groups * d_state..][..d_state],
                    decay,
                    v: &v,
                };
                self.kernels.absorb(tile, &token, &mut sums);
                let at = (row * n_heads + self.head) * head_dim + column;
                // SAFETY: the columns of a head belong to it alone, and it runs once.
                let out = unsafe { out.slice(at..at + width) };
                for ((out, sum), x) in out.iter_mut().zip(&sums).zip(x) {
                    *out = sum + skip * x;
                }
            }
        }
    }
}
