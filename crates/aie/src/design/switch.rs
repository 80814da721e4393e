//! Routes from a text: switches and multiplexers port by port.

mod way;

use super::{Design, Entity};
use crate::syntax::{Attribute, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::port::{self, Bundle, SwitchPort};
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::PacketRule;
use std::collections::{BTreeMap, BTreeSet};

use crate::syntax::Location;

/// All switches of a design.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switches {
    pub(crate) tiles: BTreeMap<Tile, Switch>,
}

/// A tile's switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch {
    /// Slave and master of each circuit.
    pub(crate) circuits: Vec<(SwitchPort, SwitchPort)>,
    pub(crate) masters: Vec<PacketMaster>,
    /// Rules in the order of their slots.
    pub(crate) slaves: Vec<(SwitchPort, Vec<PacketRule>)>,
    /// Ports to the south that a shim's multiplexers join to its DMA.
    muxed: BTreeSet<(Direction, u8)>,
    pub(crate) at: Location,
}

/// A master port that takes packets.
#[derive(Clone, Debug)]
pub(crate) struct PacketMaster {
    pub(crate) port: SwitchPort,
    pub(crate) arbiter: u8,
    /// Bit i: it takes those of selection i.
    pub(crate) selections: u8,
    pub(crate) drops_header: bool,
}

/// Reads the routes of a device, or of the routed device if there is one. Flows of the design must match the routes.
pub(super) fn read(
    design: &mut Design,
    device: &Op,
    routed: Option<&Op>,
) -> Result<(), SyntaxError> {
    let is_switch = |op: &&Op| matches!(op.name.as_str(), "aie.switchbox" | "aie.shim_mux");
    let own = device.region(0)?.ops().any(|op| is_switch(&op));
    // A design may reserve ports for its router, whose output is complete.
    let from = match (own, routed) {
        (_, Some(routed)) => routed,
        (true, None) => device,
        (false, None) => return Ok(()),
    };
    let mut places = BTreeMap::new();
    for op in from.region(0)?.ops().filter(|op| op.name == "aie.tile") {
        let place = [op.integer("col")?, op.integer("row")?].map(|n| u32::try_from(n).ok());
        let tile = match place {
            [Some(col), Some(row)] => Tile::new(col, row),
            _ => None,
        };
        let tile = tile.filter(|tile| tile.col < design.n_columns);
        let tile = tile.ok_or_else(|| op.error("the device has no such tile"))?;
        // Columns of the design are those that it uses, by flows or by routes.
        let name = format!("route {tile}");
        design.names.entry(name).or_insert(Entity::Tile(tile));
        places.insert(op.result()?.to_owned(), tile);
    }
    let mut switches = Switches::default();
    for op in from.region(0)?.ops().filter(is_switch) {
        op.only(&[])?;
        let tile = places.get(op.operand(0)?);
        let tile = *tile.ok_or_else(|| op.error("its tile is none of this device"))?;
        let switch = switches.tiles.entry(tile).or_default();
        switch.at = op.at;
        match op.name.as_str() {
            "aie.switchbox" => switchbox(switch, tile, op)?,
            _ => multiplexers(switch, tile, op)?,
        }
    }
    switches.check_muxes()?;
    way::compare(design, &switches)?;
    design.switches = Some(switches);
    Ok(())
}

/// A port of a switch as its ops name it.
fn switch_port(
    op: &Op,
    tile: Tile,
    (bundle, index): (&str, i64),
    is_master: bool,
) -> Result<SwitchPort, SyntaxError> {
    let found = match bundle {
        "Core" => Some(Bundle::Core),
        "DMA" => Some(Bundle::Dma),
        "FIFO" => Some(Bundle::Fifo),
        "South" => Some(Bundle::South),
        "West" => Some(Bundle::West),
        "North" => Some(Bundle::North),
        "East" => Some(Bundle::East),
        "TileControl" | "Ctrl" => Some(Bundle::TileControl),
        "Trace" => Some(Bundle::Trace),
        _ => None,
    };
    let order = match is_master {
        true => port::masters(tile.kind()),
        false => port::slaves(tile.kind()),
    };
    let port = found.zip(u8::try_from(index).ok());
    let port = port.map(|(bundle, index)| port::port(bundle, index));
    port.filter(|&port| port::number(order, port).is_some())
        .ok_or_else(|| {
            op.error(format!(
                "the switch of {tile} has no port `{bundle} : {index}` there"
            ))
        })
}

