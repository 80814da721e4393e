//! Attention with its products in blocks.

use super::{ForwardPass, PassArithmetic};
use crate::reference::blocks;
use millrace_graph::{Attention, SequenceNode};
use std::ops::Range;

impl ForwardPass<'_> {
    /// Where the device multiplies in blocks, computes the prompt's rows of attention with both products in blocks:
    /// along a head's elements, and along the keys. A block of keys has the same exponent for a column of V.
    /// Probabilities of keys that a token does not see are zero.
    pub(super) fn attention(
        &self,
        at: &SequenceNode<'_, f32>,
        attention: &Attention,
        out: &mut [f32],
    ) {
        if self.numerics != PassArithmetic::Bf16 || !self.in_blocks(at.number) {
            return;
        }
        let qkv = at.inputs;
        let (n_heads, d) = (attention.n_heads, attention.head_dim);
        let kv_width = attention.n_kv_heads * d;
        let n_tokens = self.products.n_tokens.min(qkv[0].len() / (n_heads * d));
        let [q, k] = [(qkv[0], n_heads * d), (qkv[1], kv_width)].map(|(x, width)| {
            let mut x = x[..n_tokens * width].to_vec();
            x.chunks_mut(d).for_each(blocks::convert);
            x
        });
        let mut v = qkv[2][..n_tokens * kv_width].to_vec();
        blocks::convert_columns(&mut v, kv_width);
        let out = &mut out[..n_tokens * n_heads * d];
        self.cpu.pool().run_pieces(out, d, &|index, out| {
            self.head_in_blocks(attention, [&q, &k, &v], index, out);
        });
    }

    /// Head and token of that index `token · n_heads + head`, of operands that are in blocks.
    fn head_in_blocks(
        &self,
        attention: &Attention,
        [q, k, v]: [&[f32]; 3],
        index: usize,
        out: &mut [f32],
    ) {
        let (n_heads, d) = (attention.n_heads, attention.head_dim);
        let kv_width = attention.n_kv_heads * d;
        let group = n_heads / attention.n_kv_heads;
        let (position, head) = (index / n_heads, index % n_heads);
        let oldest = attention
            .window
            .map_or(0, |w| (position + 1).saturating_sub(w));
        let row = |x: &'_ [f32], key: usize| -> Range<usize> {
            let start = key * kv_width + head / group * d;
            start..(start + d).min(x.len())
        };
        let q = &q[index * d..][..d];
        let score = |key: usize| {
            let products = q.iter().zip(&k[row(k, key)]).map(|(q, k)| q * k);
            self.numerics.one(products.sum::<f32>()) * attention.scale
        };
        let scores: Vec<f32> = (oldest..=position).map(score).collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let first = oldest / blocks::BLOCK * blocks::BLOCK;
        let mut p = vec![0.0; oldest - first];
        p.extend(
            scores
                .iter()
                .map(|score| self.numerics.one((score - max).exp())),
        );
        let sum: f32 = p.iter().sum();
        blocks::convert(&mut p);
        out.fill(0.0);
        for (key, p) in (first..).zip(p) {
            let terms = out.iter_mut().zip(&v[row(v, key)]);
            terms.for_each(|(out, v)| *out += p * v);
        }
        out.iter_mut().for_each(|x| *x /= sum);
    }
}
