//! Gated delta net (Yang et al. 2024, "Gated Delta Networks", equation 10). Each value head has a matrix; every token
//! decays it, corrects it at its key and reads it at its query. Inputs: queries, keys and values side by side; a number
//! for each value head for the decay; another for the strength of the correction.
//!
//! With `q` and `k` of unit length, `g = e^(rate · softplus(a + dt))` and `β = max_strength · sigmoid(b)`:
//! `S = g · S`, `S += k ⊗ β (v - Sᵀ k)`, `out = Sᵀ q / sqrt(k_dim)`.

use super::glu::sigmoid;
use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, StateShape, TokenContext, WeightId};

/// Maximum number of elements of a key head.
pub const KEY_DIM_MAX: usize = 256;

/// Columns of a head's matrix that are stored together in its state.
pub const STATE_LANES: usize = 16;

/// Added to the sum of squares under the root, by which queries and keys are divided (transformers, `l2norm`).
const L2_EPS: f64 = 1e-6;

/// Which key head a value head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueHeadOrder {
    /// Neighbouring value heads read the same key head (transformers).
    Grouped,
    /// Value head `h` reads key head `h mod n_k_heads` (llama.cpp's files of Qwen 3.5).
    Tiled,
}

/// How a file stores the rate of decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayForm {
    /// The rate itself, negative (GGUF).
    Rate,
    /// The logarithm of its negative (transformers, `A_log`).
    Logarithm,
}

/// A gated delta net. The state holds a head's matrix `[k_dim, v_dim]` in groups of [`STATE_LANES`] columns, zero-padded:
/// `[n_v_heads, v_dim / 16 rounded up, k_dim, 16]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNet {
    /// Index of its state.
    pub state: usize,
    /// `[n_v_heads]`: rates of decay.
    pub rate: WeightId,
    /// How the rates are stored.
    pub form: DecayForm,
    /// `[n_v_heads]`: added to the input for the decay.
    pub dt: WeightId,
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values; a multiple of `n_k_heads`.
    pub n_v_heads: usize,
    /// Elements of a key head.
    pub k_dim: usize,
    /// Elements of a value head.
    pub v_dim: usize,
    /// Which key head a value head reads.
    pub order: ValueHeadOrder,
    /// Largest strength of the correction: 1, or 2 where a state may change its sign at a key (Grazzi et al. 2024).
    pub max_strength: f32,
}

/// Elements of a head's [row](DeltaNet::token_rows) after query, key and values: decay, strength of the correction, zeros.
const GATES: usize = 16;

/// A token's input to the state of a value head.
struct HeadToken<R> {
    /// `[k_dim]`: the query, of length `1 / sqrt(k_dim)`.
    q: Vec<R>,
    /// `[k_dim]`: the key, of length 1.
    k: Vec<R>,
    /// `[v_dim]`: the values.
    v: Vec<R>,
    /// Factor on the state, applied first.
    decay: R,
    /// Share of the difference at the key to correct.
    strength: R,
}