fn source(op: &Op, tile: Tile) -> Result<SwitchPort, SyntaxError> {
    let port = (op.text("source_bundle")?, op.integer("source_channel")?);
    switch_port(op, tile, port, false)
}

/// The one port of an op.
fn only_port(op: &Op, tile: Tile, is_master: bool) -> Result<SwitchPort, SyntaxError> {
    let port = (op.text("bundle")?, op.integer("channel")?);
    switch_port(op, tile, port, is_master)
}

/// Marks of mlir-aie's passes, which have no effect on a switch.
const MARKS: [&str; 2] = ["is_ctrl_pkt_overlay", "packet_ids"];

fn switchbox(switch: &mut Switch, tile: Tile, op: &Op) -> Result<(), SyntaxError> {
    // Arbiter and selection by name.
    let mut selections: BTreeMap<&str, (u8, u8)> = BTreeMap::new();
    for part in op.region(0)?.ops() {
        if part.name == "aie.amsel" {
            part.only(&["arbiterID", "msel"])?;
            let (arbiter, selection) = (part.number("arbiterID")?, part.number("msel")?);
            if arbiter > 7 || selection > 3 {
                return Err(part.error("a switch has arbiters 0 to 7 of selections 0 to 3"));
            }
            selections.insert(part.result()?, (arbiter, selection));
        }
    }
    for part in op.region(0)?.ops() {
        match part.name.as_str() {
            "aie.connect" => connect(switch, tile, part)?,
            "aie.masterset" => master_set(switch, tile, part, &selections)?,
            "aie.packet_rules" => packet_rules(switch, tile, part, &selections)?,
            "aie.amsel" | "aie.end" => {}
            _ => return Err(part.error("it does not stand in a switch")),
        }
    }
    Ok(())
}

fn connect(switch: &mut Switch, tile: Tile, op: &Op) -> Result<(), SyntaxError> {
    op.only(&[
        "source_bundle",
        "source_channel",
        "dest_bundle",
        "dest_channel",
        MARKS[0],
        MARKS[1],
    ])?;
    let to = (op.text("dest_bundle")?, op.integer("dest_channel")?);
    let join = (source(op, tile)?, switch_port(op, tile, to, true)?);
    switch.circuits.push(join);
    Ok(())
}

fn master_set(
    switch: &mut Switch,
    tile: Tile,
    op: &Op,
    known: &BTreeMap<&str, (u8, u8)>,
) -> Result<(), SyntaxError> {
    op.only(&["bundle", "channel", "keep_pkt_header", MARKS[0], MARKS[1]])?;
    let port = only_port(op, tile, true)?;
    let mut arbiter = None;
    let mut selections = 0;
    for name in &op.operands {
        let (of, selection) = selection_of(op, name, known)?;
        if *arbiter.get_or_insert(of) != of {
            return Err(op.error("a master takes packets of one arbiter"));
        }
        selections |= 1 << selection;
    }
    let arbiter = arbiter.ok_or_else(|| op.error("it names no `aie.amsel`"))?;
    let ends =
        port.bundle == Bundle::Dma || tile.kind() == TileKind::Shim && port.bundle == Bundle::South;
    let keeps = match op.get("keep_pkt_header") {
        None => !ends,
        Some(Attribute::Bool(keeps)) => *keeps,
        Some(_) => true,
    };
    switch.masters.push(PacketMaster {
        port,
        arbiter,
        selections,
        drops_header: !keeps,
    });
    Ok(())
}

fn selection_of(
    op: &Op,
    name: &str,
    known: &BTreeMap<&str, (u8, u8)>,
) -> Result<(u8, u8), SyntaxError> {
    let found = known.get(name).copied();
    found.ok_or_else(|| op.error(format!("%{name} is no `aie.amsel` of this switch")))
}

