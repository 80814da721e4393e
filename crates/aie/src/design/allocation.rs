//! Channels of shims by name.

use super::Design;
use super::descriptor::packet_in;
use crate::syntax::{Attribute, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::ChannelAt;

/// A shim's channel, and the packets that its tasks send by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShimAllocation {
    pub(crate) channel: ChannelAt,
    /// Type and id.
    pub(crate) packet: Option<(u64, u64)>,
}

/// `@name(%tile, MM2S, 0, <pkt_id = 0>)`; older texts have `(MM2S, 0, column)`, the generic form names.
pub(super) fn read(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&[
        "sym_name",
        "items",
        "plio",
        "channel_dir",
        "channel_index",
        "col",
        "packet",
    ])?;
    if op.flag("plio") {
        return Err(op.error("an NPU has no PLIO"));
    }
    let items = match op.get("items") {
        Some(Attribute::Array(items)) => items.clone(),
        _ => [op.need("channel_dir")?, op.need("channel_index")?]
            .map(Attribute::clone)
            .to_vec(),
    };
    let (tile, rest) = match items.as_slice() {
        [Attribute::Value(tile), rest @ ..] => (design.tile(op, tile)?, rest),
        [Attribute::Word(_), _, Attribute::Integer(col)] => {
            let tile = u32::try_from(*col).ok().and_then(|col| Tile::new(col, 0));
            (tile.ok_or_else(|| op.error("no such column"))?, &items[..2])
        }
        _ => (design.tile(op, op.operand(0)?)?, &items[..]),
    };
    let (direction, number, more) = match rest {
        [
            Attribute::Word(direction),
            Attribute::Integer(number),
            more @ ..,
        ] => (direction, *number, more),
        _ => return Err(op.error("expected a tile, a direction and a channel")),
    };
    let packet = match (more, op.get("packet")) {
        ([], None) => None,
        ([packet @ Attribute::Fields(_)], None) | ([], Some(packet)) => {
            Some(packet_in(op, packet)?)
        }
        _ => {
            let problem =
                "behind the channel stands a packet, as in `<pkt_id = 0>`, and nothing else";
            return Err(op.error(problem));
        }
    };
    let channel = channel(op, tile, direction, number)?;
    if tile.kind() != TileKind::Shim {
        return Err(op.error(format!("{tile} is no shim")));
    }
    if packet.is_some() && channel.direction == Direction::S2mm {
        return Err(op.error("a packet is of what a channel sends (MM2S)"));
    }
    let name = op.text("sym_name")?.to_owned();
    let new = ShimAllocation { channel, packet };
    design.allocations.insert(name, new);
    Ok(())
}

/// A channel of a tile.
pub(crate) fn channel(
    op: &Op,
    tile: Tile,
    direction: &str,
    number: i64,
) -> Result<ChannelAt, SyntaxError> {
    let direction = match direction {
        "MM2S" => Direction::Mm2s,
        "S2MM" => Direction::S2mm,
        other => return Err(op.error(format!("`{other}` is neither MM2S nor S2MM"))),
    };
    let channels = tile.kind().channels();
    let number = u8::try_from(number)
        .ok()
        .filter(|&number| number < channels);
    let number =
        number.ok_or_else(|| op.error(format!("{tile} has {channels} channels a direction")))?;
    Ok(ChannelAt {
        tile,
        direction,
        number,
    })
}
