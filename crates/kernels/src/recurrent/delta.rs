//! Gated delta net.

use super::heads::{STRIP_TOKENS, softplus};
use super::leaves::{FadeToken, RecurrentKernels};
use super::{LANES, MAX_KEY_DIM, SharedSlots, StateRun, StateSlots};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use std::ops::Range;

/// Heads of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values; a multiple of `n_k_heads`.
    pub n_v_heads: usize,
    /// Elements of a key head.
    pub k_dim: usize,
    /// Elements of a value head.
    pub v_dim: usize,
    /// Whether value head `h` reads key head `h mod n_k_heads`, not `h / (n_v_heads / n_k_heads)`.
    pub tiled: bool,
}

/// Inputs of a gated delta net, besides its state.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInput<'a> {
    /// Rows of queries, keys and values.
    pub qkv: &'a [f32],
    /// Rows of a number a value head, for the decay.
    pub alpha: &'a [f32],
    /// Rows of a number a value head, for the strength of the correction.
    pub beta: &'a [f32],
    /// `[n_v_heads]`: rates of decay, or logarithms of their negatives.
    pub rate: &'a [f32],
    /// Whether they are logarithms.
    pub rate_is_log: bool,
    /// `[n_v_heads]`: added to `alpha`.
    pub dt: &'a [f32],
    /// Factor on the strength, which is below 1 without it.
    pub max_strength: f32,
}

/// Added to the sum of squares under the root that queries and keys are divided by.
pub(super) const L2_EPS: f32 = 1e-6;

impl DeltaShape {
    /// Elements of a value head's state: `[v_dim / 16 rounded up, k_dim, 16]`.
    #[must_use]
    pub fn head_elems(&self) -> usize {
        self.v_dim.next_multiple_of(LANES) * self.k_dim
    }

    /// Elements of queries, keys and values of a token.
    #[must_use]
    pub fn qkv_width(&self) -> usize {
        2 * self.n_k_heads * self.k_dim + self.n_v_heads * self.v_dim
    }

    fn key_head(&self, head: usize) -> usize {
        match self.tiled {
            true => head % self.n_k_heads,
            false => head / (self.n_v_heads / self.n_k_heads),
        }
    }
}

/// For each value head: the state decays, is corrected at the token's key, and is read at its query.
///
/// # Panics
/// If lengths do not fit each other or the shape, a key head has more than [`MAX_KEY_DIM`] elements, or a run's slots do
/// not cover its positions or lie outside.
pub fn delta_net(
    cpu: &Cpu,
    shape: &DeltaShape,
    input: DeltaInput<'_>,
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let n_heads = shape.n_v_heads;
    assert!(shape.n_k_heads > 0 && n_heads.is_multiple_of(shape.n_k_heads));
    assert!((1..=MAX_KEY_DIM).contains(&shape.k_dim), "{shape:?}");
    assert!(n_heads > 0 && shape.v_dim > 0);
    let n_rows = out.len() / (n_heads * shape.v_dim);
    assert_eq!(input.qkv.len(), n_rows * shape.qkv_width());
    assert!(
        [input.alpha, input.beta]
            .iter()
            .all(|x| x.len() == n_rows * n_heads)
    );
    assert!([input.rate, input.dt].iter().all(|x| x.len() == n_heads));
    let kernels = RecurrentKernels::for_level(cpu.level());
    let slots = SharedSlots::new(slots, n_heads * shape.head_elems());
    let out = DisjointMut::new(out);
    cpu.pool().run(n_heads, &|head| {
        let head = DeltaHead {
            shape,
            input,
            slots: &slots,
            head,
            kernels,
        };
        runs.iter().for_each(|run| head.run(run, &out));
    });
}

/// One value head.
struct DeltaHead<'a> {
    shape: &'a DeltaShape,
    input: DeltaInput<'a>,
    slots: &'a SharedSlots<'a>,
    head: usize,
    kernels: &'a RecurrentKernels,
}

