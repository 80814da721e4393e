//! Feed-forward networks.

use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{Glu, ValueId};

/// A gated one: `down · (act(gate · x) · (up · x))`.
pub(in crate::arch) fn gated(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let config = b.config();
    let (d_ff, biased) = (config.d_ff, config.biases.ffn);
    let gate = b.linear("ffn_gate", WeightRole::FfnGate, (d_ff, biased), x)?;
    let up = b.linear("ffn_up", WeightRole::FfnUp, (d_ff, biased), x)?;
    let glu = Glu {
        activation: config.activation,
    };
    let out = b.push("ffn_glu", glu.into(), vec![gate, up], d_ff);
    b.linear(
        "ffn_down",
        WeightRole::FfnDown,
        (config.d_model, biased),
        out,
    )
}
