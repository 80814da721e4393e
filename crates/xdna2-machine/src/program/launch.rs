//! Launches and their shim transfers.

use super::{Affine, Channel, Herd, Pattern, Stage};

/// One configuration of the array, run over a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Name, unique in the program.
    pub name: String,
    /// The launch's arguments as indices of the program's slots. Transfers name arguments, so
    /// stitching rewires a launch by this list alone (`arg_map`).
    pub args: Vec<usize>,
    /// Iterations per dimension, the last fastest; empty for one.
    pub grid: Vec<u32>,
    /// How grid points follow each other.
    pub order: GridOrder,
    /// Whether its configuration is loaded together with that of the launch before it, so that the array is not
    /// configured anew ([`resident`](super::resident)).
    pub resident: bool,
    /// Channels.
    pub channels: Vec<Channel>,
    /// Memory-tile buffers.
    pub stages: Vec<Stage>,
    /// Shim tasks of one grid point, in order on each shim DMA channel.
    pub transfers: Vec<Transfer>,
    /// Cores.
    pub herds: Vec<Herd>,
}

/// How the grid points of a launch follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GridOrder {
    /// A point begins when the one before has written its last byte to DDR and its tokens were
    /// awaited (MLIR-AIR's launches).
    #[default]
    Sequential,
    /// Tasks of the next point are queued behind those of this one; only the last are awaited.
    Streamed,
}

/// A bundle of shim tasks: one for every index in `dims` (all at once, on their channels) and,
/// within each, one after the other for every value of the loops.
///
/// The direction follows from the channel: `from` a shim reads DDR, `to` a shim writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Size of the bundle per dimension (`i0`, `i1`, …).
    pub dims: Vec<u32>,
    /// Loops around the task (`l0`, `l1`, …): every iteration is a task, a buffer descriptor
    /// pushed to the channel's queue.
    pub loops: Vec<Affine>,
    /// Argument of the launch.
    pub arg: usize,
    /// Index in the launch's channels.
    pub channel: usize,
    /// Index in the bundle, in `i` only.
    pub index: Vec<Affine>,
    /// The walk over the argument, in `g`, `i` and `l`: a whole number of the channel's blocks.
    pub pattern: Pattern,
}
