//! `millrace explain`: shows where every op runs, and why.

mod op;
mod report;
mod rows;
mod summary;
mod weights;

use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Out, Paint, Ui};
use crate::plan_args::{PlanArgs, PlanSubject};
use millrace_plan::{PassKind, Plan, Planner};
use serde_json::{Value, json};
use summary::ExplainSummary;
use weights::WeightSummary;

const EXAMPLES: &str = "\
Examples:
  millrace explain demo                                      prompt and token: op, device, program, why
  millrace explain --geometry llama-3.2-1b --mode mlir-air  the published stack's programs and slots
  millrace explain --geometry qwen2.5-0.5b --op attn_q       one op in detail, or why the CPU runs it
  millrace explain --geometry llama-3.2-1b --set core.data_bytes=16384
                                                             ops that do not fit a smaller core
  millrace explain model.gguf --prompt-tokens 5000 --json    every chunk of a long prompt, as JSON

Without --mode the file's weights decide the mode, and the first lines say which and why. Mode int4 keeps a
file of mostly 4-bit weights in 4 bits, where mode fast expands them to bf16. Next comes the conversion of
each quantised format.

A summary comes first, then every op; layers that run alike share one row (`0–15`). A CPU row says why the
array does not run the op, an array row why a program begins there. The published stack is mlir-air's
for Llama-3.2-1B (`programming_examples/llama32_1b`).";

/// Explain where each op of a model runs, and why
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// Prompt lengths to explain
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "2048", value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    prompt_tokens: Vec<u64>,
    /// One op in detail (`attn_q`, `ffn_down`, `lm_head`)
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    plan: PlanArgs,
}

/// A plan to explain.
struct PlanCase<'a> {
    planned: &'a PlanSubject,
    planner: &'a dyn Planner,
    kind: PassKind,
    plan: Plan,
}

pub(crate) fn run(args: &ExplainArgs, ui: Ui) -> CommandResult {
    let planned = args.plan.read(ui)?;
    let planner = args.plan.target.planner(planned.graph())?;
    let machine = planner.machine();
    let cases = plan_cases(&planned, &*planner, &args.prompt_tokens)?;
    if let Some(name) = &args.op {
        check_op(name, &planned)?;
    }
    let summary = match args.op {
        Some(_) => None,
        None => ExplainSummary::of(&cases, &args.prompt_tokens)?,
    };
    let (target, graph) = (args.plan.target.device, planned.graph());
    let reason = args.plan.target.plans.reason(target, graph);
    let weights = WeightSummary::of(&cases);
    let mut out = Out::new();
    if args.json {
        let each = cases.iter().map(|case| match &args.op {
            Some(name) => op::json(case, name),
            None => report::json(case),
        });
        return out.json(&json!({
            "model": planned.name(),
            "machine": machine.name,
            "cols": machine.cols,
            "rows": machine.rows,
            "mode": planner.mode(),
            "mode_reason": reason,
            "weights": weights.json(),
            "summary": summary.map(|summary| summary.json(&cases)),
            "plans": each.collect::<Vec<Value>>(),
        }));
    }
    out.line(format!(
        "{} on {} {} × {}, mode {}",
        Paint::Bold.stdout(planned.name()),
        machine.name,
        machine.cols,
        machine.rows,
        planner.mode()
    ))?;
    if let Some(reason) = &reason {
        out.line(format!("  mode {}: {reason}", planner.mode()))?;
    }
    weights.print(&mut out)?;
    if let Some(summary) = &summary {
        summary.print(&cases, &mut out)?;
    }
    for case in &cases {
        match &args.op {
            Some(name) => op::print(case, name, &mut out)?,
            None => report::print(case, &mut out)?,
        }
    }
    out.flush()
}

/// Plans for prompts of these lengths, and for a token after the longest.
fn plan_cases<'a>(
    planned: &'a PlanSubject,
    planner: &'a dyn Planner,
    prompt_tokens: &[u64],
) -> CommandResult<Vec<PlanCase<'a>>> {
    let sequences = planned.sequences(planner, prompt_tokens);
    let mut kinds = sequences.prefills(prompt_tokens);
    let longest = prompt_tokens.iter().copied().max();
    kinds.push(sequences.decode(longest.unwrap_or(0)));
    let case = |kind: PassKind| {
        Ok(PlanCase {
            planned,
            planner,
            kind,
            plan: planner.lower(planned.graph(), &kind)?,
        })
    };
    kinds.into_iter().map(case).collect()
}

fn check_op(name: &str, planned: &PlanSubject) -> CommandResult {
    let mut labels: Vec<&str> = planned.graph().nodes.iter().map(|n| n.label).collect();
    if labels.contains(&name) {
        return Ok(());
    }
    labels.sort_unstable();
    labels.dedup();
    Err(
        CommandFailure::not_found(format!("{} has no op `{name}`", planned.name()))
            .hint(format!("its ops are {}", labels.join(", "))),
    )
}
