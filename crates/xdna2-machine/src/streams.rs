//! Streams of a launch: the DMA channels at their ends, and their ways through the switches.
//!
//! The lowering to words and the clock both number channels and route streams here. So the clock counts the switches
//! that are written, those of tiles that a stream only passes among them.

use crate::program::{ChannelLink, Flat, Port};
use millrace_xdna2_words::port;
use millrace_xdna2_words::router::{self, Join, RouteError, RoutedStream, TilePort};
use millrace_xdna2_words::tile::{Direction, Tile};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::{BTreeMap, BTreeSet};

/// DMA channels of a shim or core in one direction.
const CHANNELS: u8 = 2;
/// DMA channels of a memory tile in one direction.
const MEMORY_CHANNELS: u8 = 6;
/// Descriptors of a memory tile that even channels reach, and those that odd channels reach.
const BANK: u8 = 24;

/// Why a stream has no DMA channel or no way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct StreamError {
    /// The channel of the program, or the tile.
    pub place: String,
    /// The resource that it lacks.
    pub problem: String,
}

impl StreamError {
    fn new(place: impl Into<String>, problem: impl Into<String>) -> StreamError {
        StreamError {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

impl From<RouteError> for StreamError {
    fn from(error: RouteError) -> StreamError {
        StreamError::new(error.place, error.problem)
    }
}

/// The DMA channels at both ends of every stream, by the id of the program's channel.
#[derive(Clone, Debug)]
pub struct StreamEnds {
    /// Its sender.
    pub sources: Vec<Option<ChannelAt>>,
    /// Its receivers: those of shims, of memory tiles, of cores.
    pub sinks: Vec<Vec<ChannelAt>>,
}

/// A stream from one DMA channel to others.
#[derive(Clone, Debug)]
pub struct ChannelStream {
    /// The channel of the program.
    pub name: String,
    /// Its sender.
    pub from: ChannelAt,
    /// Its receivers.
    pub to: Vec<ChannelAt>,
}

/// A fill or drain of a memory tile, which takes a DMA channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEnd {
    /// Id of the program's channel.
    pub channel: usize,
    /// Whether blocks arrive by it.
    pub is_fill: bool,
    /// Its buffer descriptors.
    pub n_descriptors: usize,
}

/// The numbers of a [`MemoryEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedEnd {
    /// Which of the ends it is.
    pub end: usize,
    /// Its DMA channel.
    pub at: ChannelAt,
    /// Its first descriptor; the others follow.
    pub first: u8,
}

/// Descriptors and channels of a memory tile that are in use.
#[derive(Default)]
struct MemoryNumbers {
    /// Descriptors of even and of odd channels.
    banks: [u8; 2],
    taken: BTreeSet<(Direction, u8)>,
}

impl MemoryNumbers {
    /// A channel for an end of so many descriptors, in the emptier bank with a free one.
    fn channel(&mut self, direction: Direction, n: usize, only: Option<u8>) -> Option<u8> {
        let free = (0..MEMORY_CHANNELS).filter(|number| {
            let used = usize::from(self.banks[usize::from(number % 2)]);
            let fits = used.saturating_add(n) <= usize::from(BANK);
            fits && !self.taken.contains(&(direction, *number)) && only.is_none_or(|o| o == *number)
        });
        let number = free.min_by_key(|number| (self.banks[usize::from(number % 2)], *number))?;
        self.taken.insert((direction, number));
        Some(number)
    }

    fn descriptors(&mut self, number: u8, n: usize) -> u8 {
        let bank = &mut self.banks[usize::from(number % 2)];
        let first = number % 2 * BANK + *bank;
        *bank += n as u8;
        first
    }
}

impl StreamEnds {
    /// No channel has a number yet.
    pub fn none(flat: &Flat<'_>) -> StreamEnds {
        StreamEnds {
            sources: vec![None; flat.channels.len()],
            sinks: vec![Vec::new(); flat.channels.len()],
        }
    }

    /// Numbers of all ends; `memory` has the ends of each column's memory tile, in the order of its stages.
    ///
    /// # Errors
    /// A tile without a channel or descriptors for one of its ends.
    pub fn new(
        flat: &Flat<'_>,
        memory: &BTreeMap<u32, Vec<MemoryEnd>>,
    ) -> Result<StreamEnds, StreamError> {
        let mut ends = StreamEnds::none(flat);
        ends.shims(flat)?;
        for (&col, of_tile) in memory {
            ends.memory_tile(flat, col, of_tile)?;
        }
        ends.cores(flat)?;
        Ok(ends)
    }

    fn add(&mut self, channel: usize, at: ChannelAt) {
        match at.direction {
            Direction::Mm2s => self.sources[channel] = Some(at),
            Direction::S2mm => self.sinks[channel].push(at),
        }
    }

    /// Numbers the channels of shims, in the order of the program's channels.
    ///
    /// # Errors
    /// A shim with too few channels.
    pub fn shims(&mut self, flat: &Flat<'_>) -> Result<(), StreamError> {
        let mut next: BTreeMap<(u32, Direction), u8> = BTreeMap::new();
        for (id, channel) in flat.channels.iter().enumerate() {
            let from = matches!(channel.from, Port::Shim { .. });
            let ends = [
                (Some(&channel.from), Direction::Mm2s),
                (channel.to.first(), Direction::S2mm),
            ];
            for (port, direction) in ends {
                let Some(Port::Shim { col }) = port else {
                    continue;
                };
                let number = next.entry((*col, direction)).or_default();
                if *number >= CHANNELS || from && direction == Direction::S2mm {
                    let problem = "no DMA channel of a shim is left";
                    return Err(StreamError::new(flat.channel_name(id), problem));
                }
                let at = channel_at(tile(*col, 0)?, direction, *number);
                *number += 1;
                self.add(id, at);
            }
        }
        Ok(())
    }

