//! Streams through the switches, those of tokens among them.

use crate::design::{Design, Flow};
use crate::syntax::{Location, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::port::{Bundle, SwitchPort, port};
use millrace_xdna2_words::router::{self, RoutedStream, TilePort};
use millrace_xdna2_words::tile::TileKind;
use millrace_xdna2_words::writer::{PacketRule, StreamWriter};
use std::collections::{BTreeMap, BTreeSet};

/// The port where tokens enter a tile's switch.
pub(super) const TOKENS: SwitchPort = port(Bundle::TileControl, 0);
/// The port where a shim's switch passes them to the firmware.
pub(super) const TO_FIRMWARE: SwitchPort = port(Bundle::South, 0);

/// Packets that leave a slave port: the masters that they go to.
#[derive(Default)]
struct PacketSwitch {
    /// By slave and id.
    ways: BTreeMap<(SwitchPort, u8), BTreeSet<SwitchPort>>,
    keeps_header: BTreeSet<SwitchPort>,
}

/// Joins all ports. Returns the ids of the tokens of tiles that send some.
pub(super) fn routes(
    design: &Design,
    token_tiles: &BTreeMap<Tile, Location>,
    writer: &mut StreamWriter,
) -> Result<BTreeMap<Tile, u8>, SyntaxError> {
    let mut flows = design.flows.clone();
    let tokens = add_tokens(design, &mut flows, token_tiles)?;
    let streams: Vec<RoutedStream> = flows.iter().map(stream).collect();
    let ways = router::route(&streams).map_err(|error| {
        let flow = flows.iter().find(|flow| flow.name == error.place);
        SyntaxError::new(
            flow.map(|flow| flow.at).unwrap_or_default(),
            error.to_string(),
        )
    })?;
    let mut switches: BTreeMap<Tile, PacketSwitch> = BTreeMap::new();
    for (flow, joins) in flows.iter().zip(&ways) {
        let fail = |problem: String| SyntaxError::new(flow.at, format!("{}: {problem}", flow.name));
        let Some(id) = flow.packet else {
            for join in joins {
                let joined = writer.circuit(join.tile, join.slave, join.master);
                joined.map_err(|error| fail(error.to_string()))?;
            }
            continue;
        };
        let mut own: BTreeMap<(Tile, SwitchPort), BTreeSet<SwitchPort>> = BTreeMap::new();
        for join in joins {
            own.entry((join.tile, join.slave))
                .or_default()
                .insert(join.master);
        }
        for ((tile, slave), masters) in own {
            let switch = switches.entry(tile).or_default();
            if flow.keeps_header {
                switch.keeps_header.extend(&masters);
            }
            let others = switch.ways.insert((slave, id), masters.clone());
            // Streams of one flow from several sources may have met before.
            if others.is_some_and(|others| others != masters) {
                return Err(fail(format!(
                    "other packets of its id come by {slave} of {tile}"
                )));
            }
        }
    }
    for (tile, switch) in &switches {
        configure(*tile, switch, writer).map_err(|problem| {
            SyntaxError::new(Location::default(), format!("packets of {tile}: {problem}"))
        })?;
    }
    Ok(tokens)
}

/// Adds the streams of tokens; returns the ids of their packets. A design may route tokens itself and set ids of tiles,
/// which its sequence then writes to the controls of channels.
fn add_tokens(
    design: &Design,
    flows: &mut Vec<Flow>,
    tiles: &BTreeMap<Tile, Location>,
) -> Result<BTreeMap<Tile, u8>, SyntaxError> {
    let used: BTreeSet<u8> = flows.iter().filter_map(|flow| flow.packet).collect();
    let own = design.controllers.values();
    let taken: BTreeSet<u8> = used.iter().chain(own).copied().collect();
    let mut free = (0..32u8).rev().filter(|id| !taken.contains(id));
    let mut tokens = BTreeMap::new();
    for (&tile, &at) in tiles {
        let given = design.controllers.get(&tile).copied();
        if let Some(id) = way_of_tokens(flows, tile, given) {
            // A task writes the id of its tile to the channel; of a shim mlir-aie adds the way of that id.
            if given.is_some_and(|given| given != id) && tile.kind() != TileKind::Shim {
                let given = given.unwrap_or(id);
                let problem = format!(
                    "tokens of {tile} have id {given}, its `controller_id`, and its packet flow to the firmware takes id {id}"
                );
                return Err(SyntaxError::new(at, problem).in_op("aiex.dma_start_task"));
            }
            tokens.insert(tile, id);
            continue;
        }
        // mlir-aie routes only the tokens of shims.
        if tile.kind() != TileKind::Shim {
            let problem = format!(
                "the tokens of {tile} have no way to the firmware: an `aie.packet_flow` from its TileControl : 0 to South : 0 of a shim gives them one"
            );
            return Err(SyntaxError::new(at, problem).in_op("aiex.dma_start_task"));
        }
        let id = match given.filter(|id| !used.contains(id)) {
            Some(id) => Some(id),
            // A shim's tokens never meet another tile's.
            None if !taken.contains(&0) => Some(0),
            None => free.next(),
        };
        let id = id.ok_or_else(|| {
            SyntaxError::new(Location::default(), "no packet id is left for tokens")
        })?;
        tokens.insert(tile, id);
        flows.push(token_flow(tile, id));
    }
    Ok(tokens)
}

/// Whether the design has a flow for a tile's tokens.
pub(super) fn has_token_way(design: &Design, tile: Tile) -> bool {
    way_of_tokens(&design.flows, tile, None).is_some()
}

/// The id of a tile's packets to the firmware, if the design has a flow for them. It is the tile's own id, if that is
/// among them.
fn way_of_tokens(flows: &[Flow], tile: Tile, given: Option<u8>) -> Option<u8> {
    let is_way = |flow: &&Flow| {
        let to_firmware =
            |end: &TilePort| end.tile.kind() == TileKind::Shim && end.port == TO_FIRMWARE;
        flow.from.tile == tile && flow.from.port == TOKENS && flow.to.iter().any(to_firmware)
    };
    let mut ids = flows.iter().filter(is_way).filter_map(|flow| flow.packet);
    let first = ids.clone().next();
    ids.find(|&id| Some(id) == given).or(first)
}

fn stream(flow: &Flow) -> RoutedStream {
    RoutedStream {
        name: flow.name.clone(),
        from: flow.from,
        to: flow.to.clone(),
        is_packet: flow.packet.is_some(),
    }
}

/// A tile's tokens go to the firmware, which takes them from South 0 of the column's shim.
fn token_flow(tile: Tile, id: u8) -> Flow {
    let shim = Tile { row: 0, ..tile };
    Flow {
        name: format!("the tokens of {tile}"),
        from: TilePort { tile, port: TOKENS },
        to: vec![TilePort {
            tile: shim,
            port: TO_FIRMWARE,
        }],
        packet: Some(id),
        keeps_header: true,
        at: Location::default(),
    }
}

/// Arbiters, selections and slots of a switch. Sets of masters that share one have one arbiter.
fn configure(tile: Tile, switch: &PacketSwitch, writer: &mut StreamWriter) -> Result<(), String> {
    let sets: BTreeSet<&BTreeSet<SwitchPort>> = switch.ways.values().collect();
    // By arbiter: its sets, in the order of their selections.
    let mut arbiters: Vec<Vec<&BTreeSet<SwitchPort>>> = Vec::new();
    for set in sets {
        let (meet, apart): (Vec<_>, Vec<_>) = arbiters
            .into_iter()
            .partition(|group| group.iter().any(|other| !other.is_disjoint(set)));
        arbiters = apart;
        arbiters.push(meet.into_iter().flatten().chain([set]).collect());
    }
    if arbiters.len() > 8 || arbiters.iter().any(|group| group.len() > 4) {
        return Err("they need more than 8 arbiters of 4 selections".to_owned());
    }
    for (arbiter, group) in (0u8..).zip(&arbiters) {
        let masters: BTreeSet<SwitchPort> =
            group.iter().flat_map(|set| set.iter().copied()).collect();
        for master in masters {
            let mine = group
                .iter()
                .enumerate()
                .filter(|(_, set)| set.contains(&master));
            let selections = mine.fold(0u8, |bits, (i, _)| bits | 1 << i);
            let ends = master.bundle == Bundle::Dma
                || tile.kind() == TileKind::Shim && master.bundle == Bundle::South;
            let drops = ends && !switch.keeps_header.contains(&master);
            let set = writer.packet_master(tile, master, (arbiter, selections), drops);
            set.map_err(|error| error.to_string())?;
        }
    }
    let slaves: BTreeSet<SwitchPort> = switch.ways.keys().map(|key| key.0).collect();
    for slave in slaves {
        let mut by_place: BTreeMap<(u8, u8), Vec<u8>> = BTreeMap::new();
        for ((_, id), set) in switch.ways.iter().filter(|row| row.0.0 == slave) {
            let place = (0u8..).zip(&arbiters).find_map(|(arbiter, group)| {
                let selection = group.iter().position(|other| *other == set)?;
                Some((arbiter, selection as u8))
            });
            by_place
                .entry(place.unwrap_or_default())
                .or_default()
                .push(*id);
        }
        let rules = rules(&by_place);
        let set = writer.packet_slave(tile, slave, &rules);
        set.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Slots for ids: one for each. If those exceed four, one for ids that a mask separates from all others.
fn rules(by_place: &BTreeMap<(u8, u8), Vec<u8>>) -> Vec<PacketRule> {
    let n_ids: usize = by_place.values().map(Vec::len).sum();
    let mut rules = Vec::new();
    for (&(arbiter, selection), ids) in by_place {
        let rule = |id, mask| PacketRule {
            id,
            mask,
            arbiter,
            selection,
        };
        let mask = ids.iter().fold(31u8, |mask, id| mask & !(id ^ ids[0]));
        let others = by_place.iter().filter(|row| *row.0 != (arbiter, selection));
        let mut others = others.flat_map(|row| row.1);
        let is_alone = others.all(|other| (other ^ ids[0]) & mask != 0);
        match n_ids > 4 && is_alone {
            true => rules.push(rule(ids[0] & mask, mask)),
            false => rules.extend(ids.iter().map(|&id| rule(id, 31))),
        }
    }
    rules
}
