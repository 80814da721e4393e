//! Building blocks of graphs. A family's function uses these, or [`GraphBuilder`]'s ops where it differs.

pub(super) mod attention;
pub(super) mod attention_free;
pub(super) mod channel_scan;
pub(crate) mod draft;
pub(super) mod experts;
pub(super) mod feed_forward;
pub(super) mod gated_attention;
pub(super) mod kimi_delta;
pub(super) mod latent;
pub(super) mod layer_embedding;
pub(super) mod mamba;
pub(super) mod mamba_config;
pub(crate) mod norm;
pub(super) mod recurrent;
pub(super) mod sections;

use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use attention::Heads;
use millrace_graph::{TableRow, ValueId, WeightSource};

/// A decoder: embeddings, blocks over a residual stream, the last norm and the head. `block` takes the
/// block's number and the stream that enters it, and returns the stream that leaves it.
pub(super) fn decoder(b: &mut GraphBuilder<'_>, block: Block) -> Result<(), Error> {
    let x = b.embed()?;
    decoder_from(b, block, x)
}

/// The same from a given input of the first block.
pub(super) fn decoder_from(
    b: &mut GraphBuilder<'_>,
    block: Block,
    x: ValueId,
) -> Result<(), Error> {
    let x = blocks(b, block, x)?;
    b.head(x)
}

/// Adds the learned embedding of the position. Rows of its table count from an encoder's `first_position` on.
pub(super) fn add_position(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let first = b.config().encoder.as_ref().map_or(0, |e| e.first_position);
    add_position_from(b, first, x)
}

/// The same where so many rows of a folder's table stand before that of the first position. GGUF files have none of them.
pub(super) fn add_position_from(
    b: &mut GraphBuilder<'_>,
    first: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (d_model, n) = (b.config().d_model, b.config().context_length);
    let name = b.name_of(WeightRole::PositionEmbedding);
    let source = match first > 0 && !b.is_gguf() {
        true => WeightSource::Rows {
            first,
            n_rows: first + n,
        },
        false => WeightSource::Whole,
    };
    let table = b.weight_from(name, name, &[n, d_model], source)?;
    let row = TableRow { table, step: 1 };
    let row = b.push("position", row.into(), vec![], d_model);
    Ok(b.add("position_add", x, row))
}

/// The same without a head: the last norm is the end.
pub(super) fn encoder(b: &mut GraphBuilder<'_>, block: Block) -> Result<(), Error> {
    let x = b.embed()?;
    encoder_from(b, block, x)
}

/// The same from a given input of the first block.
pub(super) fn encoder_from(
    b: &mut GraphBuilder<'_>,
    block: Block,
    x: ValueId,
) -> Result<(), Error> {
    let x = blocks(b, block, x)?;
    let normed = norm::stream(b, "output_norm", WeightRole::OutputNorm, x)?;
    b.encoded(normed);
    Ok(())
}

/// A function that builds a block.
pub(crate) type Block = fn(&mut GraphBuilder<'_>, usize, ValueId) -> Result<ValueId, Error>;

/// An encoder like BERT. Each half of a block has a norm behind the sum of its input and its output, and the last such
/// norm ends the model. `network` is the second half.
pub(super) fn sum_normed(
    b: &mut GraphBuilder<'_>,
    network: Block,
    mut x: ValueId,
) -> Result<(), Error> {
    for layer in b.layers() {
        b.hidden(x);
        b.enter_layer(layer);
        let heads = attention::project(b, x)?;
        let out = attention::attend(b, layer, heads)?;
        let sum = b.residual("attn_residual", x, out);
        x = norm::stream(b, "attn_out_norm", WeightRole::AttnOutNorm, sum)?;
        let out = network(b, layer, x)?;
        let sum = b.residual("ffn_residual", x, out);
        x = norm::stream(b, "layer_out_norm", WeightRole::LayerOutNorm, sum)?;
    }
    b.leave_layers();
    b.hidden(x);
    b.encoded(x);
    Ok(())
}

/// Blocks alone, from a given input of the first.
pub(super) fn blocks(
    b: &mut GraphBuilder<'_>,
    block: Block,
    mut x: ValueId,
) -> Result<ValueId, Error> {
    for layer in b.layers() {
        b.hidden(x);
        b.enter_layer(layer);
        x = block(b, layer, x)?;
    }
    b.leave_layers();
    b.hidden(x);
    Ok(x)
}

/// Llama's block with a feed-forward without a gate. `project` makes the heads of a normed stream.
pub(super) fn ungated(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    project: fn(&mut GraphBuilder<'_>, ValueId) -> Result<Heads, Error>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::plain(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// A block of attention and a feed-forward, each with a norm behind it and none before.
pub(super) fn post_normed(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    norm_heads: fn(&mut GraphBuilder<'_>, Heads) -> Result<Heads, Error>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let heads = attention::project(b, x)?;
    let heads = norm_heads(b, heads)?;
    let out = attention::attend(b, layer, heads)?;
    let out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
    let x = b.residual("attn_residual", x, out);
    let out = feed_forward::network(b, layer, x)?;
    let out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// A block of attention and a feed-forward side by side, both with the output of one norm as input. Heads of queries and keys
/// have LayerNorms where the configuration asks for them.
pub(super) fn parallel(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let mut heads = attention::project(b, normed)?;
    if b.config().qk_norm {
        heads = attention::layer_norm_heads(b, heads)?;
    }
    let attended = attention::attend(b, layer, heads)?;
    let out = feed_forward::network(b, layer, normed)?;
    let x = b.residual("attn_residual", x, attended);
    Ok(b.residual("ffn_residual", x, out))
}
