//! Channels: bounded streams between two kinds of tile.

use super::{Affine, Pattern};
use millrace_npu::Element;

/// A bundle of channels, one for every index in `dims`. Each carries blocks of a fixed shape, in
/// order, from one source to one sink or, broadcast, to several.
///
/// A broadcast block advances only when every sink has room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Name, unique in the launch.
    pub name: String,
    /// Size of the bundle per dimension; empty for a single channel.
    pub dims: Vec<u32>,
    /// Type of one element.
    pub element: Element,
    /// Shape of one block, which a core gets or puts at once.
    pub block: Vec<u32>,
    /// Source of blocks, in the bundle's indices.
    pub from: Place,
    /// Sink of blocks. More than one core is a broadcast.
    pub to: Place,
    /// Blocks held at each *core* end: 1, or 2 for ping-pong. Each costs L1. (At a memory tile the
    /// stage's `copies` count; at a shim there is no buffer.)
    pub depth: u32,
    /// How the two ends are joined.
    pub link: ChannelLink,
    /// How the core end walks its block when sending: block elements in stream order. `None`: in
    /// order. Core descriptors have three dimensions.
    pub from_pattern: Option<Pattern>,
    /// How the core end walks its block when receiving.
    pub to_pattern: Option<Pattern>,
}

/// How the ends of a channel are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelLink {
    /// DMA channels and the stream switches.
    Stream,
    /// The 512-bit accumulator cascade, to the core south or east of it.
    Cascade,
    /// Shared L1 of two neighbouring cores: no copy, one lock hand-over.
    Neighbour,
}

/// An end of a channel, in the bundle's indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The shim tile of a column: DDR.
    Shim(Affine),
    /// The memory tile of a column: one of its stages.
    Memory(Affine),
    /// A core, or a rectangle of them (broadcast). Array coordinates: column 0–7, row 0–3, row 0
    /// being the row of cores next to the memory tiles.
    Core {
        /// Columns.
        col: IndexRange,
        /// Rows.
        row: IndexRange,
    },
}

/// One coordinate or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexRange {
    /// One.
    At(Affine),
    /// All of `start .. start + len`.
    Range {
        /// The first.
        start: u32,
        /// Number of them.
        len: u32,
    },
}

impl Channel {
    /// Elements of one block.
    pub fn block_elements(&self) -> u64 {
        self.block.iter().map(|&d| u64::from(d)).product()
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> u64 {
        self.block_elements() * self.element.size_bytes()
    }

    /// Channels in the bundle.
    pub fn n_copies(&self) -> u64 {
        self.dims.iter().map(|&d| u64::from(d)).product()
    }
}
