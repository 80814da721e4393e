//! Attention of one layer of an encoder: every token sees earlier and later tokens. Inputs: q, k, v.

use super::{Attention, OpRole, Operation, by_definition};
use crate::check::Shapes;
use crate::{AllTokensShape, Depth, Graph, OpCost, Real, SequenceMemory, TokenContext};
use std::sync::Arc;

/// Grouped-query attention over all tokens of a sequence (Devlin et al. 2019, section 3).
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderAttention {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// Factor on the scores before softmax.
    pub scale: f32,
    /// With `Some(r)`, a query at position `p` sees keys at positions `p-r ..= p+r`.
    pub reach: Option<usize>,
    /// `[n_heads]`, shared by layers: a score drops by the head's slope times the distance to the key
    /// ([`distance_slopes`](crate::distance_slopes)).
    pub slopes: Option<Arc<[f32]>>,
}

impl EncoderAttention {
    /// The same attention for a token whose visible keys are already selected.
    fn of_seen(&self) -> Attention {
        Attention {
            layer: 0,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            scale: self.scale,
            window: None,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: self.slopes.clone(),
        }
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        match &self.slopes {
            None => R::define(&self.of_seen(), row, state, out),
            Some(slopes) => self.compute_biased(slopes, row, out),
        }
    }

    fn compute_biased<R: Real>(&self, slopes: &[f32], row: &TokenContext<'_, R>, out: &mut [R]) {
        let d = self.head_dim;
        let width = self.n_kv_heads * d;
        let scale = R::from_f64(f64::from(self.scale));
        let first = row
            .position
            .saturating_sub(self.reach.unwrap_or(row.position));
        let heads = row.inputs[0].chunks_exact(d).zip(out.chunks_exact_mut(d));
        for ((head, (q, out)), slope) in heads.enumerate().zip(slopes) {
            let at = head / (self.n_heads / self.n_kv_heads) * d;
            let score = |(key, k): (usize, &[R])| {
                let products = q.iter().zip(&k[at..][..d]).map(|(q, k)| *q * *k);
                let distance = row.position.abs_diff(first + key);
                let bias = R::from_f64(f64::from(*slope) * distance as f64);
                (row.round)(products.sum::<R>()) * scale - bias
            };
            let keys = row.keys.k.chunks_exact(width).enumerate();
            let scores: Vec<R> = keys.map(score).collect();
            let max = scores.iter().copied().fold(R::NEG_INFINITY, R::max);
            let mut sum = R::default();
            out.fill(R::default());
            for (score, v) in scores.into_iter().zip(row.keys.v.chunks_exact(width)) {
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

impl Operation for EncoderAttention {
    fn name(&self) -> &'static str {
        "encoder_attention"
    }

    fn arity(&self) -> usize {
        3
    }

    fn role(&self) -> OpRole {
        OpRole::Attention
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        self.of_seen().check(shapes)
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::AllTokens(AllTokensShape {
            width: self.n_kv_heads * self.head_dim,
            reach: self.reach,
        })
    }

    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        let cost = self.of_seen().cost(graph, depth);
        OpCost {
            memory_bytes: 0.0,
            ..cost
        }
    }

    by_definition!();
}
