//! Mixtures of experts: a router, the chosen experts' gated networks, their weighted sum, and the shared expert.

use super::feed_forward::{self, Inner, SHARED};
use crate::Error;
use crate::arch::GateOrder;
use crate::builder::GraphBuilder;
use crate::config::ExpertConfig;
use crate::names::WeightRole;
use millrace_graph::{
    CombineExperts, Derivation, ExpertLinear, GateFunction, Route, ScaleByGate, Softcap, ValueId,
    WeighExperts, WeightId, WeightSource,
};

/// The whole mixture.
pub(in crate::arch) fn mixture(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    inner: Inner,
    x: ValueId,
) -> Result<ValueId, Error> {
    mixture_of(b, experts, [inner; 2], x)
}

/// The whole mixture, where the chosen experts and the shared one differ between their projections.
pub(in crate::arch) fn mixture_of(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    [of_chosen, of_shared]: [Inner; 2],
    x: ValueId,
) -> Result<ValueId, Error> {
    let routed = routed(b, experts, of_chosen, x)?;
    if experts.shared_d_ff == 0 {
        return Ok(routed);
    }
    let shared = shared(b, experts, of_shared, x)?;
    Ok(b.add("ffn_shexp_add", routed, shared))
}

/// The whole mixture, where weights multiply the inputs of experts and not their outputs (Llama 4).
pub(in crate::arch) fn mixture_of_weighed(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    let inner = Inner::Gated(None);
    let choice = route(b, experts, x)?;
    let n_used = experts.n_used;
    let width = n_used * b.width(x);
    let weigh = WeighExperts { n_used };
    let weighed = b.push("ffn_exps_weigh", weigh.into(), vec![x, choice], width);
    let routed = routed_of(b, (experts, inner), choice, Entering::Weighed(weighed))?;
    match experts.shared_d_ff {
        0 => Ok(routed),
        _ => {
            let shared = shared(b, experts, inner, x)?;
            Ok(b.add("ffn_shexp_add", routed, shared))
        }
    }
}

/// Inputs of the chosen experts.
#[derive(Clone, Copy)]
enum Entering {
    /// The same row for all; their outputs are weighed.
    Same(ValueId),
    /// A row each, weighed already.
    Weighed(ValueId),
}

/// Weighed outputs of the chosen experts.
fn routed(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    inner: Inner,
    x: ValueId,
) -> Result<ValueId, Error> {
    let choice = route(b, experts, x)?;
    if experts.latent_dim == 0 {
        return routed_by(b, (experts, inner), choice, x);
    }
    let (d_model, biased) = (b.config().d_model, b.config().biases.ffn);
    let down = (experts.latent_dim, biased);
    let latent = b.linear("ffn_latent_down", WeightRole::LatentDown, down, x)?;
    let out = routed_by(b, (experts, inner), choice, latent)?;
    b.linear(
        "ffn_latent_up",
        WeightRole::LatentUp,
        (d_model, biased),
        out,
    )
}

/// Outputs of the experts of a given choice.
pub(in crate::arch) fn routed_by(
    b: &mut GraphBuilder<'_>,
    (experts, inner): (&ExpertConfig, Inner),
    choice: ValueId,
    x: ValueId,
) -> Result<ValueId, Error> {
    routed_of(b, (experts, inner), choice, Entering::Same(x))
}

