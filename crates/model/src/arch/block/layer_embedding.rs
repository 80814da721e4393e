//! Separate embeddings for each layer, which the stream gates (Gemma 3n, Gemma 4).

use super::{feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{Embed, EmbedKnown, SliceHeads, ValueId, WeightSource};

/// The embeddings of all layers, side by side. Each is the sum of a row of a separate table and a projection of
/// the token's embedding, normed by layer. Both have the same weight in the sum, whose variance is that of one.
pub(in crate::arch) fn all(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let config = b.config();
    let dim = config.layers.embedding_dim;
    let width = dim * config.n_layers;
    let own = of_token(b, dim, width)?;
    let role = WeightRole::LayerEmbeddingProj;
    let out = b.linear("layer_embed_proj", role, (width, false), x)?;
    let factor = 1.0 / (config.d_model as f32).sqrt();
    let out = b.scale("layer_embed_scale", factor, out);
    let role = (WeightRole::LayerEmbeddingNorm, dim);
    let out = norm::rms(b, "layer_embed_norm", role, out)?;
    let sum = b.add("layer_embed_add", out, own);
    let half = std::f32::consts::FRAC_1_SQRT_2;
    Ok(b.scale("layer_embed_half", half, sum))
}

/// The token's row of the table.
fn of_token(b: &mut GraphBuilder<'_>, dim: usize, width: usize) -> Result<ValueId, Error> {
    let config = b.config();
    let name = b.name_of(WeightRole::LayerEmbedding);
    let scale = (dim as f32).sqrt();
    let streams = config.layers.streams.as_ref();
    let n_rows = match streams.filter(|_| !b.is_gguf()) {
        Some(streams) => streams.n_embedding_rows,
        None => config.vocab_size,
    };
    let table = b.weight_from(name, name, &[n_rows, width], WeightSource::Whole)?;
    let op = match n_rows < config.vocab_size {
        true => EmbedKnown { table, scale }.into(),
        false => Embed { table, scale }.into(),
    };
    Ok(b.push("layer_embed", op, vec![], width))
}

/// The layer's own embedding, gated by `x` and projected.
pub(in crate::arch) fn gated(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
    embeddings: ValueId,
) -> Result<ValueId, Error> {
    let (dim, d_model) = (b.config().layers.embedding_dim, b.config().d_model);
    let role = WeightRole::LayerEmbeddingGate;
    let gate = b.linear("layer_gate", role, (dim, false), x)?;
    // Embeddings of all layers are one vector, which is cut as a head is.
    let slice = SliceHeads {
        n_heads: 1,
        range: layer * dim..(layer + 1) * dim,
    };
    let own = b.push("layer_slice", slice.into(), vec![embeddings], dim);
    let gated = feed_forward::glu(b, "layer_glu", gate, own);
    let role = WeightRole::LayerEmbeddingUp;
    let out = b.linear("layer_proj", role, (d_model, false), gated)?;
    let role = WeightRole::LayerEmbeddingPostNorm;
    norm::stream(b, "layer_post_norm", role, out)
}
