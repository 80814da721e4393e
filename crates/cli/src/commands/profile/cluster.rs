//! A model on several devices of a kind.

use super::subject::ProfileSubject;
use super::{ProfileArgs, failed};
use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Out, Paint};
use millrace_plan::predict::{PromptWorkload, cells};
use millrace_plan::units::{bytes, duration};
use millrace_plan::{ClusterCost, ClusterRequest, Settings};

/// Prompt length for a shape, by default.
const PROMPT_TOKENS: u64 = 512;

pub(super) fn run(
    args: &ProfileArgs,
    subject: &ProfileSubject,
    settings: &Settings,
    n_devices: u64,
) -> CommandResult {
    let target = args.target.device;
    let prompt_tokens = args.prompt_tokens.unwrap_or(PROMPT_TOKENS);
    let work = PromptWorkload {
        context: args.context.unwrap_or(prompt_tokens),
        ..PromptWorkload::new(prompt_tokens)
    };
    let request = ClusterRequest {
        config: &subject.model().config,
        settings,
        n_devices,
        parallel: &args.parallel,
        work,
    };
    let Some(cluster) = target.cluster() else {
        let message = format!("{} works on a model alone", target.title());
        return Err(CommandFailure::usage(message).hint("leave --chips out"));
    };
    let cost = cluster.cost(&request).map_err(failed)?;
    let mut out = Out::new();
    match args.json {
        true => out.json(&serde_json::json!({
            "model": subject.name(),
            "prompt_tokens": work.prompt_tokens,
            "context": work.context,
            "cost": cost,
        }))?,
        false => print(subject.name(), &work, &cost, &mut out)?,
    }
    out.flush()
}

fn print(model: &str, work: &PromptWorkload, cost: &ClusterCost, out: &mut Out) -> CommandResult {
    out.line(format!(
        "{} on {} × {}, {}",
        Paint::Bold.stdout(model),
        cost.n_devices,
        cost.machine,
        cost.parallel
    ))?;
    out.line(format!(
        "  memory   {} of weights on each of {}, {} of cache a token: {} tokens fit",
        bytes(cost.weight_bytes),
        bytes(cost.memory_bytes),
        bytes(cost.token_bytes),
        cells::count(cost.n_tokens)
    ))?;
    out.line(format!(
        "  prompt   {} for {} tokens, to the first token",
        duration(cost.ttft_ns),
        cells::count(work.prompt_tokens)
    ))?;
    out.line(format!(
        "  token    {} ({:.1} tokens/s) behind {} tokens; {} at the peak of memory",
        duration(cost.token_ns),
        1e9 / cost.token_ns,
        cells::count(work.context),
        duration(cost.token_roof_ns)
    ))?;
    out.line(format!("  times    {}, not measured", cost.provenance))
}
