//! Ways of streams, port by port.
//!
//! Negotiated congestion as in PathFinder (McMurchie and Ebeling, 1995), over master ports: each drives one wire. A
//! stream grows a tree from its source to the nearest sink first. Contested ports become dearer from round to round.
//! Packets share wires with one another, never with a circuit.

use crate::port::{self, Bundle, SwitchPort};
use crate::tile::Tile;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

/// Rounds of negotiation.
const ROUNDS: u32 = 64;
/// Ports of a switch, at most, of either kind.
const PORTS: usize = 32;
const NODES: usize = 48 * PORTS;

/// A port of a tile's switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TilePort {
    /// The tile.
    pub tile: Tile,
    /// The port.
    pub port: SwitchPort,
}

/// A slave port that feeds a master port of the same switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Join {
    /// The switch's tile.
    pub tile: Tile,
    /// The port where words enter.
    pub slave: SwitchPort,
    /// The port where they leave.
    pub master: SwitchPort,
}

/// A stream to be routed.
#[derive(Clone, Debug)]
pub struct RoutedStream {
    /// Its name in errors.
    pub name: String,
    /// The slave port where it enters the first switch.
    pub from: TilePort,
    /// The master ports by which it leaves the last ones.
    pub to: Vec<TilePort>,
    /// Whether its words are packets, which share ports with other packets.
    pub is_packet: bool,
}

/// Why streams have no ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct RouteError {
    /// The stream or tile.
    pub place: String,
    /// Description of the fault.
    pub problem: String,
}

/// A stream with its joins, as nodes.
struct Net {
    from: usize,
    to: Vec<usize>,
    is_packet: bool,
    joins: Vec<(usize, usize)>,
}

/// Prices of master ports.
struct MasterPrices {
    circuits: Vec<u32>,
    packets: Vec<u32>,
    history: Vec<u64>,
}

impl MasterPrices {
    /// Streams that one more of a kind would displace.
    fn others(&self, master: usize, is_packet: bool) -> u32 {
        match is_packet {
            true => self.circuits[master],
            false => self.circuits[master] + self.packets[master],
        }
    }

    fn cost(&self, master: usize, is_packet: bool, round: u32) -> u64 {
        let over = u64::from(self.others(master, is_packet));
        let alone = (16 + 8 * self.history[master]) * (1 + over * u64::from(round + 1));
        // Packets that share a port hold each other up: among equally long ways, an unused one is better.
        alone
            + if is_packet {
                u64::from(self.packets[master].min(3))
            } else {
                0
            }
    }

    fn of(&mut self, is_packet: bool) -> &mut [u32] {
        match is_packet {
            true => &mut self.packets,
            false => &mut self.circuits,
        }
    }

    /// Number of streams that want a port, beyond those that it can carry.
    fn excess(&self, master: usize) -> u32 {
        match self.packets[master] {
            0 => self.circuits[master].saturating_sub(1),
            _ => self.circuits[master],
        }
    }
}

fn node(tile: Tile, number: u8) -> usize {
    tile.index() * PORTS + usize::from(number)
}

fn tile_of(node: usize) -> Tile {
    let index = (node / PORTS) as u8;
    Tile {
        col: index / 6,
        row: index % 6,
    }
}

fn slave_port(node: usize) -> Option<SwitchPort> {
    port::at(port::slaves(tile_of(node).kind()), (node % PORTS) as u8)
}

fn master_port(node: usize) -> Option<SwitchPort> {
    port::at(port::masters(tile_of(node).kind()), (node % PORTS) as u8)
}

/// The joins of every stream, in their order. The same streams have the same ways.
///
/// # Errors
/// A port that does not exist, a stream without a way, or ports with too many streams.
pub fn route(streams: &[RoutedStream]) -> Result<Vec<Vec<Join>>, RouteError> {
    let mut nets = streams
        .iter()
        .map(net)
        .collect::<Result<Vec<Net>, RouteError>>()?;
    let mut prices = MasterPrices {
        circuits: vec![0; NODES],
        packets: vec![0; NODES],
        history: vec![0; NODES],
    };
    for round in 0..ROUNDS {
        for (net, stream) in nets.iter_mut().zip(streams) {
            for (_, master) in net.joins.drain(..) {
                prices.of(net.is_packet)[master] -= 1;
            }
            grow(net, round, &mut prices).ok_or_else(|| RouteError {
                place: stream.name.clone(),
                problem: "no ports lead to all of its sinks".to_owned(),
            })?;
        }
        let over: Vec<usize> = (0..NODES).filter(|&n| prices.excess(n) > 0).collect();
        if over.is_empty() {
            return Ok(nets.iter().map(joins).collect());
        }
        for node in over {
            prices.history[node] += u64::from(prices.excess(node));
        }
    }
    let worst = (0..NODES).max_by_key(|&n| prices.excess(n)).unwrap_or(0);
    let port = master_port(worst).map_or_else(String::new, |port| port.to_string());
    let wanted = prices.circuits[worst] + prices.packets[worst];
    Err(RouteError {
        place: tile_of(worst).to_string(),
        problem: format!("{wanted} streams want {port}"),
    })
}

fn net(stream: &RoutedStream) -> Result<Net, RouteError> {
    let fail = |end: &TilePort| RouteError {
        place: stream.name.clone(),
        problem: format!("{} has no port {} there", end.tile, end.port),
    };
    let from = stream.from;
    let slave = port::number(port::slaves(from.tile.kind()), from.port);
    let from = node(from.tile, slave.ok_or_else(|| fail(&from))?);
    let mut to = Vec::new();
    for end in &stream.to {
        let master = port::number(port::masters(end.tile.kind()), end.port);
        to.push(node(end.tile, master.ok_or_else(|| fail(end))?));
    }
    Ok(Net {
        from,
        to,
        is_packet: stream.is_packet,
        joins: Vec::new(),
    })
}

