//! What blocks are built of. A family's function takes these, or [`GraphBuilder`]'s ops where it differs.

pub(super) mod attention;
pub(super) mod experts;
pub(super) mod feed_forward;
pub(super) mod latent;
pub(crate) mod norm;

use crate::Error;
use crate::builder::GraphBuilder;
use millrace_graph::ValueId;

/// A decoder: embeddings, blocks over a residual stream, the last norm and the head. `block` takes the
/// stream that enters a block, with the block's number, and gives what leaves it.
pub(super) fn decoder(
    b: &mut GraphBuilder<'_>,
    block: fn(&mut GraphBuilder<'_>, usize, ValueId) -> Result<ValueId, Error>,
) -> Result<(), Error> {
    let mut x = b.embed()?;
    for layer in b.layers() {
        b.hidden(x);
        b.enter_layer(layer);
        x = block(b, layer, x)?;
    }
    b.leave_layers();
    b.hidden(x);
    b.head(x)
}
