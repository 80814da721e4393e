//! Kimi delta attention: a gated delta net with a decay for each element of a key.

use super::delta::L2_EPS;
use super::leaves::RecurrentKernels;
use super::rule::{self, ReadyToken, RuleShape};
use super::{StateRun, StateSlots};
use crate::cpu::Cpu;

/// Inputs of Kimi delta attention, besides its state.
#[derive(Clone, Copy, Debug)]
pub struct KimiDeltaInput<'a> {
    /// Rows of queries of all heads.
    pub q: &'a [f32],
    /// Rows of keys.
    pub k: &'a [f32],
    /// Rows of values.
    pub v: &'a [f32],
    /// Rows of a number for each element of a key, for its decay.
    pub alpha: &'a [f32],
    /// Rows of a number a head, for the strength of the correction.
    pub beta: &'a [f32],
    /// `[n_heads]`: rates of decay, or logarithms of their negatives.
    pub rate: &'a [f32],
    /// Whether they are logarithms.
    pub rate_is_log: bool,
    /// `[n_heads · head_dim]`: added to `alpha`.
    pub dt: &'a [f32],
}

/// For each head: the state decays element by element of the key, is corrected at the token's key, and is read at its query.
///
/// # Panics
/// If lengths do not fit each other or the shape, a head has more than [`MAX_KEY_DIM`](super::MAX_KEY_DIM) elements, or a
/// run's slots do not cover its positions or lie outside.
pub fn kimi_delta(
    cpu: &Cpu,
    shape: &RuleShape,
    input: KimiDeltaInput<'_>,
    slots: StateSlots<'_>,
    runs: &[StateRun<'_>],
    out: &mut [f32],
) {
    let (n_heads, n) = (shape.n_heads, shape.head_dim);
    assert!(n_heads > 0 && n > 0, "{shape:?}");
    let rows = [input.q, input.k, input.v, input.alpha];
    assert!(rows.iter().all(|x| x.len() == out.len()));
    assert_eq!(input.beta.len() * n, out.len());
    assert!(input.rate.len() == n_heads && input.dt.len() == shape.width());
    let scale = 1.0 / (n as f32).sqrt();
    let prepare = |kernels: &RecurrentKernels, (row, head): (usize, usize), to: &mut ReadyToken| {
        let at = row * n_heads + head;
        kernels.unit(&input.q[at * n..][..n], (L2_EPS, scale), &mut to.q[..n]);
        kernels.unit(&input.k[at * n..][..n], (L2_EPS, 1.0), &mut to.k[..n]);
        let rate = match input.rate_is_log {
            true => -input.rate[head].exp(),
            false => input.rate[head],
        };
        let decay = &mut to.decay[..n];
        let steps = input.alpha[at * n..].iter().zip(&input.dt[head * n..]);
        for (decay, (alpha, dt)) in decay.iter_mut().zip(steps) {
            *decay = alpha + dt;
        }
        kernels.softplus(decay);
        decay.iter_mut().for_each(|decay| *decay *= rate);
        kernels.exp(decay);
        let strength = 1.0 / (1.0 + (-input.beta[at]).exp());
        for i in 0..n {
            to.read[i] = to.k[i] * to.decay[i];
            to.k[i] *= strength;
            to.write[i] = -to.k[i];
        }
    };
    rule::run(cpu, shape, (&prepare, input.v), slots, runs, out);
}
