//! Routes through the stream switches: checks that every stream finds ports along its whole way.
//!
//! Streams are circuit-switched here, one master port a stream and hop. Routing is the negotiated
//! congestion of PathFinder (McMurchie and Ebeling, 1995), which mlir-aie's router also follows:
//! route every stream by the cheapest tree, make links in excess dearer, repeat. A refusal says
//! that this found no routes, which for arrays of this size means that there are none or hardly any.

use super::ResourceReport;
use super::resources::TileAt;
use super::rule::{Findings, Rule, RuleFinding};
use crate::Machine;
use crate::program::{ChannelLink, Flat, Port};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rounds of negotiation.
const ROUNDS: u32 = 48;
/// Links looked at in all; beyond it routing is not examined.
const MAX_WORK: u64 = 1 << 25;

/// A link between neighbouring switches, in one direction.
struct Edge {
    from: usize,
    to: usize,
    ports: u32,
    used: u32,
    /// Past excess, which makes it dearer.
    history: u64,
}

/// The array's switches and links.
struct RouteGrid {
    cols: u32,
    rows: u32,
    edges: Vec<Edge>,
    /// Edges that leave each switch.
    out: Vec<Vec<usize>>,
}

/// A stream: its source switch, its sink switches, the links it takes.
struct Net {
    from: usize,
    to: Vec<usize>,
    edges: Vec<usize>,
}

/// Refuses a launch whose streams cannot all be routed.
pub(super) fn check(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    let mut grid = RouteGrid::new(machine);
    let mut nets: Vec<Net> = (flat.channels.iter())
        .filter(|c| c.decl.link == ChannelLink::Stream)
        .map(|c| {
            let from = grid.switch(flat, &c.from);
            let mut to: Vec<usize> = c.to.iter().map(|p| grid.switch(flat, p)).collect();
            to.sort_unstable();
            to.dedup();
            to.retain(|&sink| sink != from);
            Net {
                from,
                to,
                edges: Vec::new(),
            }
        })
        .collect();
    let mut work = MAX_WORK;
    for round in 0..ROUNDS {
        for net in &mut nets {
            grid.release(net);
            if grid.route(net, round, &mut work).is_none() {
                if work > 0 {
                    unreachable_sink(&grid, net, findings);
                }
                return;
            }
        }
        if grid.edges.iter().all(|e| e.used <= e.ports) {
            let most = grid.edges.iter().map(|e| e.used).max().unwrap_or(0);
            report.link_streams = report.link_streams.max(most.into());
            return;
        }
        for edge in &mut grid.edges {
            edge.history += u64::from(edge.used.saturating_sub(edge.ports));
        }
    }
    let excess = |e: &&Edge| e.used.saturating_sub(e.ports);
    if let Some(edge) = grid.edges.iter().max_by_key(excess) {
        let place = format!("{} to {}", grid.tile(edge.from), grid.tile(edge.to));
        let message = format!("{} streams over {} ports", edge.used, edge.ports);
        let finding =
            RuleFinding::new(Rule::Routes, message).numbers(edge.used.into(), edge.ports.into());
        let fix =
            "Broadcast instead of sending copies, or place users nearer to their memory tiles";
        findings.add("routes", place, finding.fix(fix));
    }
}

fn unreachable_sink(grid: &RouteGrid, net: &Net, findings: &mut Findings) {
    let place = format!("a stream from {}", grid.tile(net.from));
    let finding = RuleFinding::new(Rule::Routes, "no ports lead to all of its sinks");
    findings.add("routes", place, finding.fix("Move its source or its sinks"));
}

impl RouteGrid {
    fn new(machine: &Machine) -> RouteGrid {
        let levels = machine.rows as usize + 2;
        let mut grid = RouteGrid {
            cols: machine.cols,
            rows: machine.rows,
            edges: Vec::new(),
            out: vec![Vec::new(); machine.cols as usize * levels],
        };
        for col in 0..machine.cols as usize {
            for level in 0..levels {
                let ports = match level {
                    0 => machine.shim.ports,
                    1 => machine.memory.ports,
                    _ => machine.core.ports,
                };
                let here = col * levels + level;
                if level + 1 < levels {
                    grid.link(here, here + 1, ports.north);
                }
                if level > 0 {
                    grid.link(here, here - 1, ports.south);
                }
                if col + 1 < machine.cols as usize {
                    grid.link(here, here + levels, ports.east);
                }
                if col > 0 {
                    grid.link(here, here - levels, ports.west);
                }
            }
        }
        grid
    }

    fn link(&mut self, from: usize, to: usize, ports: u32) {
        if ports > 0 {
            self.out[from].push(self.edges.len());
            self.edges.push(Edge {
                from,
                to,
                ports,
                used: 0,
                history: 0,
            });
        }
    }

    fn switch(&self, flat: &Flat<'_>, port: &Port) -> usize {
        let levels = self.rows as usize + 2;
        let (col, level) = match *port {
            Port::Shim { col } => (col, 0),
            Port::Memory { col, .. } => (col, 1),
            Port::Core { core } => (flat.cores[core].col, flat.cores[core].row + 2),
        };
        col as usize * levels + level as usize
    }

    fn tile(&self, switch: usize) -> TileAt {
        let levels = self.rows as usize + 2;
        let col = (switch / levels) as u32;
        debug_assert!(col < self.cols);
        match switch % levels {
            0 => TileAt::Shim(col),
            1 => TileAt::Memory(col),
            level => TileAt::Core(col, level as u32 - 2),
        }
    }

    fn release(&mut self, net: &mut Net) {
        for edge in net.edges.drain(..) {
            self.edges[edge].used -= 1;
        }
    }

    /// Cost of taking a link in a round: excess costs more from round to round.
    fn cost(&self, edge: usize, round: u32) -> u64 {
        let edge = &self.edges[edge];
        let over = u64::from((edge.used + 1).saturating_sub(edge.ports));
        (16 + 8 * edge.history) * (1 + over * u64::from(round + 1))
    }

    /// Grows a tree from the source, to the nearest sink first. `None` if there is no way, or the budget ran out.
    fn route(&mut self, net: &mut Net, round: u32, work: &mut u64) -> Option<()> {
        let n = self.out.len();
        let mut in_tree = vec![false; n];
        in_tree[net.from] = true;
        let mut left = net.to.clone();
        while !left.is_empty() {
            let mut best = vec![u64::MAX; n];
            let mut by = vec![usize::MAX; n];
            let mut heap = BinaryHeap::new();
            for switch in (0..n).filter(|&s| in_tree[s]) {
                best[switch] = 0;
                heap.push(Reverse((0, switch)));
            }
            let mut reached = None;
            while let Some(Reverse((cost, switch))) = heap.pop() {
                if cost > best[switch] {
                    continue;
                }
                if left.contains(&switch) {
                    reached = Some(switch);
                    break;
                }
                for &edge in &self.out[switch] {
                    if *work == 0 {
                        return None;
                    }
                    *work -= 1;
                    let (to, cost) = (self.edges[edge].to, cost + self.cost(edge, round));
                    if cost < best[to] {
                        best[to] = cost;
                        by[to] = edge;
                        heap.push(Reverse((cost, to)));
                    }
                }
            }
            let mut at = reached?;
            left.retain(|&sink| sink != at);
            while !in_tree[at] {
                in_tree[at] = true;
                let edge = by[at];
                self.edges[edge].used += 1;
                net.edges.push(edge);
                at = self.edges[edge].from;
            }
        }
        Some(())
    }
}
