//! From counters to a launch's report: ports by name, and its bottleneck.

use super::engine::SimulationCounts;
use super::network::{TimingNetwork, Via};
use super::{CoreCounters, LaunchTiming, PortCounters};
use crate::program::{Flat, GridOrder, Port};
use crate::{Machine, Profile};
use millrace_plan::predict::Bottleneck;

/// The report of one launch.
pub(super) fn launch(
    flat: &Flat<'_>,
    machine: &Machine,
    profile: &Profile,
    network: &TimingNetwork<'_>,
    run: SimulationCounts,
    points: u64,
    points_simulated: u64,
) -> LaunchTiming {
    let cores = cores(flat, &run);
    LaunchTiming {
        name: flat.launch.name.clone(),
        ns: run.ns,
        points,
        points_simulated,
        extrapolated: run.extrapolated,
        bottleneck: bottleneck(flat, machine, profile, network, &run, points),
        ddr_read_bytes: run.read_bytes,
        ddr_write_bytes: run.write_bytes,
        objects: super::n_objects(flat.launch),
        configuration_bytes: super::configuration_bytes(flat, machine),
        cores,
        ports: ports(flat, &run),
    }
}

fn cores(flat: &Flat<'_>, run: &SimulationCounts) -> Vec<CoreCounters> {
    (flat.cores.iter().zip(&run.cores))
        .map(|(core, time)| CoreCounters {
            herd: core.decl.name.clone(),
            col: core.col,
            row: core.row,
            busy_ns: time.busy_ns,
            stall_in_ns: time.in_ns,
            stall_out_ns: time.out_ns,
            calls: time.calls as u64,
        })
        .collect()
}

fn ports(flat: &Flat<'_>, run: &SimulationCounts) -> Vec<PortCounters> {
    (run.channels.iter().enumerate())
        .map(|(id, &(bytes, busy_ns))| PortCounters {
            channel: flat.channel_name(id),
            route: route(flat, id),
            bytes,
            busy_ns,
        })
        .collect()
}

fn route(flat: &Flat<'_>, id: usize) -> String {
    let channel = &flat.channels[id];
    let place = |port: &Port| match *port {
        Port::Shim { col } => format!("DDR at shim {col}"),
        Port::Memory { col, .. } => format!("memory tile {col}"),
        Port::Core { core } => {
            let core = &flat.cores[core];
            format!("core ({}, {})", core.col, core.row)
        }
    };
    let from = place(&channel.from);
    match &channel.to[..] {
        [one] => format!("{from} -> {}", place(one)),
        many => format!("{from} -> {} cores", many.len()),
    }
}

fn bottleneck(
    flat: &Flat<'_>,
    machine: &Machine,
    profile: &Profile,
    network: &TimingNetwork<'_>,
    run: &SimulationCounts,
    points: u64,
) -> Bottleneck {
    let stream = machine.stream_bytes_per_s() / 1e9;
    let port = profile.shim.port_gb_per_s.min(stream);
    let mut found: Vec<(f64, String)> = Vec::new();
    for (core, time) in flat.cores.iter().zip(&run.cores) {
        let name = format!("core ({}, {}) of `{}`", core.col, core.row, core.decl.name);
        found.push((time.busy_ns, name));
    }
    found.push((run.ddr_ns, "DDR reads".into()));
    let moved = run.read_bytes + run.write_bytes;
    found.push((
        moved / profile.ddr.total_gb_per_s,
        "DDR reads and writes".into(),
    ));
    found.push((
        run.write_bytes / profile.ddr.write_gb_per_s,
        "DDR writes".into(),
    ));
    found.push((
        run.memory_channel_ns * (1.0 - 1e-9),
        "one memory channel of the DDR, on which all short bursts fall".into(),
    ));
    for (id, &(bytes, busy)) in run.channels.iter().enumerate() {
        let name = || format!("`{}` ({})", flat.channel_name(id), route(flat, id));
        match network.wires[id].via {
            Via::Read | Via::Write => {
                found.push((bytes / port, format!("shim channel {}", name())))
            }
            Via::Tiles => found.push((busy, format!("stream {}", name()))),
            Via::Shared => {}
        }
    }
    if flat.launch.order == GridOrder::Sequential {
        let ns = points as f64 * profile.dispatch.point_ns;
        found.push((ns, "the wait between grid points".into()));
    }
    let mut best = Bottleneck::default();
    for (ns, resource) in found {
        let utilization = if run.ns > 0.0 { ns / run.ns } else { 0.0 };
        if utilization > best.utilization {
            best = Bottleneck {
                resource,
                utilization,
            };
        }
    }
    best
}