fn routed_of(
    b: &mut GraphBuilder<'_>,
    (experts, inner): (&ExpertConfig, Inner),
    choice: ValueId,
    entering: Entering,
) -> Result<ValueId, Error> {
    let n_used = experts.n_used;
    let (width, weighted) = match entering {
        Entering::Same(x) => (b.width(x), true),
        Entering::Weighed(rows) => (b.width(rows) / n_used, false),
    };
    let out = hidden(b, (experts, inner), choice, entering)?;
    let shape = [experts.n_experts, width, experts.d_ff];
    let down = match turned_order(b, WeightRole::ExpertsDown, shape) {
        Some(_) => turned(b, [WeightRole::ExpertsDown; 2], shape, (0, 1), shape[1])?,
        None if are_stacked(b) => {
            let name = b.name_of(WeightRole::ExpertsDown);
            let turned = Derivation::TransposedHeads {
                first: 0,
                n_rows: experts.d_ff,
            };
            b.weight_from(name, name, &shape, WeightSource::Derived(turned))?
        }
        None => b.experts(WeightRole::ExpertsDown, shape)?,
    };
    let bias = bias(b, experts, WeightRole::ExpertsDown, width)?;
    let outer = n_used * width;
    let down = (down, bias, scale(b, experts, WeightRole::ExpertsDown)?);
    let out = product(
        b,
        ("ffn_down_exps", n_used, true),
        down,
        [out, choice],
        outer,
    );
    let combine = CombineExperts { n_used, weighted };
    Ok(b.push("ffn_exps_sum", combine.into(), vec![out, choice], width))
}

/// Inputs of the down projections of chosen experts: products behind gates, or behind an activation alone.
fn hidden(
    b: &mut GraphBuilder<'_>,
    (experts, inner): (&ExpertConfig, Inner),
    choice: ValueId,
    entering: Entering,
) -> Result<ValueId, Error> {
    let (n_used, width) = (experts.n_used, experts.n_used * experts.d_ff);
    let (x, own_rows) = match entering {
        Entering::Same(x) => (x, false),
        Entering::Weighed(rows) => (rows, true),
    };
    let up_label = ("ffn_up_exps", n_used, own_rows);
    let Inner::Gated(bound) = inner else {
        let n_terms = if own_rows {
            b.width(x) / n_used
        } else {
            b.width(x)
        };
        let up = projection(b, experts, WeightRole::ExpertsUp, n_terms)?;
        let up = product(b, up_label, up, [x, choice], width);
        return Ok(feed_forward::activated(b, "ffn_act_exps", up));
    };
    let [gate, up] = gates(b, experts)?;
    let gate_label = ("ffn_gate_exps", n_used, own_rows);
    let gate = product(b, gate_label, gate, [x, choice], width);
    let up = product(b, up_label, up, [x, choice], width);
    let label = "ffn_glu_exps";
    Ok(feed_forward::glu_within(b, label, bound, [gate, up]))
}

/// The matrices of this role, stored as a separate tensor.
fn projection(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    role: WeightRole,
    width: usize,
) -> Result<Projection, Error> {
    let d_ff = experts.d_ff;
    let shape = [experts.n_experts, d_ff, width];
    let weight = match are_stacked(b) {
        true => b.stacked_experts(role, shape)?,
        false => b.experts(role, shape)?,
    };
    let bias = bias(b, experts, role, d_ff)?;
    Ok((weight, bias, scale(b, experts, role)?))
}

/// Scores, and the choice by them.
pub(in crate::arch) fn route(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    let n_experts = experts.n_experts;
    let size = (n_experts, experts.biases);
    let mut scores = b.linear("ffn_router", WeightRole::Router, size, x)?;
    if let Some(cap) = experts.softcap {
        let bound = Softcap { cap };
        scores = b.push("ffn_router_softcap", bound.into(), vec![scores], n_experts);
    }
    choose(b, experts, scores)
}

