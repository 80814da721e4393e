//! Grouped-query attention: projections, norms of heads, rotation, attention, output.

use super::norm;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{Attention, ValueId, WeightSource};

/// Queries, keys and values of a token, heads side by side.
#[derive(Clone, Copy)]
pub(in crate::arch) struct Heads {
    pub(super) q: ValueId,
    pub(super) k: ValueId,
    pub(super) v: ValueId,
}

/// The three projections of a normed stream, of three matrices or of one.
pub(in crate::arch) fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let (q_width, kv_width) = (b.config().q_width(), b.config().kv_width());
    let biased = b.config().biases.qkv;
    if b.has_own(b.name_of(WeightRole::AttnQkv)) {
        return project_of_one(b, x);
    }
    Ok(Heads {
        q: b.linear("attn_q", WeightRole::AttnQ, (q_width, biased), x)?,
        k: b.linear("attn_k", WeightRole::AttnK, (kv_width, biased), x)?,
        v: b.linear("attn_v", WeightRole::AttnV, (kv_width, biased), x)?,
    })
}

/// The three projections by rows of one matrix: queries, keys, values.
fn project_of_one(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let config = b.config();
    let (q_width, kv_width) = (config.q_width(), config.kv_width());
    let n_rows = q_width + 2 * kv_width;
    let fused = b.name_of(WeightRole::AttnQkv);
    let parts = [
        ("attn_q", WeightRole::AttnQ, q_width, 0),
        ("attn_k", WeightRole::AttnK, kv_width, q_width),
        ("attn_v", WeightRole::AttnV, kv_width, q_width + kv_width),
    ];
    let mut values = [x; 3];
    for (value, (label, role, n, first)) in values.iter_mut().zip(parts) {
        let (name, width) = (b.name_of(role), b.width(x));
        let weight = b.rows_of((name, &[n, width]), (fused, n_rows), first)?;
        let bias = match config.biases.qkv {
            true => {
                let source = WeightSource::Rows { first, n_rows };
                Some(b.weight_from(name.bias(), fused.bias(), &[n], source)?)
            }
            false => None,
        };
        *value = b.product(label, (weight, bias), x);
        *value = b.scaled(fused, *value)?;
    }
    let [q, k, v] = values;
    Ok(Heads { q, k, v })
}

/// A norm of all queries of a token together, and of all its keys.
pub(in crate::arch) fn norm_projections(
    b: &mut GraphBuilder<'_>,
    heads: Heads,
) -> Result<Heads, Error> {
    let (q, k) = (b.config().q_width(), b.config().kv_width());
    Ok(Heads {
        q: norm::rms(b, "attn_q_norm", (WeightRole::AttnQNorm, q), heads.q)?,
        k: norm::rms(b, "attn_k_norm", (WeightRole::AttnKNorm, k), heads.k)?,
        ..heads
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
    let heads = rotate(b, layer, heads);
    let out = attend_rotated(b, layer, heads)?;
    project_back(b, out)
}

/// Rotates queries and keys as the layer does.
pub(in crate::arch) fn rotate(b: &mut GraphBuilder<'_>, layer: usize, heads: Heads) -> Heads {
    Heads {
        q: b.rope("attn_q_rope", layer, heads.q),
        k: b.rope("attn_k_rope", layer, heads.k),
        ..heads
    }
}

/// Attends within the layer's window.
pub(in crate::arch) fn attend_rotated(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    heads: Heads,
) -> Result<ValueId, Error> {
    let config = b.config();
    let mut q = heads.q;
    let width = config.q_width();
    if let Some(temperature) = config.temperature {
        q = b.push("attn_temperature", temperature.into(), vec![q], width);
    }
    let sinks = match b.has_own(b.name_of(WeightRole::AttnSinks)) {
        true => Some(b.vector(WeightRole::AttnSinks, config.n_heads)?),
        false => None,
    };
    let attention = Attention {
        layer: config.cache_of(layer),
        n_heads: config.n_heads,
        n_kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        scale: config.attention_scale,
        window: config.window_of(layer),
        softcap: config.attention_softcap,
        sinks,
    };
    Ok(b.push("attn", attention.into(), vec![q, heads.k, heads.v], width))
}

/// Projects the heads back.
pub(in crate::arch) fn project_back(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let size = (b.config().d_model, b.config().biases.attn_output);
    b.linear("attn_output", WeightRole::AttnOutput, size, x)
}
