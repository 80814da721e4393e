//! Destinations of streams by the routes of a text.

use super::{Switch, Switches};
use crate::design::{Design, Flow};
use crate::syntax::SyntaxError;
use millrace_xdna2_words::port::{self, SwitchPort};
use millrace_xdna2_words::router::TilePort;
use millrace_xdna2_words::tile::Direction;
use std::collections::BTreeSet;

/// Tiles that a way may pass before it counts as a ring.
const MOST_HOPS: usize = 256;

/// Flows that the design has must end where the routes lead; a design without flows has those of the routes.
pub(super) fn compare(design: &mut Design, switches: &Switches) -> Result<(), SyntaxError> {
    if design.flows.is_empty() {
        design.flows = switches.flows();
        return Ok(());
    }
    for flow in &design.flows {
        let fail = |problem: String| {
            let problem = format!(
                "{}: {problem}; a text gives all of its routes, or none",
                flow.name
            );
            SyntaxError::new(flow.at, problem)
        };
        let ends = switches.ends(flow.from, flow.packet).map_err(&fail)?;
        let wanted: BTreeSet<TilePort> = flow.to.iter().copied().collect();
        if ends == wanted {
            continue;
        }
        let shown = |ends: &BTreeSet<TilePort>| {
            let ends = ends
                .iter()
                .map(|end| format!("{} of {}", end.port, end.tile));
            let ends: Vec<String> = ends.collect();
            match ends.is_empty() {
                true => "nowhere".to_owned(),
                false => format!("to {}", ends.join(", ")),
            }
        };
        return Err(fail(format!(
            "it goes {}, and the routes of the text lead {}",
            shown(&wanted),
            shown(&ends)
        )));
    }
    unasked(design, switches)
}

/// Refuses routes from a DMA channel that no flow names: the text contradicts itself.
fn unasked(design: &Design, switches: &Switches) -> Result<(), SyntaxError> {
    for route in switches.flows() {
        let is_asked = design.flows.iter().any(|flow| {
            flow.from == route.from
                && flow.packet.is_some() == route.packet.is_some()
                && flow.to.iter().any(|end| route.to.contains(end))
        });
        let Some(end) = route.to.first().filter(|_| !is_asked) else {
            continue;
        };
        let problem = format!(
            "{}: the routes of the text lead it to {} of {}, and no flow of the design does; a text gives all of its flows, or none",
            route.name, end.port, end.tile
        );
        return Err(SyntaxError::new(route.at, problem).in_op("aie.switchbox"));
    }
    Ok(())
}

impl Switches {
    /// The ports by which words that enter at `from` leave the array's switches.
    fn ends(&self, from: TilePort, id: Option<u8>) -> Result<BTreeSet<TilePort>, String> {
        let mut ends = BTreeSet::new();
        self.follow(from, id, MOST_HOPS, &mut ends)?;
        Ok(ends)
    }

    fn follow(
        &self,
        from: TilePort,
        id: Option<u8>,
        hops_left: usize,
        ends: &mut BTreeSet<TilePort>,
    ) -> Result<(), String> {
        let Some(hops_left) = hops_left.checked_sub(1) else {
            return Err("the routes of the text are a ring".to_owned());
        };
        let TilePort { tile, port } = from;
        let masters = self.tiles.get(&tile).map(|switch| switch.leads(port, id));
        let masters = masters.unwrap_or_default();
        if masters.is_empty() {
            return Err(format!(
                "the routes of the text lead nowhere from {port} of {tile}"
            ));
        }
        for master in masters {
            match port::next(tile, master) {
                Some((tile, port)) => {
                    self.follow(TilePort { tile, port }, id, hops_left, ends)?;
                }
                None => _ = ends.insert(TilePort { tile, port: master }),
            }
        }
        Ok(())
    }

    /// The streams of all DMA channels.
    fn flows(&self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (&tile, switch) in &self.tiles {
            for number in 0..tile.kind().channels() {
                let Some(port) = port::of_dma(tile.kind(), Direction::Mm2s, number) else {
                    continue;
                };
                let packets = switch.rules(port).iter().map(|rule| Some(rule.id));
                let circuit = switch.circuits.iter().any(|row| row.0 == port);
                for packet in packets.chain(circuit.then_some(None)) {
                    let from = TilePort { tile, port };
                    // A way that leads nowhere is reported by the sender of its words.
                    let to = self.ends(from, packet).unwrap_or_default();
                    let what = match packet {
                        Some(id) => format!("the packets {id}"),
                        None => "the flow".to_owned(),
                    };
                    flows.push(Flow {
                        name: format!("{what} from {port} of {tile}"),
                        from,
                        to: to.into_iter().collect(),
                        packet,
                        keeps_header: false,
                        at: switch.at,
                    });
                }
            }
        }
        flows
    }
}

impl Switch {
    /// The masters by which words that enter a slave leave. Packets pass circuits as all words do.
    fn leads(&self, slave: SwitchPort, id: Option<u8>) -> Vec<SwitchPort> {
        let circuits = self.circuits.iter().filter(|row| row.0 == slave);
        let mut masters: Vec<SwitchPort> = circuits.map(|row| row.1).collect();
        let rules = self.rules(slave).iter();
        let rule = id.and_then(|id| {
            let mut rules = rules.filter(|rule| (rule.id ^ id) & rule.mask == 0);
            rules.next()
        });
        if let Some(rule) = rule {
            let takes = self.masters.iter().filter(|master| {
                master.arbiter == rule.arbiter && master.selections >> rule.selection & 1 == 1
            });
            masters.extend(takes.map(|master| master.port));
        }
        masters
    }
}