/// The choice by given scores.
pub(in crate::arch) fn choose(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    scores: ValueId,
) -> Result<ValueId, Error> {
    let n_experts = experts.n_experts;
    let bias = match experts.choice_bias {
        true if b.has_role(WeightRole::ChoiceBias) => {
            Some(b.vector(WeightRole::ChoiceBias, n_experts)?)
        }
        true => {
            // llama.cpp's converter keeps the row of folders that have one.
            let is_row = match b.rank_of(b.name_of(WeightRole::RouterBias).bias()) {
                Some(rank) => rank == 2,
                None => b.stored(b.name_of(WeightRole::RouterBias).bias()).is_row,
            };
            let shape = if is_row {
                vec![1, n_experts]
            } else {
                vec![n_experts]
            };
            Some(b.bias(WeightRole::RouterBias, &shape)?)
        }
        false => None,
    };
    let route = Route {
        n_experts,
        n_used: experts.n_used,
        gating: experts.gating,
        bias,
        groups: experts.groups,
        normalized: experts.normalized,
        scale: experts.scale,
    };
    Ok(b.push("ffn_route", route.into(), vec![scores], 3 * experts.n_used))
}

/// A weight, its bias and its scale.
type Projection = (WeightId, Option<WeightId>, Option<WeightId>);

/// Gate and up projections, of one tensor or of two.
fn gates(b: &mut GraphBuilder<'_>, experts: &ExpertConfig) -> Result<[Projection; 2], Error> {
    let (n_experts, d_ff) = (experts.n_experts, experts.d_ff);
    let shape = [n_experts, d_ff, b.config().d_model];
    let roles = [WeightRole::ExpertsGate, WeightRole::ExpertsUp];
    let fused = b.name_of(WeightRole::ExpertsGateUp);
    let fused_shape = [n_experts, 2 * d_ff, shape[2]];
    let turned = turned_order(b, WeightRole::ExpertsGateUp, fused_shape);
    let mut out = Vec::with_capacity(2);
    for (index, role) in roles.into_iter().enumerate() {
        if let Some(order) = turned {
            out.push(turned_gate(b, experts, role, (order, index))?);
            continue;
        }
        if !b.has_own(fused) {
            out.push(projection(b, experts, role, b.config().d_model)?);
            continue;
        }
        let weight = b.rows_of((b.name_of(role), &shape), (fused, 2 * d_ff), index * d_ff)?;
        out.push((
            weight,
            bias(b, experts, role, d_ff)?,
            scale(b, experts, role)?,
        ));
    }
    Ok([out[0], out[1]])
}

/// The order of gates and up projections where the matrices of this role are transposed. `shape` is theirs otherwise.
fn turned_order(b: &GraphBuilder<'_>, role: WeightRole, shape: [usize; 3]) -> Option<GateOrder> {
    let order = b.family().hf_turned_experts.filter(|_| !b.is_gguf())?;
    let is_turned = match order {
        GateOrder::Alternating | GateOrder::GateFirstTurned => true,
        GateOrder::Stacked => false,
        // Published files have them transposed; transformers 5 transposes them back, and writes them so.
        GateOrder::GateFirst => {
            // The shape of square ones says nothing; that of the other tensor decides.
            let [n, rows, columns] = shape;
            let (role, shape) = match role {
                _ if rows != columns => (role, shape),
                WeightRole::ExpertsDown => (WeightRole::ExpertsGateUp, [n, 2 * columns, rows]),
                _ => (WeightRole::ExpertsDown, [n, columns, rows / 2]),
            };
            !b.has_shape(b.name_of(role), &shape)
        }
    };
    is_turned.then_some(order)
}

/// Whether the matrices of all experts lie below each other in one.
fn are_stacked(b: &GraphBuilder<'_>) -> bool {
    !b.is_gguf() && b.family().hf_turned_experts == Some(GateOrder::Stacked)
}