fn joins(net: &Net) -> Vec<Join> {
    let join = |&(slave, master): &(usize, usize)| {
        Some(Join {
            tile: tile_of(slave),
            slave: slave_port(slave)?,
            master: master_port(master)?,
        })
    };
    net.joins.iter().filter_map(join).collect()
}

/// Whether a stream may pass through a port on its way.
fn is_link(master: SwitchPort) -> bool {
    matches!(
        master.bundle,
        Bundle::North | Bundle::South | Bundle::East | Bundle::West
    )
}

fn grow(net: &mut Net, round: u32, prices: &mut MasterPrices) -> Option<()> {
    let mut tree = vec![net.from];
    let mut left = net.to.clone();
    while !left.is_empty() {
        let (slave, master, by) = nearest(&tree, &left, (net.is_packet, round), prices)?;
        left.retain(|&sink| sink != master);
        net.joins.push((slave, master));
        prices.of(net.is_packet)[master] += 1;
        let mut at = slave;
        while !tree.contains(&at) {
            tree.push(at);
            let (before, master) = by[at]?;
            net.joins.push((before, master));
            prices.of(net.is_packet)[master] += 1;
            at = before;
        }
    }
    Some(())
}

/// The masters that a slave may be joined to, and the slave that each leads to if it is a link.
type SwitchStep = (usize, Option<usize>);

/// The steps from every slave. Switches do not change, and a search visits each of them many times.
fn steps() -> &'static [Vec<SwitchStep>] {
    static STEPS: OnceLock<Vec<Vec<SwitchStep>>> = OnceLock::new();
    STEPS.get_or_init(|| (0..NODES).map(steps_from).collect())
}

fn steps_from(slave: usize) -> Vec<SwitchStep> {
    let tile = tile_of(slave);
    let Some(from) = slave_port(slave) else {
        return Vec::new();
    };
    let step = |number| {
        let master = node(tile, number);
        let to = master_port(master)?;
        if !port::has_master(tile, to) || !port::is_legal(tile.kind(), from, to) {
            return None;
        }
        let next = port::next(tile, to).filter(|_| is_link(to));
        let entry = next.and_then(|(next, entry)| {
            let number = port::number(port::slaves(next.kind()), entry)?;
            Some(node(next, number))
        });
        Some((master, entry))
    };
    (0..port::count(port::masters(tile.kind())))
        .filter_map(step)
        .collect()
}

/// By slave, the join that reaches it: the slave before and the master.
type JoinBefore = Vec<Option<(usize, usize)>>;

/// The sink that is cheapest to reach from a tree: the join that reaches it, and the joins before.
fn nearest(
    tree: &[usize],
    sinks: &[usize],
    (is_packet, round): (bool, u32),
    prices: &MasterPrices,
) -> Option<(usize, usize, JoinBefore)> {
    let mut best = vec![u64::MAX; NODES];
    let mut by: JoinBefore = vec![None; NODES];
    let mut heap = BinaryHeap::new();
    let steps = steps();
    for &slave in tree {
        best[slave] = 0;
        heap.push(Reverse((0, slave, None)));
    }
    while let Some(Reverse((cost, slave, end))) = heap.pop() {
        // A sink is returned with the join that reaches it.
        if let Some(master) = end {
            return Some((slave, master, by));
        }
        if cost > best[slave] {
            continue;
        }
        for &(master, entry) in &steps[slave] {
            let sum = cost + prices.cost(master, is_packet, round);
            if sinks.contains(&master) {
                heap.push(Reverse((sum, slave, Some(master))));
            } else if let Some(entry) = entry
                && sum < best[entry]
            {
                best[entry] = sum;
                by[entry] = Some((slave, master));
                heap.push(Reverse((sum, entry, None)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.
    use super::*;
    use crate::port::port;

    fn stream(
        from: (u8, u8, Bundle, u8),
        to: (u8, u8, Bundle, u8),
        is_packet: bool,
    ) -> RoutedStream {
        let end = |(col, row, bundle, index)| TilePort {
            tile: Tile { col, row },
            port: port(bundle, index),
        };
        RoutedStream {
            name: format!("{from:?}"),
            from: end(from),
            to: vec![end(to)],
            is_packet,
        }
    }

    /// A memory tile has six ports to the north, and each carries one circuit, or packets of many.
    #[test]
    fn packets_share_ports_and_circuits_do_not() {
        let down = |n: u8, is_packet| {
            let from = (0, 1, Bundle::Dma, n % 6);
            stream(from, (0, 2, Bundle::Dma, n % 2), is_packet)
        };
        let circuits: Vec<RoutedStream> = (0..3).map(|n| down(n, false)).collect();
        let error = route(&circuits).unwrap_err();
        assert_eq!(error.place, "core (0, 2)");
        let packets: Vec<RoutedStream> = (0..6).map(|n| down(n, true)).collect();
        let ways = route(&packets).unwrap();
        assert!(ways.iter().all(|joins| joins.len() == 2), "{ways:?}");
        let mut mixed = packets;
        mixed.push(down(0, false));
        assert!(route(&mixed).is_err());
    }

    #[test]
    fn a_port_that_no_tile_has_is_an_error() {
        let error = route(&[stream(
            (0, 1, Bundle::East, 0),
            (0, 2, Bundle::Dma, 0),
            false,
        )]);
        assert!(error.unwrap_err().problem.contains("no port East 0"));
    }
}
