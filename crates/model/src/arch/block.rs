//! What blocks are built of. A family's function takes these, or [`Builder`]'s ops where it differs.

pub(super) mod attention;
pub(super) mod feed_forward;
pub(crate) mod norm;

use crate::Error;
use crate::builder::Builder;
use crate::graph::ValueId;

/// A decoder: embeddings, blocks over a residual stream, the last norm and the head. `block` takes the
/// stream that enters a block, with the block's number, and gives what leaves it.
pub(super) fn decoder(
    b: &mut Builder<'_>,
    block: fn(&mut Builder<'_>, usize, ValueId) -> Result<ValueId, Error>,
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
