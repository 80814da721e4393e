//! Norms.

use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::{RmsNorm, ValueId};

/// RMSNorm of the stream.
pub(crate) fn stream(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    role: WeightRole,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    rms(b, label, (role, d_model), x)
}

/// RMSNorm of x over groups of so many elements.
pub(crate) fn rms(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    (role, group): (WeightRole, usize),
    x: ValueId,
) -> Result<ValueId, Error> {
    let weight = b.vector(role, group)?;
    let norm = RmsNorm {
        weight,
        eps: b.config().norm_eps,
        offset: b.norm_offset(),
        group,
    };
    let width = b.width(x);
    Ok(b.push(label, norm.into(), vec![x], width))
}
