//! Attention whose output has a gate: queries and gates are one projection, head by head, or two.

use super::attention::{self, Heads};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::HeadGates;
use crate::names::WeightRole;
use millrace_graph::{Activation, GateFunction, Glu, ScaleByGate, SliceHeads, ValueId};

/// The same for heads whose gates are a separate projection of the stream `x`, from which the heads are projected.
pub(in crate::arch) fn attend_gated(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
    heads: Heads,
) -> Result<ValueId, Error> {
    let q_width = b.config().q_width();
    let gate = b.linear("attn_gate", WeightRole::AttnGate, (q_width, false), x)?;
    let heads = attention::rotate(b, layer, heads);
    let out = attention::attend_rotated(b, layer, heads)?;
    let gated = Glu::new(Activation::Sigmoid);
    let out = b.push("attn_gated", gated.into(), vec![gate, out], q_width);
    attention::project_back(b, out)
}

/// The same for a factor on each head of the attention's output, or on each of its elements, as the configuration has them.
/// Factors are a function of a projection of the stream `x`.
pub(in crate::arch) fn attend_scaled(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    function: GateFunction,
    (x, heads): (ValueId, Heads),
) -> Result<ValueId, Error> {
    let n_heads = b.n_heads();
    let n_gates = match b.config().layers.head_gates {
        HeadGates::Absent => return attention::attend(b, layer, heads),
        HeadGates::Heads => n_heads,
        HeadGates::Elements => n_heads * b.config().v_dim_of(layer),
    };
    let gate = b.linear("attn_gate", WeightRole::AttnGate, (n_gates, false), x)?;
    let heads = attention::rotate(b, layer, heads);
    let out = attention::attend_rotated(b, layer, heads)?;
    let width = b.width(out);
    let scaled = ScaleByGate { function };
    let out = b.push("attn_gated", scaled.into(), vec![out, gate], width);
    attention::project_back(b, out)
}

/// The whole attention of a normed stream; heads of queries and keys have norms.
pub(in crate::arch) fn attend(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let config = b.config();
    let (n_heads, head_dim) = (config.n_heads, config.head_dim);
    let (q_width, kv_width) = (config.q_width(), config.kv_width());
    let biased = config.biases.qkv;
    let both = b.linear("attn_q_gate", WeightRole::AttnQ, (2 * q_width, biased), x)?;
    let k = b.linear("attn_k", WeightRole::AttnK, (kv_width, biased), x)?;
    let v = b.linear("attn_v", WeightRole::AttnV, (kv_width, biased), x)?;
    let mut part = |label, range| {
        let slice = SliceHeads { n_heads, range };
        b.push(label, slice.into(), vec![both], q_width)
    };
    let q = part("attn_q", 0..head_dim);
    let gate = part("attn_gate", head_dim..2 * head_dim);
    let heads = attention::norm_heads(b, Heads { q, k, v })?;
    let heads = attention::rotate(b, layer, heads);
    let out = attention::attend_rotated(b, layer, heads)?;
    let gated = Glu::new(Activation::Sigmoid);
    let out = b.push("attn_gated", gated.into(), vec![gate, out], q_width);
    attention::project_back(b, out)
}
