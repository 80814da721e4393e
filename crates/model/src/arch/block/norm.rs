//! Norms.

use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{Derivation, LayerNorm, RmsNorm, ValueId, WeightSource};

/// The family's norm of the stream.
pub(crate) fn stream(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    role: WeightRole,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    match b.family().layer_norms {
        true => layer(b, label, (role, d_model), x),
        false => rms(b, label, (role, d_model), x),
    }
}

/// RMSNorm without a weight of x over groups of the given size.
pub(crate) fn bare(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    group: usize,
    x: ValueId,
) -> ValueId {
    let norm = RmsNorm {
        weight: b.ones(group),
        eps: b.config().norm_eps,
        offset: 0.0,
        group,
    };
    let width = b.width(x);
    b.push(label, norm.into(), vec![x], width)
}

/// LayerNorm of x over groups of the given size, with a bias where the files have one.
pub(crate) fn layer(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    (role, group): (WeightRole, usize),
    x: ValueId,
) -> Result<ValueId, Error> {
    let name = b.name_of(role);
    let weight = match b.norm_offset(role) == 1.0 {
        // The op adds nothing to weights.
        true => {
            let source = WeightSource::Derived(Derivation::PlusOne);
            b.weight_from(name, name, &[group], source)?
        }
        false => b.vector(role, group)?,
    };
    let bias = match b.has_own(name.bias()) {
        true => Some(b.bias(role, &[group])?),
        false => None,
    };
    let norm = LayerNorm {
        weight: Some(weight),
        bias,
        eps: b.config().norm_eps,
        group,
    };
    let width = b.width(x);
    Ok(b.push(label, norm.into(), vec![x], width))
}

/// LayerNorm of the stream without weight and bias.
pub(crate) fn bare_layer(b: &mut GraphBuilder<'_>, label: &'static str, x: ValueId) -> ValueId {
    let width = b.width(x);
    let norm = LayerNorm {
        weight: None,
        bias: None,
        eps: b.config().norm_eps,
        group: width,
    };
    b.push(label, norm.into(), vec![x], width)
}

/// LayerNorm without a bias of each head of x, whose weights are a row of `[n_heads, head_dim]`.
pub(crate) fn layer_of_heads(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    (role, shape): (WeightRole, [usize; 2]),
    x: ValueId,
) -> Result<ValueId, Error> {
    let name = b.name_of(role);
    let weight = b.weight_from(name, name, &shape, WeightSource::Whole)?;
    let norm = LayerNorm {
        weight: Some(weight),
        bias: None,
        eps: b.config().norm_eps,
        group: shape[1],
    };
    let width = b.width(x);
    Ok(b.push(label, norm.into(), vec![x], width))
}

/// RMSNorm of x over groups of the given size.
pub(crate) fn rms(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    (role, group): (WeightRole, usize),
    x: ValueId,
) -> Result<ValueId, Error> {
    let eps = b.config().norm_eps;
    rms_with(label, (role, group), eps, b, x)
}

/// RMSNorm with a given epsilon.
pub(crate) fn rms_with(
    label: &'static str,
    (role, group): (WeightRole, usize),
    eps: f32,
    b: &mut GraphBuilder<'_>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let weight = b.vector(role, group)?;
    let norm = RmsNorm {
        weight,
        eps,
        offset: b.norm_offset(role),
        group,
    };
    let width = b.width(x);
    Ok(b.push(label, norm.into(), vec![x], width))
}
