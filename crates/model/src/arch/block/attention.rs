//! Grouped-query attention: projections, norms of heads, rotation, attention, output.

use super::norm;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::HeadSizes;
use crate::names::WeightRole;
use millrace_graph::{
    Attention, Clamp, Derivation, EncoderAttention, HeadRows, PadHeads, SharedAttention,
    SliceHeads, TargetAttention, ValueId, WeightSource,
};

/// Queries, keys and values of a token, heads side by side.
#[derive(Clone, Copy)]
pub(in crate::arch) struct Heads {
    pub(in crate::arch) q: ValueId,
    pub(in crate::arch) k: ValueId,
    pub(in crate::arch) v: ValueId,
}

impl Heads {
    /// All three equal to one value, for callers that need only the weights of a block.
    pub(in crate::arch) fn of_one(x: ValueId) -> Heads {
        Heads { q: x, k: x, v: x }
    }
}

/// Elements of all query heads of the layer, and of all its key heads.
fn widths(b: &GraphBuilder<'_>) -> (usize, usize) {
    let heads = b.heads();
    let (head_dim, n_heads) = (heads.head_dim, b.n_heads());
    (n_heads * head_dim, heads.n_kv_heads * head_dim)
}

/// Elements of a head of values of the layer.
fn v_dim(b: &GraphBuilder<'_>) -> usize {
    b.config().layers.v_dim.unwrap_or(b.heads().head_dim)
}

/// The three projections of a normed stream, of three matrices or of one, within the bound of the model.
pub(in crate::arch) fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let heads = project_unbounded(b, x)?;
    let heads = clamp(b, heads);
    Ok(scale_values(b, heads))
}

