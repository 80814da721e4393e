//! Experts: their number, and how a token chooses among them.

use millrace_graph::{Gating, RouteGroups};

use super::{Keys, factor};
use crate::Error;
use crate::arch::{ExpertDefaults, Family};
use crate::catalog::Catalog;
use crate::config::{ExpertConfig, MAX_LAYERS};
use crate::names::{TensorName, WeightRole};

pub(super) fn experts(
    family: &Family,
    keys: &Keys<'_>,
    catalog: &Catalog<'_>,
    n_layers: usize,
) -> Result<Option<ExpertConfig>, Error> {
    let Some(n_experts) = keys.usize("expert_count")?.filter(|n| *n > 0) else {
        return Ok(None);
    };
    let has = |name: TensorName| catalog.has(&name.gguf());
    let layers = 0..n_layers.min(MAX_LAYERS);
    // The first layer with experts shows the properties of all.
    let first = layers
        .clone()
        .find(|layer| has(TensorName::block(*layer, WeightRole::Router)));
    let first = first.unwrap_or(0);
    let d_ff = match keys
        .uniform("expert_feed_forward_length")?
        .filter(|n| *n > 0)
    {
        Some(d_ff) => d_ff,
        None => keys
            .leading(family, "feed_forward_length")?
            .ok_or_else(|| keys.missing("feed_forward_length"))?,
    };
    let normalized = match keys.bool("expert_weights_norm")? {
        Some(true) => Some(family.experts.normalized.unwrap_or(0.0)),
        Some(false) => None,
        None => family.experts.normalized,
    };
    let leading = keys.usize("leading_dense_block_count")?.unwrap_or(0);
    let is_dense = |layer: &usize| !has(TensorName::block(*layer, WeightRole::Router));
    let has_network = |layer: usize| has(TensorName::block(layer, WeightRole::FfnDown));
    let has_some = layers.clone().any(|layer| !is_dense(&layer));
    Ok(Some(ExpertConfig {
        n_experts,
        n_used: keys.required("expert_used_count")?,
        d_ff,
        gating: gating(keys, &family.experts)?,
        normalized,
        scale: factor(keys, "expert_weights_scale")?.unwrap_or(1.0),
        groups: groups(keys, &family.experts)?,
        // Without a layer of experts, any choice does: take the family's.
        choice_bias: has(TensorName::router_bias(first))
            || has(TensorName::block(first, WeightRole::ChoiceBias))
            || !has_some && family.hf_experts.is_some_and(|keys| keys.choice_bias),
        shared_d_ff: shared_d_ff(keys, first, d_ff)?,
        shared_gate: has(TensorName::block(first, WeightRole::SharedRouter)),
        n_dense_layers: leading,
        every: 1,
        // A layer without a router has no experts, even where the keys disagree. Where all lack it, the graph reports it
        // missing in those that have no network either.
        dense_layers: layers
            .filter(|l| *l >= leading && is_dense(l) && (has_some || has_network(*l)))
            .collect(),
        biases: has(TensorName::block(first, WeightRole::ExpertsDown).bias()),
        softcap: factor(keys, "router_logit_softcapping")?,
        latent_dim: keys.usize("moe_latent_size")?.unwrap_or(0),
    }))
}

/// Width of the expert that every token uses, 0 if there is none; `d_ff` is that of one expert.
fn shared_d_ff(keys: &Keys<'_>, layer: usize, d_ff: usize) -> Result<usize, Error> {
    let n_shared = keys.usize("expert_shared_count")?.unwrap_or(0);
    let said = keys.usize("expert_shared_feed_forward_length")?;
    if let Some(said) = said.filter(|n| *n > 0) {
        return Ok(said);
    }
    let name = TensorName::block(layer, WeightRole::SharedUp);
    // Where the key is absent, the tensor has the width.
    Ok(match keys.catalog.shape(&name.gguf()) {
        Some(&[d_ff, _]) => d_ff,
        _ => n_shared.saturating_mul(d_ff),
    })
}

fn gating(keys: &Keys<'_>, defaults: &ExpertDefaults) -> Result<Gating, Error> {
    match keys.usize("expert_gating_func")?.unwrap_or(0) {
        0 => Ok(defaults.gating),
        1 => Ok(Gating::Softmax),
        2 => Ok(Gating::Sigmoid),
        3 => Ok(Gating::SoftmaxChosen),
        other => {
            let feature = format!("`{}` = {other}", keys.key("expert_gating_func"));
            let supported = "1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)";
            Err(keys.unsupported(feature, supported))
        }
    }
}

fn groups(keys: &Keys<'_>, defaults: &ExpertDefaults) -> Result<Option<RouteGroups>, Error> {
    let n_groups = keys.usize("expert_group_count")?.filter(|n| *n > 1);
    let n_used = keys.usize("expert_group_used_count")?;
    let groups = n_groups.zip(n_used);
    Ok(groups.map(|(n_groups, n_used)| RouteGroups {
        n_groups,
        n_used,
        n_best: defaults.group_best,
    }))
}
