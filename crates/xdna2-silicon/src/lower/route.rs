//! Ways of streams, port by port.
//!
//! Negotiated congestion as in PathFinder (McMurchie and Ebeling, 1995), over master ports: each drives one
//! wire. A stream grows a tree from its source to the nearest sink first; ports that several want become
//! dearer from round to round.

use super::NoWords;
use super::places::Places;
use millrace_xdna2_machine::program::{ChannelLink, Flat};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::port::{self, Bundle, SwitchPort};
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::{ChannelAt, StreamWriter};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Rounds of negotiation.
const ROUNDS: u32 = 64;
/// Ports of a switch, at most, of either kind.
const PORTS: usize = 32;
const NODES: usize = 48 * PORTS;

/// A stream.
struct Net {
    name: String,
    /// Where it enters the first switch.
    from: usize,
    /// The ports by which it leaves the last ones.
    to: Vec<usize>,
    /// Joins: the slave and the master, as nodes.
    joins: Vec<(usize, usize)>,
}

/// Prices of master ports.
struct MasterPrices {
    used: Vec<u32>,
    history: Vec<u64>,
}

impl MasterPrices {
    fn cost(&self, master: usize, round: u32) -> u64 {
        let over = u64::from(self.used[master]);
        (16 + 8 * self.history[master]) * (1 + over * u64::from(round + 1))
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

fn source(at: ChannelAt) -> Option<usize> {
    let kind = at.tile.kind();
    let number = port::number(
        port::slaves(kind),
        port::of_dma(kind, Direction::Mm2s, at.number)?,
    )?;
    Some(node(at.tile, number))
}

fn sink(at: ChannelAt) -> Option<usize> {
    let kind = at.tile.kind();
    let number = port::number(
        port::masters(kind),
        port::of_dma(kind, Direction::S2mm, at.number)?,
    )?;
    Some(node(at.tile, number))
}

/// Joins ports for every stream of a launch, and for the tokens of the shims that it uses.
pub(super) fn circuits(
    flat: &Flat<'_>,
    places: &Places,
    writer: &mut StreamWriter,
) -> Result<(), NoWords> {
    let mut nets = Vec::new();
    for (id, channel) in flat.channels.iter().enumerate() {
        if channel.decl.link != ChannelLink::Stream {
            continue;
        }
        let name = flat.channel_name(id);
        let unused = || NoWords::new(&*name, "nobody sends or receives it");
        let from = places.sources[id].and_then(source).ok_or_else(unused)?;
        let to: Option<Vec<usize>> = places.sinks[id].iter().map(|&at| sink(at)).collect();
        let to = to.filter(|to| !to.is_empty()).ok_or_else(unused)?;
        nets.push(Net {
            name,
            from,
            to,
            joins: Vec::new(),
        });
    }
    negotiate(&mut nets)?;
    for net in &nets {
        for &(slave, master) in &net.joins {
            if let (Some(from), Some(to)) = (slave_port(slave), master_port(master)) {
                writer.circuit(tile_of(slave), from, to)?;
            }
        }
    }
    let shims: BTreeSet<u8> = (places.channels().iter())
        .filter(|at| at.tile.kind() == TileKind::Shim)
        .map(|at| at.tile.col)
        .collect();
    for col in shims {
        writer.token_route(col)?;
    }
    Ok(())
}

fn negotiate(nets: &mut [Net]) -> Result<(), NoWords> {
    let mut prices = MasterPrices {
        used: vec![0; NODES],
        history: vec![0; NODES],
    };
    for round in 0..ROUNDS {
        for net in nets.iter_mut() {
            for (_, master) in net.joins.drain(..) {
                prices.used[master] -= 1;
            }
            grow(net, round, &mut prices)
                .ok_or_else(|| NoWords::new(&*net.name, "no ports lead to all of its sinks"))?;
        }
        let over: Vec<usize> = (0..NODES).filter(|&n| prices.used[n] > 1).collect();
        if over.is_empty() {
            return Ok(());
        }
        for node in over {
            prices.history[node] += u64::from(prices.used[node] - 1);
        }
    }
    let worst = (0..NODES).max_by_key(|&n| prices.used[n]).unwrap_or(0);
    let port = master_port(worst).map_or_else(String::new, |port| port.to_string());
    let problem = format!("{} streams want {port}", prices.used[worst]);
    Err(NoWords::new(tile_of(worst).to_string(), problem))
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
        let (slave, master, by) = nearest(&tree, &left, round, prices)?;
        left.retain(|&sink| sink != master);
        net.joins.push((slave, master));
        prices.used[master] += 1;
        let mut at = slave;
        while !tree.contains(&at) {
            tree.push(at);
            let (before, master) = by[at]?;
            net.joins.push((before, master));
            prices.used[master] += 1;
            at = before;
        }
    }
    Some(())
}

/// By slave, the join that reaches it: the slave before and the master.
type JoinBefore = Vec<Option<(usize, usize)>>;

/// The sink that is cheapest to reach from a tree: the join that reaches it, and those before.
fn nearest(
    tree: &[usize],
    sinks: &[usize],
    round: u32,
    prices: &MasterPrices,
) -> Option<(usize, usize, JoinBefore)> {
    let mut best = vec![u64::MAX; NODES];
    let mut by: JoinBefore = vec![None; NODES];
    let mut heap = BinaryHeap::new();
    for &slave in tree {
        best[slave] = 0;
        heap.push(Reverse((0, slave, None)));
    }
    while let Some(Reverse((cost, slave, end))) = heap.pop() {
        // A sink is told with the join that reaches it.
        if let Some(master) = end {
            return Some((slave, master, by));
        }
        if cost > best[slave] {
            continue;
        }
        let (tile, from) = (tile_of(slave), slave_port(slave)?);
        for number in 0..port::count(port::masters(tile.kind())) {
            let master = node(tile, number);
            let to = master_port(master)?;
            if !port::has_master(tile, to) || !port::is_legal(tile.kind(), from, to) {
                continue;
            }
            let sum = cost + prices.cost(master, round);
            if sinks.contains(&master) {
                heap.push(Reverse((sum, slave, Some(master))));
                continue;
            }
            let Some((next, entry)) = port::next(tile, to).filter(|_| is_link(to)) else {
                continue;
            };
            let entry = node(next, port::number(port::slaves(next.kind()), entry)?);
            if sum < best[entry] {
                best[entry] = sum;
                by[entry] = Some((slave, master));
                heap.push(Reverse((sum, entry, None)));
            }
        }
    }
    None
}