    /// Numbers channels and descriptors of a column's memory tile. Ends that need most come first.
    ///
    /// # Errors
    /// An end without a channel whose bank has enough descriptors.
    pub fn memory_tile(
        &mut self,
        flat: &Flat<'_>,
        col: u32,
        ends: &[MemoryEnd],
    ) -> Result<Vec<NumberedEnd>, StreamError> {
        let at = tile(col, 1)?;
        let mut numbers = MemoryNumbers::default();
        // Both ends of a stream within the tile have one number: DMA i leads to DMA i alone.
        let is_loop = |end: &MemoryEnd| {
            let channel = &flat.channels[end.channel];
            let memory = |port: &Port| matches!(port, Port::Memory { col: c, .. } if *c == col);
            memory(&channel.from) && channel.to.iter().any(memory)
        };
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by_key(|&end| {
            let end = &ends[end];
            (!is_loop(end), std::cmp::Reverse(end.n_descriptors))
        });
        let mut loops: BTreeMap<usize, u8> = BTreeMap::new();
        let mut numbered = Vec::with_capacity(ends.len());
        for number in order {
            let end = &ends[number];
            let (n, direction) = (end.n_descriptors, direction(!end.is_fill));
            let only = loops.get(&end.channel).copied();
            let Some(channel) = numbers.channel(direction, n, only) else {
                let problem = format!("no channel of {at} is left with {n} descriptors");
                return Err(StreamError::new(flat.channel_name(end.channel), problem));
            };
            if is_loop(end) {
                loops.insert(end.channel, channel);
            }
            let at = channel_at(at, direction, channel);
            self.add(end.channel, at);
            numbered.push(NumberedEnd {
                end: number,
                at,
                first: numbers.descriptors(channel, n),
            });
        }
        Ok(numbered)
    }

    /// Numbers the channels of cores, in the order of the program's channels.
    ///
    /// # Errors
    /// A core with too few channels.
    pub fn cores(&mut self, flat: &Flat<'_>) -> Result<(), StreamError> {
        let mut next: BTreeMap<(usize, Direction), u8> = BTreeMap::new();
        for (id, channel) in flat.channels.iter().enumerate() {
            if channel.decl.link != ChannelLink::Stream {
                continue;
            }
            let from = std::iter::once((&channel.from, Direction::Mm2s));
            let to = channel.to.iter().map(|port| (port, Direction::S2mm));
            for (port, direction) in from.chain(to) {
                let Port::Core { core } = *port else {
                    continue;
                };
                let number = next.entry((core, direction)).or_default();
                if *number >= CHANNELS {
                    let problem = "no DMA channel of a core is left";
                    return Err(StreamError::new(flat.channel_name(id), problem));
                }
                let core = &flat.cores[core];
                let at = channel_at(tile(core.col, core.row + 2)?, direction, *number);
                *number += 1;
                self.add(id, at);
            }
        }
        Ok(())
    }

    /// All DMA channels, in order.
    pub fn channels(&self) -> BTreeSet<&ChannelAt> {
        let sinks = self.sinks.iter().flatten();
        self.sources.iter().flatten().chain(sinks).collect()
    }

    /// Every stream of the launch.
    ///
    /// # Errors
    /// A stream without a sender or a receiver.
    pub fn streams(&self, flat: &Flat<'_>) -> Result<Vec<ChannelStream>, StreamError> {
        let mut streams = Vec::new();
        for (id, channel) in flat.channels.iter().enumerate() {
            if channel.decl.link != ChannelLink::Stream {
                continue;
            }
            let name = flat.channel_name(id);
            let unused = || StreamError::new(&*name, "nobody sends or receives it");
            let from = self.sources[id].ok_or_else(unused)?;
            let to = self.sinks[id].clone();
            if to.is_empty() {
                return Err(unused());
            }
            streams.push(ChannelStream { name, from, to });
        }
        Ok(streams)
    }

    /// The joins of every stream, port by port.
    ///
    /// # Errors
    /// As [`StreamEnds::streams`], and streams that find no ways.
    pub fn ways(&self, flat: &Flat<'_>) -> Result<Vec<Vec<Join>>, StreamError> {
        let routed = |stream: ChannelStream| {
            let from = port_of(stream.from);
            let to: Option<Vec<TilePort>> = stream.to.iter().map(|&at| port_of(at)).collect();
            match (from, to) {
                (Some(from), Some(to)) => Ok(RoutedStream {
                    name: stream.name,
                    from,
                    to,
                    is_packet: false,
                }),
                _ => Err(StreamError::new(
                    stream.name,
                    "a DMA channel without a port",
                )),
            }
        };
        let streams = self.streams(flat)?.into_iter().map(routed);
        let streams: Result<Vec<RoutedStream>, StreamError> = streams.collect();
        Ok(router::route(&streams?)?)
    }
}

/// The port of a channel at its tile's switch.
fn port_of(at: ChannelAt) -> Option<TilePort> {
    let port = port::of_dma(at.tile.kind(), at.direction, at.number)?;
    Some(TilePort {
        tile: at.tile,
        port,
    })
}

fn direction(sends: bool) -> Direction {
    match sends {
        true => Direction::Mm2s,
        false => Direction::S2mm,
    }
}

fn channel_at(tile: Tile, direction: Direction, number: u8) -> ChannelAt {
    ChannelAt {
        tile,
        direction,
        number,
    }
}

fn tile(col: u32, row: u32) -> Result<Tile, StreamError> {
    let missing = || StreamError::new("the array", format!("no tile ({col}, {row})"));
    Tile::new(col, row).ok_or_else(missing)
}
