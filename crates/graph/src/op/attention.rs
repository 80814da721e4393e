//! Attention of one layer: causal, grouped-query, optionally windowed. Appends k and v to the layer's
//! cache, then attends. Inputs: q, k, v.

use super::softcap::softcap;
use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, KvShape, OpCost, Real, SequenceMemory, TokenContext, WeightId};
use std::sync::Arc;

/// Causal grouped-query attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The layer whose KV cache it appends to and reads.
    pub layer: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// Factor on the scores before softmax.
    pub scale: f32,
    /// With `Some(w)`, a query at position `p` sees keys at positions `p-w+1 ..= p`.
    pub window: Option<usize>,
    /// Whether windows are chunks, which begin at multiples of `w`: a query at `p` sees keys at `p - p % w ..= p`.
    pub chunked: bool,
    /// With `Some(c)`, a score `s` becomes `c · tanh(s / c)` before softmax.
    pub softcap: Option<f32>,
    /// `[n_heads]`: an extra score for each head that takes part in softmax but has no value.
    pub sinks: Option<WeightId>,
    /// `[n_heads]`, shared by layers: a score drops by the head's slope times the distance to the key
    /// ([`distance_slopes`]).
    pub slopes: Option<Arc<[f32]>>,
}

/// Slopes of ALiBi (Press, Smith and Lewis 2022) with exponent `max_bias`: the loss of a score per position of distance,
/// for each of `n_heads` heads. They are powers of `2^-max_bias`.
///
/// For a power of 2 heads the slopes are `2^(-max_bias·i/n)` for `i` from 1 on. For other numbers the first slopes are
/// those of the power below; the rest are every other slope of the power above.
pub fn distance_slopes(max_bias: f32, n_heads: usize) -> Arc<[f32]> {
    let max_bias = f64::from(max_bias);
    let power = 1 << n_heads.max(1).ilog2();
    let slope = |index: usize, n: usize| (-max_bias * index as f64 / n as f64).exp2() as f32;
    let slopes = (0..n_heads).map(|head| match head < power {
        true => slope(head + 1, power),
        false => slope(2 * (head - power) + 1, 2 * power),
    });
    slopes.collect()
}

impl Attention {
    /// Whether the op is plain: scaled scores, softmax and values of all keys or of a window, and nothing else.
    pub fn is_plain(&self) -> bool {
        let bare = self.softcap.is_none() && self.sinks.is_none() && self.slopes.is_none();
        bare && !self.chunked
    }

    /// The first key that a query at `position` sees.
    pub fn first_seen(&self, position: usize) -> usize {
        match self.window {
            Some(window) if self.chunked => position - position % window.max(1),
            _ => self.kv().seen(position).start,
        }
    }

    pub(super) fn kv(&self) -> KvShape {
        KvShape {
            layer: self.layer,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            window: self.window,
        }
    }

    /// Takes the softmax of each head's scores over the keys. Scores and probabilities are rounded.
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let d = self.head_dim;
        let width = self.kv().width();
        let group = self.n_heads / self.n_kv_heads;
        let scale = R::from_f64(f64::from(self.scale));
        // Keys are those of the cache, which keeps as many as a chunk holds.
        let unseen = self.first_seen(row.position) - self.kv().seen(row.position).start;
        let first = self.first_seen(row.position);
        let heads = row.inputs[0].chunks_exact(d).zip(out.chunks_exact_mut(d));
        for (head, (q, out)) in heads.enumerate() {
            let at = head / group * d;
            let slope = self.slopes.as_ref().map(|slopes| f64::from(slopes[head]));
            let score = |(key, k): (usize, &[R])| {
                let products = q.iter().zip(&k[at..][..d]).map(|(q, k)| *q * *k);
                let score = (row.round)(products.sum::<R>()) * scale;
                let score = self.softcap.map_or(score, |cap| softcap(score, cap));
                let distance = row.position.abs_diff(first + key) as f64;
                slope.map_or(score, |slope| score - R::from_f64(slope * distance))
            };
            let keys = row.keys.k.chunks_exact(width).skip(unseen).enumerate();
            let scores: Vec<R> = keys.map(score).collect();
            let sink = self.sinks.map(|sinks| row.weights.vector(sinks)[head]);
            let max = scores.iter().copied().chain(sink);
            let max = max.fold(R::NEG_INFINITY, R::max);
            let mut sum = sink.map_or(R::default(), |sink| (row.round)((sink - max).exp()));
            out.fill(R::default());
            for (score, v) in scores
                .into_iter()
                .zip(row.keys.v.chunks_exact(width).skip(unseen))
            {
                let p = (row.round)((score - max).exp());
                sum += p;
                for (out, v) in out.iter_mut().zip(&v[at..][..d]) {
                    *out += p * *v;
                }
            }
            out.iter_mut().for_each(|x| *x /= sum);
        }
    }
}

impl Operation for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn arity(&self) -> usize {
        3
    }

    fn weights(&self) -> Vec<WeightUse> {
        let sinks = |id| WeightUse::new(id, WeightKind::Vector);
        self.sinks.map(sinks).into_iter().collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let heads = [self.n_heads, self.n_kv_heads, self.n_kv_heads];
        let widths = heads.map(|heads| heads.checked_mul(self.head_dim));
        let inputs = (0..3).all(|i| widths[i] == Some(shapes.input(i)));
        if let Some(sinks) = self.sinks {
            fits(shapes.weight(sinks)? == [1, 1, self.n_heads])?;
        }
        let slopes = self.slopes.as_ref();
        fits(slopes.is_none_or(|slopes| slopes.len() == self.n_heads))?;
        let divides = self.n_kv_heads > 0 && self.n_heads.is_multiple_of(self.n_kv_heads);
        let has_window = !self.chunked || self.window.is_some_and(|window| window > 0);
        fits(inputs && divides && has_window && shapes.output() == shapes.input(0))
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::KvCache(self.kv())
    }

    fn attention(&self) -> Option<&Attention> {
        Some(self)
    }

    fn cost(&self, _graph: &Graph, depth: &Depth) -> OpCost {
        let all = depth.n_before + 1;
        let keys = self.window.map_or(all, |window| all.min(window as u64)) as f64;
        let kv_elems = 2.0 * self.n_kv_heads as f64 * self.head_dim as f64;
        OpCost {
            flops: 4.0 * keys * self.n_heads as f64 * self.head_dim as f64,
            weight_bytes: 0.0,
            memory_bytes: keys * kv_elems * depth.kv_elem_bytes,
            ..OpCost::default()
        }
    }

    by_definition!();
}

#[cfg(test)]
mod tests {
    use super::{Attention, distance_slopes};

    #[test]
    fn chunks_lie_at_multiples_of_the_window() {
        let attention = |chunked| Attention {
            layer: 0,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 4,
            scale: 1.0,
            window: Some(8),
            chunked,
            softcap: None,
            sinks: None,
            slopes: None,
        };
        let seen = |chunked| [0, 7, 8, 9, 23, 24].map(|p| attention(chunked).first_seen(p));
        assert_eq!(seen(true), [0, 0, 8, 8, 16, 24]);
        assert_eq!(seen(false), [0, 0, 1, 2, 16, 17]);
        assert!(attention(false).is_plain() && !attention(true).is_plain());
    }

    #[test]
    fn slopes_are_powers() {
        let four = [0.25, 0.0625, 1.0 / 64.0, 1.0 / 256.0];
        assert_eq!(*distance_slopes(8.0, 4), four);
        // Two after the four of a power of 2: the first and the third of eight.
        assert_eq!(distance_slopes(8.0, 6)[4..], [0.5, 0.125]);
    }
}
