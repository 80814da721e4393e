//! RWKV 7's recurrence: removal and addition have separate directions.

use super::leaves::RecurrentKernels;
use super::rule::{self, ReadyToken, RuleShape};
use super::{StateRun, StateSlots};
use crate::cpu::Cpu;

/// Inputs of RWKV 7's recurrence, besides its state.
#[derive(Clone, Copy, Debug)]
pub struct Rwkv7Input<'a> {
    /// Rows of receptance of all heads: where states are read.
    pub r: &'a [f32],
    /// Rows of how fast each element of a key fades, 0 to 1.
    pub fade: &'a [f32],
    /// Rows of keys.
    pub k: &'a [f32],
    /// Rows of values.
    pub v: &'a [f32],
    /// Rows of rates of learning, 0 to 1.
    pub rate: &'a [f32],
    /// `[n_heads · head_dim]`: factors on keys for the removed direction.
    pub removal: &'a [f32],
    /// `[n_heads · head_dim]`: how far the rate weakens the keys that are added.
    pub weakening: &'a [f32],
}

/// Negated logarithm of the strongest decay: `1 / √e`.
const FADE: f32 = 0.606_530_66;

/// Added to the sum of squares of a direction: the square of the least length in the published code.
const SQUARES_EPS: f32 = 1e-24;

/// For each head: the state decays element by element of the key, and loses its part along one direction. It then receives
/// the token's values at its key, and is read at its receptance.
///
/// # Panics
/// If lengths do not fit each other or the shape, a head has more than [`MAX_KEY_DIM`](super::MAX_KEY_DIM) elements, or a
/// run's slots do not cover its positions or lie outside.
pub fn rwkv7(
    cpu: &Cpu,
    shape: &RuleShape,
    input: Rwkv7Input<'_>,
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let (n_heads, n) = (shape.n_heads, shape.head_dim);
    assert!(n_heads > 0 && n > 0, "{shape:?}");
    let rows = [input.r, input.fade, input.k, input.v, input.rate];
    assert!(rows.iter().all(|x| x.len() == out.len()));
    let weights = [input.removal, input.weakening];
    assert!(weights.iter().all(|x| x.len() == shape.width()));
    let prepare = |kernels: &RecurrentKernels, (row, head): (usize, usize), to: &mut ReadyToken| {
        let at = (row * n_heads + head) * n;
        let [k, rate] = [input.k, input.rate].map(|x| &x[at..][..n]);
        let [removal, weakening] = weights.map(|x| &x[head * n..][..n]);
        to.q[..n].copy_from_slice(&input.r[at..][..n]);
        let decay = &mut to.decay[..n];
        for (decay, fade) in decay.iter_mut().zip(&input.fade[at..]) {
            *decay = -FADE * fade;
        }
        kernels.exp(decay);
        for (to, (k, factor)) in to.write.iter_mut().zip(k.iter().zip(removal)) {
            *to = k * factor;
        }
        kernels.unit(&to.write[..n], (SQUARES_EPS, -1.0), &mut to.read[..n]);
        let elements = k.iter().zip(rate).zip(weakening);
        for (i, ((k, rate), share)) in elements.enumerate() {
            to.write[i] = -to.read[i] * rate;
            to.k[i] = k * (1.0 + (rate - 1.0) * share);
        }
    };
    rule::run(cpu, shape, (&prepare, input.v), slots, runs, out);
}
