//! Feed-forward networks.

use super::experts;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{Activate, Clamp, Glu, GluClamp, Multiply, ValueId, WeightSource};

/// The weights of a network, and the labels of their products, of its gate and of an activation in its place.
#[derive(Clone, Copy)]
pub(in crate::arch) struct GatedRoles {
    gate: (&'static str, WeightRole),
    up: (&'static str, WeightRole),
    down: (&'static str, WeightRole),
    glu: &'static str,
    act: &'static str,
}

/// The weights of a dense block's network.
pub(in crate::arch) const DENSE: GatedRoles = GatedRoles {
    gate: ("ffn_gate", WeightRole::FfnGate),
    up: ("ffn_up", WeightRole::FfnUp),
    down: ("ffn_down", WeightRole::FfnDown),
    glu: "ffn_glu",
    act: "ffn_act",
};

/// The weights of the expert that every token uses.
pub(in crate::arch) const SHARED: GatedRoles = GatedRoles {
    gate: ("ffn_gate_shexp", WeightRole::SharedGate),
    up: ("ffn_up_shexp", WeightRole::SharedUp),
    down: ("ffn_down_shexp", WeightRole::SharedDown),
    glu: "ffn_glu_shexp",
    act: "ffn_act_shexp",
};

/// Bounds in a gated network.
#[derive(Clone, Copy)]
pub(in crate::arch) enum GluBound {
    /// Of the gate and of the up projection, with a different activation (gpt-oss).
    Inputs(GluClamp),
    /// Of the activated gate and of the up projection (Step 3.5).
    Factors(f32),
}

impl GluBound {
    /// A bound of factors by its number in files, where 0 is none.
    pub(in crate::arch) fn of_factors(bound: f32) -> Option<GluBound> {
        (bound != 0.0).then_some(GluBound::Factors(bound))
    }
}

/// The part of a network between its projections.
#[derive(Clone, Copy)]
pub(in crate::arch) enum Inner {
    /// The activation of a gate times the up projection, within bounds where there are some.
    Gated(Option<GluBound>),
    /// The activation of the up projection, without a gate.
    Plain,
}

/// The layer's network: experts, or one network, with gates.
pub(in crate::arch) fn network(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    network_of(b, Inner::Gated(None), layer, x)
}

/// The layer's network: experts, or one network, with gates or without.
pub(in crate::arch) fn network_of(
    b: &mut GraphBuilder<'_>,
    inner: Inner,
    layer: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let size = (b.d_ff(), b.config().biases.ffn);
    match (b.config().experts_of(layer), inner) {
        (Some(config), _) => experts::mixture(b, config, inner, x),
        (None, Inner::Plain) => plain(b, x),
        (None, Inner::Gated(bound)) => gated_of(b, (DENSE, bound), size, x),
    }
}

/// A gated network: `down · (act(gate · x) · (up · x))`.
pub(in crate::arch) fn gated(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let biased = b.config().biases.ffn;
    gated_of(b, (DENSE, None), (b.d_ff(), biased), x)
}

/// A gated network of these weights.
pub(in crate::arch) fn gated_of(
    b: &mut GraphBuilder<'_>,
    (roles, bound): (GatedRoles, Option<GluBound>),
    (d_ff, biased): (usize, bool),
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let gate = b.linear(roles.gate.0, roles.gate.1, (d_ff, biased), x)?;
    let up = b.linear(roles.up.0, roles.up.1, (d_ff, biased), x)?;
    let out = glu_within(b, roles.glu, bound, [gate, up]);
    b.linear(roles.down.0, roles.down.1, (d_model, biased), out)
}

/// A gated network whose gate and up projection are one matrix, the gate first.
pub(in crate::arch) fn gated_in_one(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (d_model, biased) = (b.config().d_model, b.config().biases.ffn);
    let out = glu_in_one(b, biased, x)?;
    b.linear("ffn_down", WeightRole::FfnDown, (d_model, biased), out)
}

/// Input of its down projection.
pub(in crate::arch) fn glu_in_one(
    b: &mut GraphBuilder<'_>,
    biased: bool,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (d_ff, d_model) = (b.d_ff(), b.config().d_model);
    let fused = (b.name_of(WeightRole::FfnGateUp), 2 * d_ff);
    let parts = [(WeightRole::FfnGate, 0), (WeightRole::FfnUp, d_ff)];
    let mut values = [x; 2];
    for (value, (role, first)) in values.iter_mut().zip(parts) {
        let label = if first == 0 { "ffn_gate" } else { "ffn_up" };
        let name = b.name_of(role);
        let weight = b.rows_of((name, &[d_ff, d_model]), fused, first)?;
        let bias = match biased {
            true => {
                let n_rows = fused.1;
                let source = WeightSource::Rows { first, n_rows };
                Some(b.weight_from(name.bias(), fused.0.bias(), &[d_ff], source)?)
            }
            false => None,
        };
        *value = b.scaled_product(label, fused.0, (weight, bias), x)?;
    }
    Ok(glu(b, "ffn_glu", values[0], values[1]))
}

/// The network of the expert that every token uses, where gate and up projection are one matrix.
pub(in crate::arch) fn shared_in_one(
    b: &mut GraphBuilder<'_>,
    d_ff: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let fused = (b.name_of(WeightRole::SharedGateUp), 2 * d_ff);
    let mut values = [x; 2];
    let parts = [(SHARED.gate, 0), (SHARED.up, d_ff)];
    for (value, ((label, role), first)) in values.iter_mut().zip(parts) {
        let weight = b.rows_of((b.name_of(role), &[d_ff, d_model]), fused, first)?;
        *value = b.scaled_product(label, fused.0, (weight, None), x)?;
    }
    let out = glu(b, SHARED.glu, values[0], values[1]);
    b.linear(SHARED.down.0, SHARED.down.1, (d_model, false), out)
}

/// A network without a gate: `down · act(up · x)`.
pub(in crate::arch) fn plain(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let biased = b.config().biases.ffn;
    plain_of(b, DENSE, (b.d_ff(), biased), x)
}

/// A network without a gate, of these weights.
pub(in crate::arch) fn plain_of(
    b: &mut GraphBuilder<'_>,
    roles: GatedRoles,
    (d_ff, biased): (usize, bool),
    x: ValueId,
) -> Result<ValueId, Error> {
    let up = b.linear(roles.up.0, roles.up.1, (d_ff, biased), x)?;
    let out = activated(b, roles.act, up);
    let d_model = b.config().d_model;
    b.linear(roles.down.0, roles.down.1, (d_model, biased), out)
}

/// The family's activation without a gate.
pub(in crate::arch) fn activated(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    x: ValueId,
) -> ValueId {
    let activate = Activate {
        activation: b.config().activation,
    };
    let width = b.width(x);
    b.push(label, activate.into(), vec![x], width)
}

/// The family's gated activation.
pub(in crate::arch) fn glu(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    gate: ValueId,
    up: ValueId,
) -> ValueId {
    glu_within(b, label, None, [gate, up])
}

/// The same within bounds, where there are some.
pub(in crate::arch) fn glu_within(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    bound: Option<GluBound>,
    [gate, up]: [ValueId; 2],
) -> ValueId {
    let width = b.width(gate);
    let clamp = match bound {
        None => None,
        Some(GluBound::Inputs(clamp)) => Some(clamp),
        Some(GluBound::Factors(bound)) => {
            let activated = activated(b, label, gate);
            let factors =
                [activated, up].map(|x| b.push(label, Clamp { bound }.into(), vec![x], width));
            return b.push(label, Multiply.into(), factors.to_vec(), width);
        }
    };
    let glu = Glu {
        activation: b.config().activation,
        clamp,
    };
    b.push(label, glu.into(), vec![gate, up], width)
}
