//! `millrace explain`: where every op runs, and why.

mod op;
mod report;
mod rows;
mod summary;

use crate::exit::{Failure, Outcome};
use crate::output::{Out, Paint, Ui};
use crate::plan_args::{self, PlanArgs, Planned, Request, mode_name};
use millrace_xdna2::Machine;
use millrace_xdna2::compile::CompileError;
use millrace_xdna2::lower::{self, Phase, Plan};
use serde_json::{Value, json};
use summary::Summary;

const EXAMPLES: &str = "\
Examples:
  millrace explain demo                                      prompt and token: op, device, program, why
  millrace explain --geometry llama-3.2-1b --mode reference  the published stack's programs and slots
  millrace explain --geometry qwen2.5-0.5b --op attn_q       one op in detail, or why it is the CPU's
  millrace explain --geometry llama-3.2-1b --set core.data_bytes=16384
                                                             what does not fit a smaller core
  millrace explain model.gguf --prompt-tokens 5000 --json    every chunk of a long prompt, as JSON

A summary comes first, then every op: layers that run alike are one row (`0–15`). Rows of the CPU say why the
array does not take the op, rows of the array why a program begins there. The published stack is mlir-air's
for Llama-3.2-1B (`programming_examples/llama32_1b`).";

/// Explain where each op of a model runs, and why
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    plan: PlanArgs,
    /// Prompt lengths to explain
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "2048", value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    prompt_tokens: Vec<u64>,
    /// One op in detail (`attn_q`, `ffn_down`, `lm_head`)
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A plan to explain.
struct Case<'a> {
    planned: &'a Planned,
    machine: &'a Machine,
    request: Request,
    plan: Plan,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    let planned = args.plan.read(ui)?;
    let (machine, _) = args.plan.npu.machine()?;
    let features = args.plan.npu.features();
    let mut cases = Vec::new();
    let sequences = planned.sequences(&machine, features, &args.prompt_tokens);
    let mut requests = plan_args::of_prompts(&sequences, &args.prompt_tokens);
    let longest = args.prompt_tokens.iter().copied().max();
    requests.push(plan_args::of_token(&sequences, longest.unwrap_or(0)));
    for request in requests {
        let lower = match request.phase {
            Phase::Prefill => lower::prefill,
            Phase::Decode => lower::decode,
        };
        let plan = lower(planned.graph(), &machine, &request.options);
        cases.push(Case {
            planned: &planned,
            machine: &machine,
            request,
            plan: plan.map_err(CompileError::from)?,
        });
    }
    if let Some(name) = &args.op {
        check_op(name, &planned)?;
    }
    let summary = match args.op {
        Some(_) => None,
        None => Summary::of(&cases, &args.prompt_tokens)?,
    };
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
            "mode": mode_name(features),
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
        mode_name(features)
    ))?;
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

fn check_op(name: &str, planned: &Planned) -> Outcome {
    let mut labels: Vec<&str> = planned.graph().nodes.iter().map(|n| n.label).collect();
    if labels.contains(&name) {
        return Ok(());
    }
    labels.sort_unstable();
    labels.dedup();
    Err(
        Failure::not_found(format!("{} has no op `{name}`", planned.name()))
            .hint(format!("its ops are {}", labels.join(", "))),
    )
}
