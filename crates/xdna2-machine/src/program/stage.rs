//! Stages: buffers on memory tiles (L2).

use super::{Affine, Pattern};
use millrace_npu::Element;

/// A bundle of L2 buffers, each an object FIFO: its fills together write one block, then its
/// drains together read it, then the block is free. `copies` blocks exist, so with two the next is
/// filled while the last is drained.
///
/// A stage runs as long as blocks arrive; it has no program. The part that one fill brings one drain must be one
/// stretch of both their streams, as a descriptor waits for one lock. The verifier reports stages where that is not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Name, unique in the launch.
    pub name: String,
    /// Size of the bundle per dimension; empty for a single stage.
    pub dims: Vec<u32>,
    /// Column of the memory tile, in the bundle's indices.
    pub col: Affine,
    /// Type of one element.
    pub element: Element,
    /// Shape of one block.
    pub block: Vec<u32>,
    /// Blocks in the memory tile: 1, or 2 for ping-pong.
    pub copies: u32,
    /// Ends that write a block. Each end is one DMA channel (S2MM).
    pub fills: Vec<StageEnd>,
    /// Ends that read a block. Each end is one DMA channel (MM2S).
    pub drains: Vec<StageEnd>,
}

/// One end of a stage, or `each` of them: a DMA channel of the memory tile with its pattern.
///
/// The pattern's elements, in order, are a whole number of the channel's blocks: a fill takes that
/// many blocks from the channel for one stage block, a drain sends that many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageEnd {
    /// How many ends this describes, `e` counting them in the expressions below.
    pub each: u32,
    /// Index in the launch's channels.
    pub channel: usize,
    /// Index of the channel in the bundle, in the stage's indices and `e`.
    pub index: Vec<Affine>,
    /// The walk over the stage's block, in the stage's indices, `e` and the grid.
    pub pattern: Pattern,
    /// How often a drain sends the whole pattern for one block: 1, or more where a panel stays
    /// and is streamed again. 1 for fills.
    pub repeat: u32,
}

impl Stage {
    /// Elements of one block.
    pub fn block_elements(&self) -> u64 {
        self.block.iter().map(|&d| u64::from(d)).product()
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> u64 {
        self.block_elements() * self.element.size_bytes()
    }
}
