//! One op in detail.

use super::PlanCase;
use super::report::op_json;
use super::rows::folded;
use crate::exit::CommandResult;
use crate::output::{Out, Paint, TextTable, bytes};
use crate::plan_text::{SLOT_COLUMNS, herds_text, holds, layout, shape};
use millrace_plan::{NodePlace, Placement, PlannedLaunch, PlannedProgram};
use serde_json::{Value, json};

/// Placements of the op in every layer, in graph order.
fn placements<'c>(case: &'c PlanCase<'_>, name: &str) -> impl Iterator<Item = &'c Placement> {
    let graph = case.planned.graph();
    let placements = case.plan.placement.iter();
    placements.filter(move |p| graph.nodes[p.node].label == name)
}

pub(super) fn print(case: &PlanCase<'_>, name: &str, out: &mut Out) -> CommandResult {
    out.line("")?;
    out.line(format!(
        "{}: {}",
        Paint::Bold.stdout(name),
        case.kind.name()
    ))?;
    for row in folded(case).into_iter().filter(|row| row.op == name) {
        let layers = match row.layers {
            None => String::new(),
            Some(_) => format!("layers {}: ", row.layers_text()),
        };
        let place = match &row.program {
            None => "the CPU".to_owned(),
            Some((program, ..)) => format!("{program}, launch {}", row.launch_text()),
        };
        out.line(format!("  {layers}{place}"))?;
        out.line(format!("  why: {}", row.reason))?;
    }
    // One placement per program represents all.
    let mut shown = Vec::new();
    for placement in placements(case, name) {
        let NodePlace::Device(device) = &placement.place else {
            continue;
        };
        let launches = device.computed_by();
        if shown.contains(&(device.program, launches.start)) {
            continue;
        }
        shown.push((device.program, launches.start));
        let planned = &case.plan.programs[device.program];
        for launch in &planned.launches[launches] {
            print_launch(case, device.step, planned, launch, out)?;
        }
    }
    Ok(())
}

fn print_launch(
    case: &PlanCase<'_>,
    step: usize,
    planned: &PlannedProgram,
    launch: &PlannedLaunch,
    out: &mut Out,
) -> CommandResult {
    let occupied = case.planner.occupied(planned, launch.physical.clone());
    let kernel = case.planner.kernel(launch);
    let machine = case.planner.machine();
    out.line("")?;
    out.line(format!(
        "  {} in {}",
        Paint::Bold.stdout(&launch.name),
        planned.name()
    ))?;
    for (what, text) in [
        ("kernel", format!("{}: {}", launch.kernel, kernel.summary)),
        ("shape", launch.shape.to_string()),
        ("tiling", launch.tiling.to_string()),
        (
            "herds",
            format!(
                "{}, {} of {} tiles",
                herds_text(&occupied.herds),
                occupied.n_cores,
                machine.cols * machine.rows
            ),
        ),
        ("launches", launch.physical.len().to_string()),
        ("limits", kernel.limits),
    ] {
        out.line(format!("    {what:<9} {text}"))?;
    }
    let mut table = TextTable::new(&SLOT_COLUMNS);
    let call = case.plan.call_at(step);
    for &number in &launch.slots {
        let slot = &planned.slots()[number];
        let binding = call.and_then(|call| call.bindings.get(number));
        table.row(vec![
            number.to_string(),
            slot.name.clone(),
            slot.role.name().to_owned(),
            shape(slot),
            bytes(slot.size_bytes().unwrap_or(0)),
            binding.map_or_else(String::new, |b| holds(b, case.planned.graph())),
            binding.map_or_else(String::new, layout),
        ]);
    }
    table.print(out)
}

pub(super) fn json(case: &PlanCase<'_>, name: &str) -> Value {
    let each = placements(case, name).map(|placement| {
        let mut op = op_json(case, placement);
        if let NodePlace::Device(device) = &placement.place {
            let planned = &case.plan.programs[device.program];
            let launches = &planned.launches[device.computed_by()];
            op["kernels"] = launches
                .iter()
                .map(|l| launch_json(case, planned, l))
                .collect();
        }
        op
    });
    json!({
        "name": case.kind.name(),
        "op": name,
        "nodes": each.collect::<Vec<_>>(),
    })
}

fn launch_json(case: &PlanCase<'_>, planned: &PlannedProgram, launch: &PlannedLaunch) -> Value {
    let occupied = case.planner.occupied(planned, launch.physical.clone());
    json!({
        "name": launch.name,
        "kernel": launch.kernel,
        "shape": launch.shape,
        "tiling": launch.tiling,
        "herds": occupied.herds,
        "n_tiles": occupied.n_cores,
        "slots": launch.slots,
    })
}