/// The gate or the up projection of the two in one, or of blocks and scales that are two tensors, and its bias.
fn turned_gate(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    role: WeightRole,
    (order, index): (GateOrder, usize),
) -> Result<Projection, Error> {
    let (n_experts, d_ff) = (experts.n_experts, experts.d_ff);
    let shape = [n_experts, d_ff, b.config().d_model];
    let (first, step) = match order {
        GateOrder::Alternating => (index, 2),
        _ => (index * d_ff, 1),
    };
    let roles = [role, WeightRole::ExpertsGateUp];
    let weight = turned(b, roles, shape, (first, step), 2 * d_ff)?;
    if !experts.biases {
        return Ok((weight, None, None));
    }
    let names = [role, WeightRole::ExpertsGateUp].map(|role| b.name_of(role).bias());
    let every = Derivation::EveryRow {
        first,
        step,
        n_rows: 2 * d_ff,
    };
    let bias = b.weight_from(
        names[0],
        names[1],
        &[n_experts, d_ff],
        WeightSource::Derived(every),
    )?;
    Ok((weight, Some(bias), None))
}

/// The weight known under the first role, read from a tensor of the second.
fn turned(
    b: &mut GraphBuilder<'_>,
    [role, tensor]: [WeightRole; 2],
    shape: [usize; 3],
    (first, step): (usize, usize),
    n_rows: usize,
) -> Result<WeightId, Error> {
    let derivation = match b.has_part(tensor, "_blocks") {
        true => Derivation::Mxfp4Parts {
            first,
            step,
            n_rows,
        },
        false => Derivation::Transposed {
            first,
            n_rows,
            step,
        },
    };
    let names = [role, tensor].map(|role| b.name_of(role));
    b.weight_from(
        names[0],
        names[1],
        &shape,
        WeightSource::Derived(derivation),
    )
}

fn bias(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    role: WeightRole,
    n: usize,
) -> Result<Option<WeightId>, Error> {
    match experts.biases {
        true => Ok(Some(b.bias(role, &[experts.n_experts, n])?)),
        false => Ok(None),
    }
}

/// A factor on each expert's products, where the file has them.
fn scale(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    role: WeightRole,
) -> Result<Option<WeightId>, Error> {
    let name = b.name_of(role).scale();
    match b.has_own(name) {
        true => Ok(Some(b.weight_from(
            name,
            name,
            &[experts.n_experts],
            Default::default(),
        )?)),
        false => Ok(None),
    }
}

fn product(
    b: &mut GraphBuilder<'_>,
    (label, n_used, own_rows): (&'static str, usize, bool),
    (weight, bias, scale): Projection,
    inputs: [ValueId; 2],
    width: usize,
) -> ValueId {
    let op = ExpertLinear {
        weight,
        bias,
        scale,
        n_used,
        own_rows,
    };
    b.push(label, op.into(), inputs.to_vec(), width)
}

/// The expert that every token uses, behind its gate if it has one.
fn shared(
    b: &mut GraphBuilder<'_>,
    experts: &ExpertConfig,
    inner: Inner,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_ff = experts.shared_d_ff;
    let keys = b.family().hf_experts;
    let biased = b.config().biases.ffn;
    let out = match (inner, b.has_role(WeightRole::SharedGateUp)) {
        (Inner::Plain, _) => feed_forward::plain_of(b, SHARED, (d_ff, biased), x)?,
        (_, true) => feed_forward::shared_in_one(b, d_ff, x)?,
        (Inner::Gated(bound), false) => {
            let biased = biased && keys.is_some_and(|keys| keys.shared_biases);
            feed_forward::gated_of(b, (SHARED, bound), (d_ff, biased), x)?
        }
    };
    if !experts.shared_gate {
        return Ok(out);
    }
    let d_model = b.config().d_model;
    let name = b.name_of(WeightRole::SharedRouter);
    // Older files of llama.cpp have the one row as a vector.
    let shape = match b.rank_of(name) {
        Some(1) => vec![d_model],
        _ => vec![1, d_model],
    };
    let weight = b.weight_from(name, name, &shape, Default::default())?;
    let gate = b.product("ffn_shexp_gate", (weight, None), x);
    Ok(b.push(
        "ffn_shexp_gated",
        ScaleByGate {
            function: GateFunction::Sigmoid,
        }
        .into(),
        vec![out, gate],
        d_model,
    ))
}
