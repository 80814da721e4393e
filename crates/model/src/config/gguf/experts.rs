//! Experts: how many there are, and how a token chooses among them.

use millrace_graph::{Gating, RouteGroups};

use super::{Keys, factor};
use crate::Error;
use crate::arch::Family;
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
    // The first layer that has experts says what all have.
    let first = layers
        .clone()
        .find(|layer| has(TensorName::block(*layer, WeightRole::Router)));
    let first = first.unwrap_or(0);
    let defaults = &family.experts;
    let d_ff = match keys
        .uniform("expert_feed_forward_length")?
        .filter(|n| *n > 0)
    {
        Some(d_ff) => d_ff,
        None => keys
            .leading(family, "feed_forward_length")?
            .ok_or_else(|| keys.missing("feed_forward_length"))?,
    };
    let n_shared = keys.usize("expert_shared_count")?.unwrap_or(0);
    let shared_name = TensorName::block(first, WeightRole::SharedUp);
    let shared_d_ff = match keys
        .usize("expert_shared_feed_forward_length")?
        .filter(|n| *n > 0)
    {
        Some(d_ff) => d_ff,
        // The tensor knows where the key is absent.
        None => match catalog.shape(&shared_name.gguf()) {
            Some(&[d_ff, _]) => d_ff,
            _ => n_shared.saturating_mul(d_ff),
        },
    };
    let gating = match keys.usize("expert_gating_func")?.unwrap_or(0) {
        0 => defaults.gating,
        1 => Gating::Softmax,
        2 => Gating::Sigmoid,
        3 => Gating::SoftmaxChosen,
        other => {
            let feature = format!("`{}` = {other}", keys.key("expert_gating_func"));
            return Err(keys.unsupported(
                feature,
                "1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)",
            ));
        }
    };
    let normalized = match keys.bool("expert_weights_norm")? {
        Some(true) => Some(defaults.normalized.unwrap_or(0.0)),
        Some(false) => None,
        None => defaults.normalized,
    };
    let groups = match (
        keys.usize("expert_group_count")?,
        keys.usize("expert_group_used_count")?,
    ) {
        (Some(n_groups), Some(n_used)) if n_groups > 1 => Some(RouteGroups {
            n_groups,
            n_used,
            n_best: defaults.group_best,
        }),
        _ => None,
    };
    let leading = keys.usize("leading_dense_block_count")?.unwrap_or(0);
    let is_dense = |layer: &usize| !has(TensorName::block(*layer, WeightRole::Router));
    Ok(Some(ExpertConfig {
        n_experts,
        n_used: keys.required("expert_used_count")?,
        d_ff,
        gating,
        normalized,
        scale: factor(keys, "expert_weights_scale")?.unwrap_or(1.0),
        groups,
        choice_bias: has(TensorName::router_bias(first))
            || has(TensorName::block(first, WeightRole::ChoiceBias)),
        shared_d_ff,
        shared_gate: has(TensorName::block(first, WeightRole::SharedRouter)),
        n_dense_layers: leading,
        every: 1,
        // Whatever the keys say, a layer without a router has none; where all lack it, the graph names it.
        dense_layers: match layers.clone().all(|layer| is_dense(&layer)) {
            true => Vec::new(),
            false => layers.filter(|l| *l >= leading && is_dense(l)).collect(),
        },
        biases: has(TensorName::block(first, WeightRole::ExpertsDown).bias()),
        latent_dim: keys.usize("moe_latent_size")?.unwrap_or(0),
    }))
}