/// The same without the bound, for families that have norms before it.
pub(in crate::arch) fn project_unbounded(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<Heads, Error> {
    let (q_width, kv_width) = widths(b);
    let biased = b.config().biases.qkv;
    if b.has_own(b.name_of(WeightRole::AttnQkv)) {
        return project_of_one(b, x);
    }
    let v_width = b.heads().n_kv_heads * v_dim(b);
    Ok(Heads {
        q: b.linear("attn_q", WeightRole::AttnQ, (q_width, biased), x)?,
        k: b.linear("attn_k", WeightRole::AttnK, (kv_width, biased), x)?,
        v: b.linear("attn_v", WeightRole::AttnV, (v_width, biased), x)?,
    })
}

/// Values times the model's factor, if it has one.
fn scale_values(b: &mut GraphBuilder<'_>, heads: Heads) -> Heads {
    let factor = b.config().layers.value_scale.unwrap_or(1.0);
    let v = b.scale("attn_v_scale", factor, heads.v);
    Heads { v, ..heads }
}

/// Queries, keys and values within the bound of the model, if it has one.
pub(in crate::arch) fn clamp(b: &mut GraphBuilder<'_>, heads: Heads) -> Heads {
    let Some(bound) = b.config().layers.qkv_bound else {
        return heads;
    };
    let mut within = |label, x| {
        let width = b.width(x);
        b.push(label, Clamp { bound }.into(), vec![x], width)
    };
    Heads {
        q: within("attn_q_clamp", heads.q),
        k: within("attn_k_clamp", heads.k),
        v: within("attn_v_clamp", heads.v),
    }
}

/// The three projections by rows of one matrix: queries, keys, values.
fn project_of_one(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let config = b.config();
    let (q_width, kv_width) = widths(b);
    let v_width = b.heads().n_kv_heads * v_dim(b);
    let n_rows = q_width + kv_width + v_width;
    let fused = b.name_of(WeightRole::AttnQkv);
    let parts = [
        ("attn_q", WeightRole::AttnQ, q_width, 0),
        ("attn_k", WeightRole::AttnK, kv_width, q_width),
        ("attn_v", WeightRole::AttnV, v_width, q_width + kv_width),
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
        *value = b.scaled_product(label, fused, (weight, bias), x)?;
    }
    let [q, k, v] = values;
    Ok(Heads { q, k, v })
}

/// The three projections of one matrix in which each key head follows its query heads and precedes its value head.
/// GGUF files have them apart.
pub(in crate::arch) fn project_by_groups(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<Heads, Error> {
    match b.is_gguf() {
        true => project(b, x),
        false => project_by_groups_of_file(b, x),
    }
}

/// The same where files of every layout have them in one matrix.
pub(in crate::arch) fn project_by_groups_of_file(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<Heads, Error> {
    let (q_width, kv_width) = widths(b);
    let HeadSizes {
        n_kv_heads,
        head_dim,
        ..
    } = b.heads();
    let q_rows = q_width / n_kv_heads;
    let fused = b.name_of(WeightRole::AttnQkv);
    let parts = [
        ("attn_q", WeightRole::AttnQ, q_width, (0, q_rows)),
        ("attn_k", WeightRole::AttnK, kv_width, (q_rows, head_dim)),
        (
            "attn_v",
            WeightRole::AttnV,
            kv_width,
            (q_rows + head_dim, head_dim),
        ),
    ];
    let mut values = [x; 3];
    for (value, (label, role, n, part)) in values.iter_mut().zip(parts) {
        let rows = HeadRows {
            n_heads: n_kv_heads,
            n_rows: q_rows + 2 * head_dim,
            parts: [part, (0, 0), (0, 0)],
        };
        let source = WeightSource::Derived(Derivation::OfHeads(rows));
        let (name, width) = (b.name_of(role), b.width(x));
        let weight = b.weight_from(name, fused, &[n, width], source.clone())?;
        let bias = match b.config().biases.qkv {
            true => Some(b.weight_from(name.bias(), fused.bias(), &[n], source)?),
            false => None,
        };
        *value = b.scaled_product(label, fused, (weight, bias), x)?;
    }
    let [q, k, v] = values;
    Ok(Heads { q, k, v })
}

/// Keys and values by rows of one matrix, without biases.
pub(in crate::arch) fn keys_and_values(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<[ValueId; 2], Error> {
    let (_, n) = widths(b);
    let fused = b.name_of(WeightRole::AttnKv);
    let mut rows = |label, role, first| {
        let (name, width) = (b.name_of(role), b.width(x));
        let weight = b.rows_of((name, &[n, width]), (fused, 2 * n), first)?;
        b.scaled_product(label, fused, (weight, None), x)
    };
    Ok([
        rows("attn_k", WeightRole::AttnK, 0)?,
        rows("attn_v", WeightRole::AttnV, n)?,
    ])
}

/// A norm of all queries of a token together, and one of all its keys.
pub(in crate::arch) fn norm_projections(
    b: &mut GraphBuilder<'_>,
    heads: Heads,
) -> Result<Heads, Error> {
    let (q, k) = widths(b);
    Ok(Heads {
        q: norm::rms(b, "attn_q_norm", (WeightRole::AttnQNorm, q), heads.q)?,
        k: norm::rms(b, "attn_k_norm", (WeightRole::AttnKNorm, k), heads.k)?,
        ..heads
    })
}

/// A norm of each head of queries and keys.
pub(in crate::arch) fn norm_heads(b: &mut GraphBuilder<'_>, heads: Heads) -> Result<Heads, Error> {
    let head_dim = b.heads().head_dim;
    Ok(Heads {
        q: norm::rms(b, "attn_q_norm", (WeightRole::AttnQNorm, head_dim), heads.q)?,
        k: norm::rms(b, "attn_k_norm", (WeightRole::AttnKNorm, head_dim), heads.k)?,
        ..heads
    })
}

/// A norm by mean and variance of each head of queries and keys; each head has its own factors.
pub(in crate::arch) fn layer_norm_heads(
    b: &mut GraphBuilder<'_>,
    heads: Heads,
) -> Result<Heads, Error> {
    let sizes = b.heads();
    let q_shape = [b.n_heads(), sizes.head_dim];
    let k_shape = [sizes.n_kv_heads, sizes.head_dim];
    let (q, k) = (WeightRole::AttnQNorm, WeightRole::AttnKNorm);
    Ok(Heads {
        q: norm::layer_of_heads(b, "attn_q_norm", (q, q_shape), heads.q)?,
        k: norm::layer_of_heads(b, "attn_k_norm", (k, k_shape), heads.k)?,
        ..heads
    })
}

/// Queries alone, of a layer that reads keys and values of another: projected, normed and rotated.
pub(in crate::arch) fn queries(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (width, _) = widths(b);
    let biased = b.config().biases.qkv;
    let q = b.linear("attn_q", WeightRole::AttnQ, (width, biased), x)?;
    let head_dim = b.heads().head_dim;
    let q = norm::rms(b, "attn_q_norm", (WeightRole::AttnQNorm, head_dim), q)?;
    Ok(b.rope("attn_q_rope", layer, q))
}

/// Queries and keys of a normed stream; the keys are the values, too.
pub(in crate::arch) fn project_keys_as_values(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<Heads, Error> {
    let (q_width, kv_width) = widths(b);
    let biased = b.config().biases.qkv;
    let q = b.linear("attn_q", WeightRole::AttnQ, (q_width, biased), x)?;
    let k = b.linear("attn_k", WeightRole::AttnK, (kv_width, biased), x)?;
    Ok(Heads { q, k, v: k })
}

/// Keys times a factor.
pub(in crate::arch) fn scale_keys(b: &mut GraphBuilder<'_>, factor: f32, heads: Heads) -> Heads {
    let k = b.scale("attn_k_scale", factor, heads.k);
    Heads { k, ..heads }
}

/// A norm without a weight of each head of values.
pub(in crate::arch) fn norm_values(b: &mut GraphBuilder<'_>, heads: Heads) -> Heads {
    let v = norm_bare(b, "attn_v_norm", heads.v);
    Heads { v, ..heads }
}

/// A norm without a weight of each head.
pub(in crate::arch) fn norm_bare(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    x: ValueId,
) -> ValueId {
    let head_dim = b.heads().head_dim;
    norm::bare(b, label, head_dim, x)
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
    let (op, q) = attention(b, layer, heads.q)?;
    let (width, n_heads, head_dim) = (b.width(q), op.n_heads, op.head_dim);
    let v_dim = v_dim(b);
    let mut v = heads.v;
    if v_dim < head_dim {
        // A cache keeps keys and values in heads of one size.
        let pad = PadHeads {
            from: v_dim,
            to: head_dim,
        };
        v = b.push("attn_v_pad", pad.into(), vec![v], b.width(heads.k));
    }
    let op = match b.config().encoder.is_some() {
        true => both_ways(&op).into(),
        false => op.into(),
    };
    let out = b.push("attn", op, vec![q, heads.k, v], width);
    if v_dim == head_dim {
        return Ok(out);
    }
    let own = SliceHeads {
        n_heads,
        range: 0..v_dim,
    };
    Ok(b.push("attn_v_own", own.into(), vec![out], n_heads * v_dim))
}

/// Attends to keys and values of an earlier layer, within the layer's window.
pub(in crate::arch) fn attend_shared(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    q: ValueId,
    (kv_layer, source): (usize, Heads),
) -> Result<ValueId, Error> {
    let (attention, q) = attention(b, layer, q)?;
    let width = b.width(q);
    let attention = Attention {
        layer: kv_layer,
        ..attention
    };
    let op = SharedAttention { attention };
    let inputs = vec![q, source.k, source.v];
    Ok(b.push("attn_shared", op.into(), inputs, width))
}

/// Attends to keys and values of the model that an assistant drafts for: those of its last layer of this kind. Its number is
/// not known yet ([`Model::for_target`](crate::Model::for_target)). A window reaches as many tokens behind the last cached
/// one (transformers, `sliding_window_bidirectional_overlay`).
pub(in crate::arch) fn attend_target(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    q: ValueId,
) -> Result<ValueId, Error> {
    let (attention, q) = attention(b, layer, q)?;
    let width = b.width(q);
    let attention = Attention {
        layer: 0,
        window: attention.window.map(|window| window.saturating_add(1)),
        ..attention
    };
    let op = TargetAttention { attention };
    Ok(b.push("attn_target", op.into(), vec![q], width))
}

/// The same in both directions: a window reaches half as far to each side.
fn both_ways(attention: &Attention) -> EncoderAttention {
    EncoderAttention {
        n_heads: attention.n_heads,
        n_kv_heads: attention.n_kv_heads,
        head_dim: attention.head_dim,
        scale: attention.scale,
        reach: attention.window.map(|window| window / 2),
        slopes: attention.slopes.clone(),
    }
}

/// The layer's attention, and the queries as they enter it.
fn attention(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    mut q: ValueId,
) -> Result<(Attention, ValueId), Error> {
    let (config, sizes, n_heads) = (b.config(), b.heads(), b.n_heads());
    let width = b.width(q);
    if let Some(temperature) = config.temperature_of(layer) {
        q = b.push("attn_temperature", temperature.into(), vec![q], width);
    }
    let role = WeightRole::AttnSinks;
    let is_left_out = config.layers.without_sinks.contains(&layer);
    let has_sinks = b.has_role(role) || b.has_own(b.name_of(role));
    let sinks = match has_sinks && !is_left_out {
        true => Some(b.vector(WeightRole::AttnSinks, n_heads)?),
        false => None,
    };
    let attention = Attention {
        layer: config.cache_of(layer),
        n_heads,
        n_kv_heads: sizes.n_kv_heads,
        head_dim: sizes.head_dim,
        scale: config.attention_scale,
        window: config.window_of(layer),
        chunked: config.layers.windows_are_chunks && config.window_of(layer).is_some(),
        softcap: config.attention_softcap,
        sinks,
        slopes: b.slopes(),
    };
    Ok((attention, q))
}

/// Projects the heads back.
pub(in crate::arch) fn project_back(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let size = (b.config().d_model, b.config().biases.attn_output);
    b.linear("attn_output", WeightRole::AttnOutput, size, x)
}
