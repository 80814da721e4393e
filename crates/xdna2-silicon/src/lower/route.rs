//! Ways of streams: which there are, and what the router's answer becomes in words.

use super::NoWords;
use super::places::Places;
use millrace_xdna2_machine::program::{ChannelLink, Flat};
use millrace_xdna2_words::port;
use millrace_xdna2_words::router::{self, RoutedStream, TilePort};
use millrace_xdna2_words::tile::TileKind;
use millrace_xdna2_words::writer::{ChannelAt, StreamWriter};
use std::collections::BTreeSet;

/// The port of a channel at its tile's switch.
fn end(at: ChannelAt) -> Option<TilePort> {
    let port = port::of_dma(at.tile.kind(), at.direction, at.number)?;
    Some(TilePort {
        tile: at.tile,
        port,
    })
}

/// Joins ports for every stream of a launch, and for the tokens of the shims that it uses.
pub(super) fn circuits(
    flat: &Flat<'_>,
    places: &Places,
    writer: &mut StreamWriter,
) -> Result<(), NoWords> {
    let mut streams = Vec::new();
    for (id, channel) in flat.channels.iter().enumerate() {
        if channel.decl.link != ChannelLink::Stream {
            continue;
        }
        let name = flat.channel_name(id);
        let unused = || NoWords::new(&*name, "nobody sends or receives it");
        let from = places.sources[id].and_then(end).ok_or_else(unused)?;
        let to: Option<Vec<TilePort>> = places.sinks[id].iter().map(|&at| end(at)).collect();
        let to = to.filter(|to| !to.is_empty()).ok_or_else(unused)?;
        streams.push(RoutedStream {
            name,
            from,
            to,
            is_packet: false,
        });
    }
    let ways = router::route(&streams).map_err(|e| NoWords::new(e.place, e.problem))?;
    for join in ways.iter().flatten() {
        writer.circuit(join.tile, join.slave, join.master)?;
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
