//! `--bisect`: finds the first op whose own result is wrong.

use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Align, Out, Paint, TextTable, Ui};
use crate::progress::ProgressDisplay;
use millrace_plan::Phase;
use millrace_runtime::npu::{NpuModel, NpuSession};
use millrace_runtime::sampling::argmax;
use millrace_verify::ops::{CheckSummary, Finding, Mismatch, OpCheck};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn run(npu: &Arc<NpuModel>, prompt: &[u32], as_json: bool, ui: Ui) -> CommandResult {
    let found = check(npu, prompt, ui)?;
    let mut out = Out::new();
    if as_json {
        let mut report = to_json(&found);
        report["model"] = npu.model().name().into();
        report["device"] = npu.device_name().into();
        out.json(&report)?;
    } else {
        print(npu, &found, &mut out)?;
    }
    match &found.finding {
        None => Ok(()),
        Some(finding) => Err(CommandFailure::new(Exit::Failed, headline(finding))),
    }
}

/// Runs the prompt and one token after it, and checks every dispatch.
fn check(npu: &Arc<NpuModel>, prompt: &[u32], ui: Ui) -> CommandResult<CheckSummary> {
    let mut session = NpuSession::new(npu)?;
    let (check, observer) = OpCheck::new(npu);
    session.observe(Some(observer));
    let _progress = ProgressDisplay::spinner(ui, "checking every op");
    // A device that is badly wrong gives no logits at all, so findings are reported before that error.
    let passes = session.prefill(prompt).map(argmax);
    let passes = passes.and_then(|token| session.decode(token).map(|_| ()));
    let summary = check.summary()?;
    match passes {
        Err(error) if summary.finding.is_none() => Err(error.into()),
        _ => Ok(summary),
    }
}

fn print(npu: &NpuModel, found: &CheckSummary, out: &mut Out) -> CommandResult {
    out.line(format!(
        "{} on {}: {} ops computed again in f64, {} slots compared with where their bytes came from",
        npu.model().name(),
        npu.device_name(),
        found.n_ops,
        found.n_moved
    ))?;
    let mut table = TextTable::new(&[("op", Align::Left), ("error, % of tolerance", Align::Right)]);
    for (op, share) in &found.worst {
        table.row(vec![(*op).to_owned(), format!("{:.0}", 100.0 * share)]);
    }
    table.print(out)?;
    for (op, reason) in &found.unchecked {
        out.line(format!("  not looked at: {op}: {reason}"))?;
    }
    match &found.finding {
        None => out.line(format!(
            "{} every op is as near as its rounding allows",
            Paint::Good.stdout("PASS")
        ))?,
        Some(finding) => {
            out.line(format!(
                "{} {}",
                Paint::Error.stdout("FAIL"),
                headline(finding)
            ))?;
            for line in details(finding) {
                out.line(format!("  {line}"))?;
            }
        }
    }
    out.flush()
}

/// `attn_q of layer 3 is wrong`.
pub(crate) fn headline(finding: &Finding) -> String {
    let layer = finding
        .layer
        .map_or(String::new(), |layer| format!(" of layer {layer}"));
    let op = finding.op.unwrap_or("a weight");
    match &finding.what {
        Mismatch::Op { .. } => format!("{op}{layer} is wrong"),
        Mismatch::Static { .. } => format!(
            "slot {} (`{}`) of `{}` does not hold what was loaded",
            finding.slot, finding.slot_name, finding.program
        ),
        Mismatch::Value { .. } => {
            format!(
                "the value of {op}{layer} changes on its way to `{}`",
                finding.program
            )
        }
    }
}

fn details(finding: &Finding) -> Vec<String> {
    let phase = match finding.phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
    };
    let launch = finding.launch.as_ref();
    let launch = launch.map_or(String::new(), |launch| format!(", launch `{launch}`"));
    let mut lines = vec![
        format!(
            "where     {phase}, call {} (`{}`), program `{}`{launch}",
            finding.call, finding.set, finding.program
        ),
        format!("slot      {} (`{}`)", finding.slot, finding.slot_name),
    ];
    lines.push(match &finding.what {
        Mismatch::Op {
            row,
            col,
            expected,
            found,
            tolerance,
            n_wrong,
            n_elements,
        } => format!(
            "worst     row {row}, column {col}: expected {expected:.6}, found {found:.6}, \
             tolerance {tolerance:.6}; {n_wrong} of {n_elements} elements are wrong"
        ),
        Mismatch::Static { at, n_wrong } | Mismatch::Value { at, n_wrong } => {
            format!("bytes     {n_wrong} differ, the first at {at}")
        }
    });
    lines
}

/// Findings as JSON, without the name of the model.
pub(crate) fn to_json(found: &CheckSummary) -> Value {
    json!({
        "passes": found.finding.is_none(),
        "n_ops": found.n_ops,
        "n_moved": found.n_moved,
        "worst_share_of_tolerance": found.worst,
        "unchecked": found.unchecked,
        "finding": found.finding.as_ref().map(finding_json),
    })
}

fn finding_json(finding: &Finding) -> Value {
    let what = match &finding.what {
        Mismatch::Op {
            row,
            col,
            expected,
            found,
            tolerance,
            n_wrong,
            n_elements,
        } => json!({
            "kind": "op",
            "row": row,
            "col": col,
            "expected": expected,
            "found": found,
            "tolerance": tolerance,
            "n_wrong": n_wrong,
            "n_elements": n_elements,
        }),
        Mismatch::Static { at, n_wrong } => {
            json!({ "kind": "static", "first_byte": at, "n_wrong_bytes": n_wrong })
        }
        Mismatch::Value { at, n_wrong } => {
            json!({ "kind": "value", "first_byte": at, "n_wrong_bytes": n_wrong })
        }
    };
    json!({
        "phase": match finding.phase {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        },
        "call": finding.call,
        "program": finding.program,
        "buffer_set": finding.set,
        "launch": finding.launch,
        "slot": finding.slot,
        "slot_name": finding.slot_name,
        "op": finding.op,
        "node": finding.node,
        "layer": finding.layer,
        "what": what,
    })
}
