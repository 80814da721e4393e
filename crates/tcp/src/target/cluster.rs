//! A model on several chips, with the plans of [`parallel`](crate::parallel).

use super::{machine, weights};
use crate::lower::TcpLowerOptions;
use crate::parallel::{ParallelModel, Plan, Split};
use millrace_plan::predict::{PredictError, PriceError};
use millrace_plan::{Choice, ClusterCost, ClusterRequest, SettingError};

/// Cost of `request`.
///
/// # Errors
/// A setting; chips that do not divide heads or layers, weights that do not fit.
pub(super) fn cost(request: &ClusterRequest<'_>) -> Result<ClusterCost, PredictError> {
    let setting = |error: SettingError| PredictError::Setting(error);
    let (machine, profile) = machine(request.settings).map_err(setting)?;
    let weights = weights(request.settings).map_err(setting)?;
    let (split, words) = match request.parallel {
        "pp" => (Split::Pipeline, "pipeline: each has some of the layers"),
        "tp" => (Split::Tensor, "tensor: each has a share of every layer"),
        other => {
            let ways = ["pp", "tp"].map(|way| Choice::new(way, ""));
            let unknown = SettingError::unknown(super::NAME, "parallel", other, &ways);
            return Err(PredictError::Setting(unknown));
        }
    };
    let model = ParallelModel {
        config: request.config,
        options: TcpLowerOptions::plain(weights),
        machine: &machine,
        profile: &profile,
    };
    let plan = Plan {
        split,
        n_chips: request.n_devices,
    };
    let wrong = |error: crate::parallel::PlanError| PriceError(error.to_string());
    let fit = model.fit(plan).map_err(wrong)?;
    let token = model
        .token(plan, 1, request.work.context + 1)
        .map_err(wrong)?;
    let prompt = model
        .prompt(plan, request.work.prompt_tokens)
        .map_err(wrong)?;
    let longest = request.work.prompt_tokens.max(request.work.context + 1);
    let n_tokens = fit.n_tokens.unwrap_or(0);
    if n_tokens < longest {
        let (n, limit) = (request.n_devices, machine.hbm_bytes);
        let problem = format!(
            "{longest} tokens of {} bytes each do not fit beside {} bytes of weights on each of {n} chips \
             of {limit} bytes: {n_tokens} do; take more chips, narrower weights or a shorter text",
            fit.token_bytes, fit.weight_bytes
        );
        return Err(PriceError(problem).into());
    }
    let read = fit.weight_bytes + fit.token_bytes * (request.work.context + 1);
    Ok(ClusterCost {
        machine: machine.name.clone(),
        n_devices: request.n_devices,
        parallel: words.to_owned(),
        memory_bytes: machine.hbm_bytes,
        weight_bytes: fit.weight_bytes,
        token_bytes: fit.token_bytes,
        n_tokens,
        ttft_ns: prompt.total_ns,
        token_ns: token.total_ns,
        token_roof_ns: (plan.n_stages() * read) as f64 / machine.hbm_gb_per_s,
        provenance: profile.provenance(),
    })
}