/// Tokens made ready: keys and queries of unit length.
struct Strip<const N: usize> {
    k: [[f32; MAX_KEY_DIM]; N],
    q: [[f32; MAX_KEY_DIM]; N],
    /// Decay and strength.
    gates: [(f32, f32); N],
}

impl DeltaHead<'_> {
    fn run(&self, run: &StateRun<'_>, out: &DisjointMut<'_, f32>) {
        // Clearing a strip takes as long as half a token.
        match run.rows.len() {
            1 => self.run_in_strips::<1>(run, out),
            _ => self.run_in_strips::<STRIP_TOKENS>(run, out),
        }
    }

    fn run_in_strips<const N: usize>(&self, run: &StateRun<'_>, out: &DisjointMut<'_, f32>) {
        let n_elems = self.shape.head_elems();
        let mut strip = Strip {
            k: [[0.0; MAX_KEY_DIM]; N],
            q: [[0.0; MAX_KEY_DIM]; N],
            gates: [(0.0, 0.0); N],
        };
        let place = (self.head * n_elems, n_elems);
        // SAFETY: a head's part of every slot belongs to it alone, and it runs once.
        unsafe {
            self.slots.for_strips(run, place, N, |rows, state| {
                self.prepare(rows.clone(), &mut strip);
                self.compute(rows, &strip, state, out);
            });
        }
    }

    fn prepare<const N: usize>(&self, rows: Range<usize>, strip: &mut Strip<N>) {
        let DeltaShape {
            n_k_heads,
            n_v_heads,
            k_dim,
            ..
        } = *self.shape;
        let DeltaInput { rate, dt, qkv, .. } = self.input;
        let rate = match self.input.rate_is_log {
            true => -rate[self.head].exp(),
            false => rate[self.head],
        };
        let key_head = self.shape.key_head(self.head);
        let scale = 1.0 / (k_dim as f32).sqrt();
        for (i, row) in rows.enumerate() {
            let row_qkv = &qkv[row * self.shape.qkv_width()..];
            let q = &row_qkv[key_head * k_dim..][..k_dim];
            let k = &row_qkv[(n_k_heads + key_head) * k_dim..][..k_dim];
            self.kernels
                .unit(q, (L2_EPS, scale), &mut strip.q[i][..k_dim]);
            self.kernels
                .unit(k, (L2_EPS, 1.0), &mut strip.k[i][..k_dim]);
            let at = row * n_v_heads + self.head;
            let step = softplus(self.input.alpha[at] + dt[self.head]);
            let strength = self.input.max_strength / (1.0 + (-self.input.beta[at]).exp());
            strip.gates[i] = ((rate * step).exp(), strength);
        }
    }

    /// Block by block: a block of a state stays in the nearest cache while the tokens pass.
    fn compute<const N: usize>(
        &self,
        rows: Range<usize>,
        strip: &Strip<N>,
        state: &mut [f32],
        out: &DisjointMut<'_, f32>,
    ) {
        let DeltaShape {
            n_k_heads,
            n_v_heads,
            k_dim,
            v_dim,
            ..
        } = *self.shape;
        let first_v = 2 * n_k_heads * k_dim + self.head * v_dim;
        for (block, tile) in state.chunks_exact_mut(k_dim * LANES).enumerate() {
            let column = block * LANES;
            let width = LANES.min(v_dim - column);
            for (i, row) in rows.clone().enumerate() {
                let v_at = row * self.shape.qkv_width() + first_v + column;
                let mut v = [0.0; LANES];
                v[..width].copy_from_slice(&self.input.qkv[v_at..][..width]);
                let mut sums = [0.0; LANES];
                let token = FadeToken {
                    k: &strip.k[i][..k_dim],
                    q: &strip.q[i][..k_dim],
                    decay: strip.gates[i].0,
                    v: &v,
                };
                let strength = strip.gates[i].1;
                self.kernels.correct(tile, &token, strength, &mut sums);
                let at = (row * n_v_heads + self.head) * v_dim + column;
                // SAFETY: the columns of a head belong to it alone, and it runs once.
                let out = unsafe { out.slice(at..at + width) };
                out.copy_from_slice(&sums[..width]);
            }
        }
    }
}
