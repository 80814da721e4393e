//! Streams to control ports that a sequence uses and the text lacks.
//!
//! mlir-aie adds them on request (`--generate-ctrl-pkt-overlay`). Packets of a column's shim go to the control ports of
//! the column's tiles, each by the tile's id. Those of rows 0 to 2 come from channel 0, the others from channel 1.

use super::descriptor::packet_of;
use super::{Design, Flow};
use crate::syntax::{Op, Region, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::port::{self, Bundle};
use millrace_xdna2_words::router::TilePort;
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::ChannelAt;

/// Default ids of a column's tiles from row 0 on, for tiles without one in the text.
pub(super) const IDS: [u8; 6] = [15, 26, 27, 29, 30, 31];
/// Number of rows whose control packets come over channel 0.
const ROWS_OF_CHANNEL_0: u8 = 3;

/// Adds the streams that tasks with packets need and the flows lack.
pub(super) fn add(design: &mut Design) -> Result<(), SyntaxError> {
    if design.switches.is_some() {
        return Ok(());
    }
    let mut wanted = Vec::new();
    for op in &design.sequence {
        tasks(design, op, &mut wanted)?;
    }
    for (channel, id, op) in wanted {
        let from = port::of_dma(TileKind::Shim, Direction::Mm2s, channel.number);
        let Some(from) = from.map(|port| TilePort {
            tile: channel.tile,
            port,
        }) else {
            continue;
        };
        let mut flows = design.flows.iter();
        if flows.any(|flow| flow.from == from && flow.packet.is_none_or(|of| of == id)) {
            continue;
        }
        let Some(tile) = of_id(design, channel, id) else {
            continue;
        };
        let note = format!(
            "packets {id} of {} MM2S {} go to the control port of {tile}, as mlir-aie's control overlay has them",
            channel.tile, channel.number
        );
        design.notes.push(note);
        design.flows.push(Flow {
            name: format!(
                "the control packets {id} from {} of {}",
                from.port, from.tile
            ),
            from,
            to: vec![TilePort {
                tile,
                port: port::port(Bundle::TileControl, 0),
            }],
            packet: Some(id),
            keeps_header: true,
            at: op,
        });
    }
    Ok(())
}

/// Channels of shims, ids and places of tasks that send packets.
fn tasks(
    design: &Design,
    op: &Op,
    wanted: &mut Vec<(ChannelAt, u8, crate::syntax::Location)>,
) -> Result<(), SyntaxError> {
    for inner in op.regions.iter().flat_map(Region::ops) {
        tasks(design, inner, wanted)?;
    }
    if !matches!(
        op.name.as_str(),
        "aiex.npu.dma_memcpy_nd" | "aiex.dma_configure_task_for"
    ) {
        return Ok(());
    }
    let name = op.text("metadata").or_else(|_| op.text("alloc"));
    let allocation = name.ok().and_then(|name| design.allocations.get(name));
    let Some(allocation) = allocation.filter(|of| of.channel.direction == Direction::Mm2s) else {
        return Ok(());
    };
    if let Some((_, id)) = packet_of(op)?.or(allocation.packet) {
        wanted.push((allocation.channel, id as u8, op.at));
    }
    Ok(())
}

/// The shim's channel that brings control packets to a tile.
pub(super) fn channel_of(tile: Tile) -> u8 {
    u8::from(tile.row >= ROWS_OF_CHANNEL_0)
}

/// The tile of the channel's column that has that id and takes control packets of that channel.
fn of_id(design: &Design, channel: ChannelAt, id: u8) -> Option<Tile> {
    let tiles = (0..).zip(IDS).map(|(row, id)| {
        let tile = Tile {
            row,
            ..channel.tile
        };
        (tile, design.controllers.get(&tile).copied().unwrap_or(id))
    });
    let of_channel = |tile: &Tile| channel_of(*tile) == channel.number;
    let mut found = tiles.filter(|(tile, of)| *of == id && of_channel(tile));
    found.next().map(|row| row.0)
}