fn packet_rules(
    switch: &mut Switch,
    tile: Tile,
    op: &Op,
    known: &BTreeMap<&str, (u8, u8)>,
) -> Result<(), SyntaxError> {
    op.only(&["bundle", "channel", MARKS[0], MARKS[1]])?;
    let slave = only_port(op, tile, false)?;
    let mut rules = Vec::new();
    for rule in op.region(0)?.ops().filter(|rule| rule.name != "aie.end") {
        if rule.name != "aie.rule" {
            return Err(rule.error("it does not stand among rules of packets"));
        }
        rule.only(&["mask", "value", MARKS[0], MARKS[1]])?;
        let (arbiter, selection) = selection_of(rule, rule.operand(0)?, known)?;
        let (id, mask) = (rule.number("value")?, rule.number("mask")?);
        if id > 31 || mask > 31 {
            return Err(rule.error("ids of packets and their masks are 0 to 31"));
        }
        rules.push(PacketRule {
            id,
            mask,
            arbiter,
            selection,
        });
    }
    if rules.len() > 4 {
        let n = rules.len();
        return Err(op.error(format!("{n} rules; a port has 4 packet slots")));
    }
    switch.slaves.push((slave, rules));
    Ok(())
}

/// `DMA : 0, North : 3` of a shim's multiplexer: to the switch's South 3, or `North : 2, DMA : 0` from its South 2.
fn multiplexers(switch: &mut Switch, tile: Tile, op: &Op) -> Result<(), SyntaxError> {
    if tile.kind() != TileKind::Shim {
        return Err(op.error(format!("{tile} is no shim")));
    }
    for part in op.region(0)?.ops().filter(|part| part.name != "aie.end") {
        if part.name != "aie.connect" {
            return Err(part.error("it does not stand in a multiplexer"));
        }
        let from = (part.text("source_bundle")?, part.integer("source_channel")?);
        let to = (part.text("dest_bundle")?, part.integer("dest_channel")?);
        let (direction, channel, port) = match (from, to) {
            (("DMA", channel), ("North", port)) => (Direction::Mm2s, channel, port),
            (("North", port), ("DMA", channel)) => (Direction::S2mm, channel, port),
            _ => return Err(part.error("only DMA is joined to the switch here")),
        };
        let channel = u8::try_from(channel).unwrap_or(u8::MAX);
        let expected = port::of_dma(TileKind::Shim, direction, channel).map(|port| port.index);
        match expected {
            Some(index) if i64::from(index) == port => switch.muxed.insert((direction, index)),
            Some(index) => {
                let problem = format!("{} {channel} is at port {index}", direction.name());
                return Err(part.error(problem));
            }
            None => return Err(part.error(format!("{tile} has 2 channels a direction"))),
        };
    }
    Ok(())
}

impl Switches {
    /// Every port of a shim's switch that DMA has is joined to it.
    fn check_muxes(&self) -> Result<(), SyntaxError> {
        for (tile, switch) in &self.tiles {
            if tile.kind() != TileKind::Shim {
                continue;
            }
            for direction in [Direction::Mm2s, Direction::S2mm] {
                for channel in 0..2 {
                    let Some(port) = port::of_dma(TileKind::Shim, direction, channel) else {
                        continue;
                    };
                    let is_used = match direction {
                        Direction::Mm2s => switch.has_slave(port),
                        Direction::S2mm => switch.has_master(port),
                    };
                    if is_used && !switch.muxed.contains(&(direction, port.index)) {
                        let problem = format!(
                            "{port} of the switch of {tile} is used, and no `aie.shim_mux` joins it to {} {channel}",
                            direction.name()
                        );
                        return Err(SyntaxError::new(switch.at, problem));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Switch {
    /// Whether words enter there.
    pub(crate) fn has_slave(&self, port: SwitchPort) -> bool {
        self.circuits.iter().any(|row| row.0 == port) || self.slaves.iter().any(|row| row.0 == port)
    }

    /// Whether words leave there.
    pub(crate) fn has_master(&self, port: SwitchPort) -> bool {
        self.circuits.iter().any(|row| row.1 == port)
            || self.masters.iter().any(|master| master.port == port)
    }

    /// The rules by which packets enter there.
    pub(crate) fn rules(&self, port: SwitchPort) -> &[PacketRule] {
        let found = self.slaves.iter().find(|row| row.0 == port);
        found.map_or(&[], |row| &row.1)
    }
}
