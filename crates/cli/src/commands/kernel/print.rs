//! Output of `millrace kernel`.

use crate::exit::CommandResult;
use crate::output::{Align, Out, Paint, TextTable, duration};
use millrace_plan::{KernelReport, Sweep, Tone};
use serde_json::json;

/// Width of a line's label.
const LABEL: usize = 11;

pub(super) fn report(report: &KernelReport, as_json: bool) -> CommandResult {
    let mut out = Out::new();
    if as_json {
        out.json(&report.json)?;
        return out.flush();
    }
    let name = Paint::Bold.stdout(&report.name);
    out.line(format!("{name}  {}", report.heading))?;
    for line in &report.lines {
        let text: String = (line.text.iter())
            .map(|span| match span.tone {
                Tone::Plain => span.text.clone(),
                Tone::Strong => Paint::Bold.stdout(&span.text),
                Tone::Wrong => Paint::Error.stdout(&span.text),
            })
            .collect();
        out.line(format!("  {:<LABEL$} {text}", line.label))?;
    }
    out.flush()
}

pub(super) fn sweep(sweep: &Sweep, top: usize, as_json: bool) -> CommandResult {
    let mut out = Out::new();
    let shown = &sweep.tilings[..sweep.tilings.len().min(top)];
    if as_json {
        let rows = shown.iter().map(|r| {
            json!({ "tiling": r.tiling, "predicted_ns": r.ns,
                "tflop_per_s": r.tflop_per_s, "bottleneck": r.bottleneck, "default": r.is_default })
        });
        out.json(&json!({
            "kernel": sweep.kernel, "shape": sweep.shape, "profile": sweep.profile,
            "n_tilings": sweep.tilings.len(), "n_refused": sweep.n_refused, "tilings": rows.collect::<Vec<_>>(),
        }))?;
        return out.flush();
    }
    let mut table = TextTable::new(&[
        ("predicted", Align::Right),
        ("TFLOP/s", Align::Right),
        ("tiling", Align::Left),
        ("bound by", Align::Left),
    ]);
    for r in shown {
        let mark = if r.is_default { " (default)" } else { "" };
        table.row(vec![
            duration(r.ns),
            format!("{:.2}", r.tflop_per_s),
            format!("{}{mark}", r.tiling),
            r.bottleneck.clone(),
        ]);
    }
    table.print(&mut out)?;
    out.line(format!(
        "  {} tilings, {} shown, {} refused by the verifier; modelled({})",
        sweep.tilings.len(),
        shown.len(),
        sweep.n_refused,
        sweep.profile
    ))?;
    out.flush()
}
