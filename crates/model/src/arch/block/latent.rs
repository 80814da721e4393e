//! Attention over a latent (DeepSeek-AI 2024, DeepSeek-V2, section 2.1): keys and values of all heads are one row
//! a token. It is the latent, with the rotated part of the key beside it.
//!
//! Queries are brought to the latent's space and results out of it, for prompts as for single tokens. The order of
//! sums is always the same, so bits do not depend on how a prompt is cut. Attention itself is then that of one key
//! head whose values are its keys.

use super::norm;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::LatentConfig;
use crate::names::WeightRole;
use millrace_graph::{
    Attention, ConcatHeads, Derivation, HeadLinear, ValueId, WeightId, WeightSource,
};

/// The whole attention, of a normed stream.
pub(in crate::arch) fn attend(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let config = b.config();
    let latent = config.latent.ok_or_else(|| Error::MissingKey {
        file: config.family.into(),
        key: "kv_lora_rank".into(),
    })?;
    let n_heads = config.n_heads;
    let (kv_rank, cache_dim) = (latent.kv_rank, latent.cache_dim());
    let q = queries(b, &latent, x)?;
    let q = rotated_queries(b, layer, &latent, q);
    let key = key(b, layer, &latent, x)?;
    let [k_b, v_b] = head_weights(b, &latent)?;
    let to_latent = HeadLinear {
        weight: k_b,
        n_heads,
        first: 0,
    };
    let in_latent = b.push(
        "attn_q_latent",
        to_latent.into(),
        vec![q],
        n_heads * kv_rank,
    );
    let concat = ConcatHeads {
        n_heads,
        from_a: 0..kv_rank,
        from_b: latent.nope_dim..latent.q_dim(),
    };
    let width = n_heads * cache_dim;
    let query = b.push("attn_query", concat.into(), vec![in_latent, q], width);
    let attention = Attention {
        layer: config.cache_of(layer),
        n_heads,
        n_kv_heads: 1,
        head_dim: cache_dim,
        scale: config.attention_scale,
        window: config.window_of(layer),
        chunked: false,
        softcap: config.attention_softcap,
        sinks: None,
        slopes: None,
    };
    let out = b.push("attn", attention.into(), vec![query, key, key], width);
    let from_latent = HeadLinear {
        weight: v_b,
        n_heads,
        first: 0,
    };
    let width = n_heads * latent.v_dim;
    let out = b.push("attn_v_latent", from_latent.into(), vec![out], width);
    let size = (config.d_model, config.biases.attn_output);
    b.linear("attn_output", WeightRole::AttnOutput, size, out)
}

fn queries(b: &mut GraphBuilder<'_>, latent: &LatentConfig, x: ValueId) -> Result<ValueId, Error> {
    let width = b.config().n_heads * latent.q_dim();
    let Some(rank) = latent.q_rank else {
        return b.linear("attn_q", WeightRole::AttnQ, (width, false), x);
    };
    let size = (rank, b.config().biases.qkv);
    let a = b.linear("attn_q_a", WeightRole::AttnQA, size, x)?;
    let role = (WeightRole::AttnQANorm, rank);
    let a = norm::rms_with("attn_q_a_norm", role, latent.norm_eps, b, a)?;
    b.linear("attn_q_b", WeightRole::AttnQB, (width, false), a)
}

/// Queries behind their rotation, where the layer has one, with the factor of their position where the model has one.
fn rotated_queries(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    latent: &LatentConfig,
    q: ValueId,
) -> ValueId {
    let q = match b.config().rotates(layer) {
        true => b.rotate("attn_q_rope", layer, (latent.q_dim(), latent.nope_dim), q),
        false => q,
    };
    let width = b.width(q);
    match b.config().temperature {
        Some(temperature) => b.push("attn_temperature", temperature.into(), vec![q], width),
        None => q,
    }
}

/// A token's row of the cache.
fn key(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    latent: &LatentConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (kv_rank, rope_dim) = (latent.kv_rank, latent.rope_dim);
    let n_rows = latent.cache_dim();
    let biased = b.config().biases.qkv;
    let tensor = b.name_of(WeightRole::AttnKvA);
    let parts = [
        ("attn_kv_a", WeightRole::AttnKvA, kv_rank, 0),
        ("attn_k_pe", WeightRole::AttnK, rope_dim, kv_rank),
    ];
    let mut values = [x; 2];
    for (value, (label, role, n, first)) in values.iter_mut().zip(parts) {
        let (name, width) = (b.name_of(role), b.width(x));
        let weight = b.rows_of((name, &[n, width]), (tensor, n_rows), first)?;
        let bias = match biased {
            true => {
                let source = WeightSource::Rows { first, n_rows };
                Some(b.weight_from(name.bias(), tensor.bias(), &[n], source)?)
            }
            false => None,
        };
        *value = b.product(label, (weight, bias), x);
    }
    let [kv, pe] = values;
    let role = (WeightRole::AttnKvANorm, kv_rank);
    let kv = norm::rms_with("attn_kv_a_norm", role, latent.norm_eps, b, kv)?;
    let pe = match b.config().rotates(layer) {
        true => b.rotate("attn_k_rope", layer, (rope_dim, 0), pe),
        false => pe,
    };
    let concat = ConcatHeads {
        n_heads: 1,
        from_a: 0..kv_rank,
        from_b: 0..rope_dim,
    };
    Ok(b.push("attn_key", concat.into(), vec![kv, pe], n_rows))
}

/// The matrices of each head: of separate tensors, or of the joined one that older GGUF files and folders have.
fn head_weights(b: &mut GraphBuilder<'_>, latent: &LatentConfig) -> Result<[WeightId; 2], Error> {
    let n_heads = b.config().n_heads;
    let (nope, n_rows) = (latent.nope_dim, latent.nope_dim + latent.v_dim);
    let k_shape = [n_heads, latent.kv_rank, nope];
    let v_shape = [n_heads, latent.v_dim, latent.kv_rank];
    let [k_b, v_b, kv_b] =
        [WeightRole::AttnKB, WeightRole::AttnVB, WeightRole::AttnKvB].map(|role| b.name_of(role));
    if b.has_own(k_b) {
        return Ok([
            b.experts(WeightRole::AttnKB, k_shape)?,
            b.experts(WeightRole::AttnVB, v_shape)?,
        ]);
    }
    let turned = Derivation::TransposedHeads { first: 0, n_rows };
    Ok([
        b.weight_from(k_b, kv_b, &k_shape, WeightSource::Derived(turned))?,
        b.rows_of((v_b, &v_shape), (kv_b, n_rows), nope)?,
    ])
}