impl DeltaNet {
    /// Elements of a token's queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        2 * self.n_k_heads * self.k_dim + self.n_v_heads * self.v_dim
    }

    /// Elements of a value head's state.
    pub fn head_elems(&self) -> usize {
        self.v_dim.next_multiple_of(STATE_LANES) * self.k_dim
    }

    /// The key head of a value head.
    pub fn key_head(&self, head: usize) -> usize {
        match self.order {
            ValueHeadOrder::Grouped => head / (self.n_v_heads / self.n_k_heads),
            ValueHeadOrder::Tiled => head % self.n_k_heads,
        }
    }

    /// Elements of a head's [row](DeltaNet::token_rows).
    pub fn row_elems(&self) -> usize {
        2 * self.k_dim + self.v_dim + GATES
    }

    /// The token's input to the states, for devices that compute the rest. Returns a row for each value head,
    /// `[n_v_heads, 2 k_dim + v_dim + 16]`: query and key of unit length, the query divided by `sqrt(k_dim)`, values, decay,
    /// strength, zeros. Computed from the op's three inputs and its rates and shifts; `None` where their lengths do not fit.
    pub fn token_rows<R: Real>(&self, inputs: [&[R]; 3], vectors: [&[R]; 2]) -> Option<Vec<R>> {
        let [qkv, alpha, beta] = inputs.map(<[R]>::len);
        let mut numbers = vectors.map(<[R]>::len).into_iter().chain([alpha, beta]);
        if qkv != self.qkv_width() || numbers.any(|n| n != self.n_v_heads) {
            return None;
        }
        let mut rows = Vec::with_capacity(self.n_v_heads * self.row_elems());
        for head in 0..self.n_v_heads {
            let token = self.head_token(head, inputs, vectors);
            for part in [token.q, token.k, token.v] {
                rows.extend(part);
            }
            rows.extend([token.decay, token.strength]);
            rows.extend([R::default(); GATES - 2]);
        }
        Some(rows)
    }

    fn head_token<R: Real>(
        &self,
        head: usize,
        inputs: [&[R]; 3],
        [rates, dts]: [&[R]; 2],
    ) -> HeadToken<R> {
        let k_width = self.n_k_heads * self.k_dim;
        let (q, kv) = inputs[0].split_at(k_width);
        let (k, v) = kv.split_at(k_width);
        let at = self.key_head(head) * self.k_dim;
        let root = R::from_f64(self.k_dim as f64).sqrt();
        let rate = match self.form {
            DecayForm::Rate => rates[head],
            DecayForm::Logarithm => -rates[head].exp(),
        };
        HeadToken {
            q: unit(&q[at..][..self.k_dim]).map(|x| x / root).collect(),
            k: unit(&k[at..][..self.k_dim]).collect(),
            v: v[head * self.v_dim..][..self.v_dim].to_vec(),
            decay: (rate * softplus(inputs[1][head] + dts[head])).exp(),
            strength: R::from_f64(f64::from(self.max_strength))
                * sigmoid(inputs[2][head], crate::exact),
        }
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let vectors = [self.rate, self.dt].map(|id| row.weights.vector(id));
        let inputs = [0, 1, 2].map(|input| row.inputs[input]);
        let heads = out.chunks_exact_mut(self.v_dim);
        let states = state.chunks_exact_mut(self.head_elems());
        for (head, (out, state)) in heads.zip(states).enumerate() {
            let HeadToken {
                q,
                k,
                v,
                decay,
                strength: beta,
            } = self.head_token(head, inputs, vectors);
            for (j, (out, v)) in out.iter_mut().zip(&v).enumerate() {
                let block = j / STATE_LANES * self.k_dim * STATE_LANES;
                let column = &mut state[block + j % STATE_LANES..];
                let cells = || (0..self.k_dim).map(|i| i * STATE_LANES);
                let seen: R = cells().zip(&k).map(|(at, k)| column[at] * *k).sum();
                let correction = beta * (*v - decay * seen);
                *out = R::default();
                for ((at, k), q) in cells().zip(&k).zip(&q) {
                    column[at] = decay * column[at] + *k * correction;
                    *out += column[at] * *q;
                }
            }
        }
    }
}

/// The elements divided by their length.
pub(super) fn unit<R: Real>(x: &[R]) -> impl Iterator<Item = R> {
    let squares: R = x.iter().map(|x| *x * *x).sum();
    let length = (squares + R::from_f64(L2_EPS)).sqrt();
    x.iter().map(move |x| *x / length)
}

/// `ln(1 + e^x)`.
pub(super) fn softplus<R: Real>(x: R) -> R {
    let one = R::from_f64(1.0);
    let magnitude = x.max(-x);
    x.max(R::default()) + (one + (-magnitude).exp()).ln()
}

impl Operation for DeltaNet {
    fn name(&self) -> &'static str {
        "delta_net"
    }

    fn arity(&self) -> usize {
        3
    }

    fn delta_net(&self) -> Option<&DeltaNet> {
        Some(self)
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weights = [self.rate, self.dt];
        weights
            .map(|id| WeightUse::new(id, WeightKind::Vector))
            .into()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let divides = self.n_k_heads > 0 && self.n_v_heads.is_multiple_of(self.n_k_heads);
        let sizes = (1..=KEY_DIM_MAX).contains(&self.k_dim) && self.v_dim > 0;
        fits(divides && sizes && self.n_v_heads > 0)?;
        for vector in [self.rate, self.dt] {
            fits(shapes.weight(vector)? == [1, 1, self.n_v_heads])?;
        }
        let inputs = [self.qkv_width(), self.n_v_heads, self.n_v_heads];
        let fit = inputs
            .iter()
            .enumerate()
            .all(|(i, w)| shapes.input(i) == *w);
        fits(fit && shapes.output() == self.n_v_heads * self.v_dim)
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(StateShape {
            index: self.state,
            n_elems: self.n_v_heads * self.head_elems(),
        })
    }

    fn cost(&self, _graph: &Graph, _depth: &Depth) -> OpCost {
        let n_elems = (self.n_v_heads * self.head_elems()) as f64;
        OpCost {
            flops: 7.0 * n_elems,
            memory_bytes: 2.0 * 4.0 * n_elems,
            ..OpCost::default()
        }
    }

    by_definition!();
}
