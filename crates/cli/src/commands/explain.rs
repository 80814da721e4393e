//! `millrace explain`: where every op runs, and why.

mod op;
mod report;
mod rows;

use crate::exit::{Failure, Outcome};
use crate::output::{Out, Paint, Ui};
use crate::plan_args::{self, PlanArgs, Planned, Request, mode_name};
use millrace_xdna2::Machine;
use millrace_xdna2::compile::CompileError;
use millrace_xdna2::lower::{self, Phase, Plan};
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  millrace explain demo                                   both phases: op, device, program, launch, why
  millrace explain --geometry llama-3.2-1b --mode reference   the published stack's programs and slots
  millrace explain --geometry qwen2.5-0.5b --op attn_q     one op in detail, or why it is the CPU's
  millrace explain --geometry llama-3.2-1b --set core.data_bytes=16384   what does not fit a smaller tile
  millrace explain model.gguf --prompt-tokens 5000 --json  every chunk of a long prompt, as JSON

Layers that run alike are one row (`0–15`). The CPU's rows name the rule that sent the op there.";

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
    for request in plan_args::requests(features, &args.prompt_tokens) {
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
