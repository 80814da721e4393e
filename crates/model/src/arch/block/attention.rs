//! Grouped-query attention: projections, norms of heads, rotation, attention, output.

use super::norm;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{Attention, ValueId};

/// Queries, keys and values of a token, heads side by side.
#[derive(Clone, Copy)]
pub(in crate::arch) struct Heads {
    q: ValueId,
    k: ValueId,
    v: ValueId,
}

/// The three projections of a normed stream.
pub(in crate::arch) fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let (q_width, kv_width) = (b.config().q_width(), b.config().kv_width());
    let biased = b.config().biases.qkv;
    Ok(Heads {
        q: b.linear("attn_q", WeightRole::AttnQ, (q_width, biased), x)?,
        k: b.linear("attn_k", WeightRole::AttnK, (kv_width, biased), x)?,
        v: b.linear("attn_v", WeightRole::AttnV, (kv_width, biased), x)?,
    })
}

/// A norm of each head of queries and keys.
pub(in crate::arch) fn norm_heads(b: &mut GraphBuilder<'_>, heads: Heads) -> Result<Heads, Error> {
    let head_dim = b.config().head_dim;
    Ok(Heads {
        q: norm::rms(b, "attn_q_norm", (WeightRole::AttnQNorm, head_dim), heads.q)?,
        k: norm::rms(b, "attn_k_norm", (WeightRole::AttnKNorm, head_dim), heads.k)?,
        ..heads
    })
}

/// Rotates queries and keys as the layer does, attends within its window, and projects the heads back.
pub(in crate::arch) fn attend(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    heads: Heads,
) -> Result<ValueId, Error> {
    let q = b.rope("attn_q_rope", layer, heads.q);
    let k = b.rope("attn_k_rope", layer, heads.k);
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
    let out = b.push("attn", attention.into(), vec![q, k, heads.v], width);
    b.linear(
        "attn_output",
        WeightRole::AttnOutput,
        (config.d_model, biased),
        out,
    )
}
