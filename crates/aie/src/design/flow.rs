//! Flows between ports.

use super::{Design, Flow};
use crate::syntax::{Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::port::{self, Bundle};
use millrace_xdna2_words::router::TilePort;
use millrace_xdna2_words::tile::{Direction, TileKind};

/// A port as a flow names it; `direction` is that of a DMA channel there.
pub(super) fn end(
    op: &Op,
    tile: Tile,
    (bundle, index): (&str, i64),
    direction: Direction,
) -> Result<TilePort, SyntaxError> {
    let fail = || op.error(format!("{tile} has no port `{bundle} : {index}` there"));
    let index = u8::try_from(index).map_err(|_| fail())?;
    let bundle = match bundle {
        "DMA" => {
            let port = port::of_dma(tile.kind(), direction, index).ok_or_else(fail)?;
            return Ok(TilePort { tile, port });
        }
        "Core" => Bundle::Core,
        "FIFO" => Bundle::Fifo,
        "TileControl" | "Ctrl" => Bundle::TileControl,
        "Trace" => Bundle::Trace,
        "South" if tile.kind() == TileKind::Shim => Bundle::South,
        other => return Err(op.error(format!("a flow does not begin or end at `{other}`"))),
    };
    let port = port::port(bundle, index);
    let order = match direction {
        Direction::Mm2s => port::slaves(tile.kind()),
        Direction::S2mm => port::masters(tile.kind()),
    };
    port::number(order, port).ok_or_else(fail)?;
    Ok(TilePort { tile, port })
}

/// `aie.flow`: flows from one port are one stream to several.
pub(super) fn circuit(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&[
        "source_bundle",
        "source_channel",
        "dest_bundle",
        "dest_channel",
    ])?;
    let tiles = [op.operand(0)?, op.operand(1)?].map(|name| design.tile(op, name));
    let [from, to] = tiles;
    let source = (op.text("source_bundle")?, op.integer("source_channel")?);
    let sink = (op.text("dest_bundle")?, op.integer("dest_channel")?);
    let from = end(op, from?, source, Direction::Mm2s)?;
    let to = end(op, to?, sink, Direction::S2mm)?;
    let old = design
        .flows
        .iter_mut()
        .find(|flow| flow.packet.is_none() && flow.from == from);
    match old {
        Some(flow) if !flow.to.contains(&to) => flow.to.push(to),
        Some(_) => {}
        None => design.flows.push(Flow {
            name: format!("the flow from {} of {}", from.port, from.tile),
            from,
            to: vec![to],
            packet: None,
            keeps_header: false,
            at: op.at,
        }),
    }
    Ok(())
}

/// `aie.packet_flow`: sources, sinks, an id. Several sources are as many streams to the same sinks.
pub(super) fn packets(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&["ID", "keep_pkt_header", "priority_route"])?;
    let id = op.number::<u8>("ID")?;
    if id > 31 {
        return Err(op.error("ids of packets are 0 to 31"));
    }
    let (mut sources, mut to) = (Vec::new(), Vec::new());
    for part in op.region(0)?.ops() {
        let direction = match part.name.as_str() {
            "aie.packet_source" => Direction::Mm2s,
            "aie.packet_dest" => Direction::S2mm,
            "aie.end" => continue,
            _ => return Err(part.error("it does not stand in a packet flow")),
        };
        let tile = design.tile(part, part.operand(0)?)?;
        let port = (part.text("bundle")?, part.integer("channel")?);
        let end = end(part, tile, port, direction)?;
        match direction {
            Direction::S2mm => to.push(end),
            Direction::Mm2s => sources.push(end),
        }
    }
    if sources.is_empty() {
        return Err(op.error("it has no source"));
    }
    if to.is_empty() {
        return Err(op.error("it has no destination"));
    }
    for from in sources {
        packets_from(design, op, (from, id), to.clone());
    }
    Ok(())
}

/// A stream of packets; those of one source and id go to all destinations that name them.
fn packets_from(design: &mut Design, op: &Op, (from, id): (TilePort, u8), mut to: Vec<TilePort>) {
    let old = design
        .flows
        .iter_mut()
        .find(|flow| flow.packet == Some(id) && flow.from == from);
    if let Some(flow) = old {
        to.retain(|end| !flow.to.contains(end));
        flow.to.append(&mut to);
        return;
    }
    design.flows.push(Flow {
        name: format!("the packets {id} from {} of {}", from.port, from.tile),
        from,
        to,
        packet: Some(id),
        keeps_header: op.flag("keep_pkt_header"),
        at: op.at,
    });
}

/// `(%from, %to)`: 512 bits at a time from a core to the one south or east of it.
pub(super) fn cascade(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&[])?;
    let (from, to) = (
        design.tile(op, op.operand(0)?)?,
        design.tile(op, op.operand(1)?)?,
    );
    let leads = [from.neighbour(1, 0), from.neighbour(0, -1)].contains(&Some(to));
    if !leads || from.kind() != TileKind::Core || to.kind() != TileKind::Core {
        return Err(op.error(format!("no cascade leads from {from} to {to}")));
    }
    let known = &design.cascades;
    if known.iter().any(|row| row.0 == from || row.1 == to) {
        return Err(op.error("a core's cascade leads to one core, and comes from one"));
    }
    design.cascades.push((from, to));
    Ok(())
}
