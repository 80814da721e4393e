//! Reports of a run.

use crate::exit::CommandResult;
use crate::output::{Out, Paint, printable};
use millrace_aie::{Design, RunReport, Verdict};
use serde_json::json;

/// Result of a run, for programs.
pub(super) fn report_json(design: &Design, report: &RunReport) -> serde_json::Value {
    let outputs = report.outputs.iter().map(|output| {
        json!({ "argument": output.argument, "name": output.name, "bytes": output.bytes.len(), "first": output.shown })
    });
    let counters = report.counters;
    json!({
        "verdict": report.verdict.name(),
        "problem": report.problem,
        "orders": report.orders,
        "untried_orders": report.n_untried,
        "failing_order": report.failing_order,
        "device": design.device,
        "ring": report.ring,
        "waits": report.waits,
        "left": report.left,
        "outputs": outputs.collect::<Vec<_>>(),
        "unknown_kernels": report.unknown_kernels,
        "notes": report.notes,
        "counters": {
            "rounds": counters.rounds,
            "tasks": counters.pushes,
            "descriptor_executions": counters.executions,
            "dma_words": counters.words,
            "tokens": counters.tokens,
        },
    })
}

/// Result of a run, for people.
pub(super) fn print_report(design: &Design, report: &RunReport, out: &mut Out) -> CommandResult {
    out.line(printable(&design.summary()))?;
    for note in &report.notes {
        out.line(printable(&format!("  {note}")))?;
    }
    for name in &report.unknown_kernels {
        out.line(format!(
            "  @{name} is not known: data moves, values are not computed"
        ))?;
    }
    if !report.verdict.is_pass() {
        return print_verdict(report, out);
    }
    let verdict = Paint::Bold.stdout(report.verdict.name());
    let counters = report.counters;
    let is_slow = |order: &&String| order.ends_with("slowest");
    let n_slow = report.orders.iter().filter(is_slow).count();
    out.line(format!(
        "{verdict} in {} orders of actors, {n_slow} of them with somebody slowest: {} tasks, {} executions of descriptors, {} words by DMA",
        report.orders.len(),
        counters.pushes,
        counters.executions,
        counters.words
    ))?;
    if report.n_untried > 0 {
        let n = report.n_untried;
        out.line(format!(
            "  {n} more with somebody slowest were not tried (--slow-orders)"
        ))?;
    }
    if report.verdict == Verdict::PassOnOwnRoutes {
        out.line(
            "  packet streams go by routes that the text does not give: with those of another router, which share arbiters, it may hang",
        )?;
    }
    let has_values = report.unknown_kernels.is_empty();
    for output in report.outputs.iter().filter(|_| has_values) {
        out.line(format!(
            "  %{} (argument {}): {}",
            output.name, output.argument, output.shown
        ))?;
    }
    Ok(())
}

/// Prints the fault, the order of actors it appeared in, and the cycle of waits.
pub(super) fn print_verdict(report: &RunReport, out: &mut Out) -> CommandResult {
    let verdict = Paint::Error.stdout(report.verdict.name());
    let problem = report.problem.as_deref().unwrap_or_default();
    out.line(format!("{verdict}: {}", printable(problem)))?;
    match &report.failing_order {
        Some(order) if report.verdict == Verdict::CannotTell => {
            let n = report.orders.len();
            out.line(format!(
                "  {n} orders of actors moved to their end, none hung; the first with other bytes is {order}"
            ))?;
        }
        Some(order) if !report.orders.is_empty() => {
            let n = report.orders.len();
            out.line(format!(
                "  it depends on who is slow: this is the order with {order}; {n} orders before it passed"
            ))?;
        }
        _ => {}
    }
    let mut ring = report.ring.iter();
    ring.try_for_each(|line| out.line(format!("  {}", printable(line))))
}
