//! The decoder that all families share: pre-norm blocks of grouped-query attention and a gated
//! feed-forward, over a residual stream.

use crate::Error;
use crate::builder::Builder;
use crate::graph::{Attention, Glu, Op, ValueId};
use crate::names::Role;

/// Builds embeddings, blocks and head.
pub(super) fn build(b: &mut Builder<'_>) -> Result<(), Error> {
    let mut x = b.embed()?;
    for layer in 0..b.config().n_layers {
        b.hidden(x);
        b.enter_layer(layer);
        x = attention(b, layer, x)?;
        x = feed_forward(b, x)?;
    }
    b.leave_layers();
    b.hidden(x);
    b.head(x)
}

fn attention(b: &mut Builder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = b.norm("attn_norm", Role::AttnNorm, x)?;
    let biased = b.config().biases.qkv;
    let mut q = b.linear("attn_q", Role::AttnQ, biased, normed)?;
    let mut k = b.linear("attn_k", Role::AttnK, biased, normed)?;
    let v = b.linear("attn_v", Role::AttnV, biased, normed)?;
    if b.family().qk_norm {
        q = b.norm("attn_q_norm", Role::AttnQNorm, q)?;
        k = b.norm("attn_k_norm", Role::AttnKNorm, k)?;
    }
    let q = b.rope("attn_q_rope", layer, q);
    let k = b.rope("attn_k_rope", layer, k);
    let config = b.config();
    let attention = Attention {
        layer,
        n_heads: config.n_heads,
        n_kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        scale: config.attention_scale,
        window: config.window_of(layer),
    };
    let (width, biased) = (config.q_width(), config.biases.attn_output);
    let heads = b.push("attn", Op::Attention(attention), vec![q, k, v], width);
    let mut out = b.linear("attn_output", Role::AttnOutput, biased, heads)?;
    if b.has_post_norms() {
        out = b.norm("attn_post_norm", Role::AttnPostNorm, out)?;
    }
    Ok(b.add("attn_residual", x, out))
}

fn feed_forward(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let normed = b.norm("ffn_norm", Role::FfnNorm, x)?;
    let biased = b.config().biases.ffn;
    let gate = b.linear("ffn_gate", Role::FfnGate, biased, normed)?;
    let up = b.linear("ffn_up", Role::FfnUp, biased, normed)?;
    let (activation, d_ff) = (b.config().activation, b.config().d_ff);
    let glu = b.push("ffn_glu", Op::Glu(Glu { activation }), vec![gate, up], d_ff);
    let mut out = b.linear("ffn_down", Role::FfnDown, biased, glu)?;
    if b.has_post_norms() {
        out = b.norm("ffn_post_norm", Role::FfnPostNorm, out)?;
    }
    Ok(b.add("ffn_residual", x, out))
}
