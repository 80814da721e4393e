//! One op in detail.

use super::Case;
use super::report::op_json;
use super::rows::folded;
use crate::exit::Outcome;
use crate::output::{Align, Out, Paint, Table, bytes};
use crate::plan_text::{herds, herds_text, holds, layout, n_tiles, shape};
use millrace_xdna2::lower::{LogicalLaunch, Place, Placement};
use millrace_xdna2::verify::verify;
use millrace_xdna2::{Program, mapping};
use serde_json::{Value, json};

/// The op in every layer, by the graph's order.
fn placements<'c>(case: &'c Case<'_>, name: &str) -> impl Iterator<Item = &'c Placement> {
    let graph = case.planned.graph();
    let placements = case.plan.placement.iter();
    placements.filter(move |p| graph.nodes[p.node].label == name)
}

pub(super) fn print(case: &Case<'_>, name: &str, out: &mut Out) -> Outcome {
    out.line("")?;
    out.line(format!(
        "{}: {}",
        Paint::Bold.stdout(name),
        case.request.name()
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
    // One of each program stands for all.
    let mut shown = Vec::new();
    for placement in placements(case, name) {
        let Place::Device(device) = &placement.place else {
            continue;
        };
        let launches = device.computed_by();
        if shown.contains(&(device.program, launches.start)) {
            continue;
        }
        shown.push((device.program, launches.start));
        let planned = &case.plan.programs[device.program];
        for launch in &planned.launches[launches] {
            print_launch(case, device.step, &planned.program, launch, out)?;
        }
    }
    Ok(())
}

fn print_launch(
    case: &Case<'_>,
    step: usize,
    program: &Program,
    launch: &LogicalLaunch,
    out: &mut Out,
) -> Outcome {
    let physical = launch.physical.clone();
    let tiles = n_tiles(program, physical.clone());
    out.line("")?;
    out.line(format!(
        "  {} in {}",
        Paint::Bold.stdout(&launch.name),
        program.name
    ))?;
    let summary = mapping::find(launch.mapping).map_or("", |m| m.summary());
    for (what, text) in [
        ("kernel", format!("{}: {summary}", launch.mapping)),
        ("shape", launch.shape.to_string()),
        ("tiling", launch.tiling.to_string()),
        (
            "herds",
            format!(
                "{}, {tiles} of {} tiles",
                herds_text(&herds(program, physical.clone())),
                case.machine.n_cores()
            ),
        ),
        ("launches", physical.len().to_string()),
        ("limits", limits(case, launch)),
    ] {
        out.line(format!("    {what:<9} {text}"))?;
    }
    let mut table = Table::new(&[
        ("slot", Align::Right),
        ("name", Align::Left),
        ("role", Align::Left),
        ("shape", Align::Left),
        ("size", Align::Right),
        ("holds in its first call", Align::Left),
        ("layout", Align::Left),
    ]);
    let call = case.plan.call_at(step);
    for &number in &launch.slots {
        let slot = &program.slots[number];
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

/// The launch by itself, as its mapping builds it, against the machine's memories.
fn limits(case: &Case<'_>, launch: &LogicalLaunch) -> String {
    let machine = case.machine;
    let built = mapping::find(launch.mapping)
        .and_then(|m| m.build(&launch.shape, &launch.tiling, machine).ok());
    let used = built.and_then(|program| verify(&program, machine).ok());
    used.map_or_else(
        || "not examined".to_owned(),
        |used| {
            format!(
                "L1 {} of {}, L2 {} of {} a tile, {} locks",
                bytes(used.l1_bytes),
                bytes(machine.core.data_bytes),
                bytes(used.l2_bytes),
                bytes(machine.memory.data_bytes),
                used.locks
            )
        },
    )
}

pub(super) fn json(case: &Case<'_>, name: &str) -> Value {
    let each = placements(case, name).map(|placement| {
        let mut op = op_json(case, placement);
        if let Place::Device(device) = &placement.place {
            let planned = &case.plan.programs[device.program];
            let launches = &planned.launches[device.computed_by()];
            op["kernels"] = launches
                .iter()
                .map(|l| launch_json(&planned.program, l))
                .collect();
        }
        op
    });
    json!({
        "name": case.request.name(),
        "op": name,
        "nodes": each.collect::<Vec<_>>(),
    })
}

fn launch_json(program: &Program, launch: &LogicalLaunch) -> Value {
    json!({
        "name": launch.name,
        "kernel": launch.mapping,
        "shape": launch.shape,
        "tiling": launch.tiling,
        "herds": herds(program, launch.physical.clone()),
        "n_tiles": n_tiles(program, launch.physical.clone()),
        "slots": launch.slots,
    })
}
