//! Report of a whole plan: ops, programs, slots.

use super::PlanCase;
use super::rows::{OpRow, folded};
use crate::exit::CommandResult;
use crate::output::{Align, Out, Paint, TextTable};
use crate::plan_text::{launches_json, sets_text, slot_table, slots_json};
use millrace_plan::{NodePlace, Placement};
use serde_json::{Value, json};

pub(super) fn print(case: &PlanCase<'_>, out: &mut Out) -> CommandResult {
    let plan = &case.plan;
    let n_calls = plan.dispatches(case.planned.graph());
    let on_host = plan.placement.iter().filter(|p| p.place == NodePlace::Host);
    out.line("")?;
    out.line(format!(
        "{}: {n_calls} dispatches of {} programs; {} of {} ops on the CPU",
        Paint::Bold.stdout(&case.kind.name()),
        plan.programs.len(),
        on_host.count(),
        plan.placement.len(),
    ))?;
    let mut table = TextTable::new(&[
        ("layers", Align::Right),
        ("op", Align::Left),
        ("device", Align::Left),
        ("program", Align::Left),
        ("launch", Align::Left),
        ("why", Align::Left),
    ]);
    for row in folded(case) {
        table.row(vec![
            row.layers_text(),
            row.op.to_owned(),
            row.device().to_owned(),
            row.program
                .as_ref()
                .map_or_else(String::new, |p| p.0.clone()),
            row.launch_text(),
            row.reason,
        ]);
    }
    table.print(out)?;
    for (index, planned) in plan.programs.iter().enumerate() {
        let calls: Vec<&str> = plan
            .calls()
            .filter(|call| call.program == index)
            .map(|call| call.set.as_str())
            .collect();
        out.line("")?;
        out.line(format!(
            "  {}  {} launches  {}  {}",
            Paint::Bold.stdout(planned.name()),
            planned.launches.len(),
            sets_text(planned.slots()),
            buffer_sets(&calls),
        ))?;
        slot_table(plan, index, case.planned.graph()).print(out)?;
    }
    Ok(())
}

/// `16 buffer sets rms_gemms_rope_L0 … rms_gemms_rope_L15`.
fn buffer_sets(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("buffer set {one}"),
        [first, .., last] => format!("{} buffer sets {first} … {last}", names.len()),
    }
}

pub(super) fn json(case: &PlanCase<'_>) -> Value {
    let (plan, graph) = (&case.plan, case.planned.graph());
    let ops = plan.placement.iter().map(|p| op_json(case, p));
    let programs = plan.programs.iter().enumerate().map(|(index, planned)| {
        let calls = plan.calls().filter(|call| call.program == index);
        json!({
            "name": planned.name(),
            "launches": launches_json(case.planner, planned),
            "slots": slots_json(plan, index, graph),
            "buffer_sets": calls.map(|call| &call.set).collect::<Vec<_>>(),
        })
    });
    json!({
        "name": case.kind.name(),
        "n_tokens": plan.n_tokens,
        "n_dispatches": plan.dispatches(graph),
        "ops": ops.collect::<Vec<_>>(),
        "folded": folded(case).iter().map(row_json).collect::<Vec<_>>(),
        "programs": programs.collect::<Vec<_>>(),
    })
}

fn row_json(row: &OpRow) -> Value {
    json!({
        "first_layer": row.layers.map(|(first, _)| first),
        "last_layer": row.layers.map(|(_, last)| last),
        "op": row.op,
        "device": row.device(),
        "program": row.program.as_ref().map(|p| &p.0),
        "reason": row.reason,
    })
}

/// One op of the graph.
pub(super) fn op_json(case: &PlanCase<'_>, placement: &Placement) -> Value {
    let node = &case.planned.graph().nodes[placement.node];
    let (device, program, launches, set) = match &placement.place {
        NodePlace::Host => ("CPU", None, None, None),
        NodePlace::Device(device) => {
            let planned = &case.plan.programs[device.program];
            let call = case.plan.call_at(device.step);
            (
                "array",
                Some(planned.name()),
                Some([device.computed_by().start, device.computed_by().end]),
                call.map(|call| &call.set),
            )
        }
    };
    json!({
        "node": placement.node,
        "op": node.label,
        "layer": node.layer,
        "device": device,
        "program": program,
        "launches": launches,
        "buffer_set": set,
        "reason": placement.reason,
    })
}
