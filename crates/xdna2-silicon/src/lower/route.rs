//! Ways of streams: the streams of a launch, and the router's answer as words.

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

/// Every stream of a launch.
pub(crate) fn streams(flat: &Flat<'_>, places: &Places) -> Result<Vec<ChannelStream>, NoWords> {
    let mut streams = Vec::new();
    for (id, channel) in flat.channels.iter().enumerate() {
        if channel.decl.link != ChannelLink::Stream {
            continue;
        }
        let name = flat.channel_name(id);
        let unused = || NoWords::new(&*name, "nobody sends or receives it");
        let from = places.sources[id].ok_or_else(unused)?;
        let to = places.sinks[id].clone();
        if to.is_empty() {
            return Err(unused());
        }
        streams.push(ChannelStream { name, from, to });
    }
    Ok(streams)
}

/// A stream from one DMA channel to others.
#[derive(Clone, Debug)]
pub(crate) struct ChannelStream {
    /// The channel of the program.
    pub(crate) name: String,
    pub(crate) from: ChannelAt,
    pub(crate) to: Vec<ChannelAt>,
}

/// Joins ports for every stream of a launch, and for the tokens of the shims that it uses.
pub(super) fn circuits(
    flat: &Flat<'_>,
    places: &Places,
    writer: &mut StreamWriter,
) -> Result<(), NoWords> {
    let routed = |stream: ChannelStream| {
        let from = end(stream.from);
        let to: Option<Vec<TilePort>> = stream.to.iter().map(|&at| end(at)).collect();
        match (from, to) {
            (Some(from), Some(to)) => Ok(RoutedStream {
                name: stream.name,
                from,
                to,
                is_packet: false,
            }),
            _ => Err(NoWords::new(stream.name, "a DMA channel without a port")),
        }
    };
    let streams = streams(flat, places)?;
    let streams: Result<Vec<RoutedStream>, NoWords> = streams.into_iter().map(routed).collect();
    let ways = router::route(&streams?).map_err(|e| NoWords::new(e.place, e.problem))?;
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
