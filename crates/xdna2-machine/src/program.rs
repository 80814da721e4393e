//! Tile programs, in the words of MLIR-AIR: program, launch, channel, segment (here: stages on the
//! memory tiles), herd.
//!
//! A [`Program`] is the content of one dispatch: [`Launch`]es in order, each reading and writing DDR
//! through the program's slots; nothing survives in L1 or L2 between launches. Inside a launch,
//! for every point of its grid in order, four kinds of actor run at once and meet only in bounded
//! channels:
//!
//! - **transfers**: tasks of the shim DMA channels, DDR to a [`Channel`] or back;
//! - **stages**: buffers on memory tiles, filled from channels and drained into channels by access
//!   patterns, one block at a time under locks (an object FIFO);
//! - **cores**: the tiles of a [`Herd`], each running the same loop nest of `get`, `new`, `call`,
//!   `put`;
//! - **channels** themselves: streams with a fixed block size and depth, with broadcast.
//!
//! Data parallel copies are written once: channels and stages are *bundles* with dimensions, and
//! every number that differs between copies is an [`Affine`] expression of the bundle's indices,
//! the grid point, the core's coordinates or a loop variable. The order of bytes is decided by
//! [`Pattern`]s alone, so a wrong stride gives a wrong result.

mod affine;
#[cfg(test)]
mod arbitrary;
pub mod builder;
mod channel;
pub mod codec;
pub mod expr;
pub mod flat;
mod herd;
mod launch;
pub mod resident;
mod stage;
pub mod stitch;
pub mod text;
mod walk;

pub use affine::{Affine, Pattern, Var};
pub use builder::{ProgramErrors, build};
pub use channel::{Channel, ChannelLink, IndexRange, Place};
pub use flat::{Flat, FlatChannel, FlatCore, FlatEnd, FlatError, FlatStage, FlatTransfer, Port};
pub use herd::{Condition, Herd, Local, Op, Operand};
pub use launch::{GridOrder, Launch, Transfer};
pub use stage::{Stage, StageEnd};
pub use stitch::{StitchError, StitchPart, stitch};
pub use walk::{Env, Indices, PatternWalk, Runs};

use millrace_npu::Slot;

/// How deep loops and branches of a core program may be nested.
pub const MAX_NESTING: usize = 32;

/// Content of one dispatch: launches in order over a common list of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name: letters, digits, `_`.
    pub name: String,
    /// The argument list.
    pub slots: Vec<Slot>,
    /// Launches, run one after the other.
    pub launches: Vec<Launch>,
}
