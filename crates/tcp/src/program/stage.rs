//! The stages of a kernel.

use super::View;
use crate::Element;
use crate::axes::Mapping;

/// A stage of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Reads data memory as a stream of packets.
    Fetch {
        /// Source.
        view: View,
        /// A second tensor of the same mapping, interleaved.
        with: Option<View>,
        /// The stream's element, where it is another.
        cast: Option<Element>,
        /// Order of the packets.
        time: Mapping,
        /// Content of a packet.
        packet: Mapping,
    },
    /// Moves packets between slices.
    Switch {
        /// The way in which packets move.
        topology: Topology,
        /// Content of each slice after the switch.
        slice: Mapping,
        /// Order of the packets then.
        time: Mapping,
    },
    /// Cuts packets into flits.
    Collect {
        /// Order of the flits.
        time: Mapping,
        /// Content of a flit.
        packet: Mapping,
    },
    /// Multiplies with the content of a register file.
    Outer {
        /// The tensor in the register file.
        trf: usize,
        /// Order of the products.
        time: Mapping,
        /// Products of a cycle and lane.
        packet: Mapping,
    },
    /// Adds within packets, by a tree.
    Packet {
        /// The packet that remains.
        packet: Mapping,
    },
    /// Adds over time.
    Time {
        /// The time that remains.
        time: Mapping,
    },
    /// Folds lanes into time and packets.
    Lane {
        /// The mode.
        mode: LaneMode,
        /// Order of the results.
        time: Mapping,
        /// Content of a result flit.
        packet: Mapping,
    },
    /// Keeps the stream as it is here for one later operand.
    Stash,
    /// An operation of the vector engine, element by element.
    Vector {
        /// The operation.
        op: VectorOp,
        /// Its operand.
        operand: VectorOperand,
    },
    /// Reduces within a slice.
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// The time that remains.
        time: Mapping,
        /// The packet that remains.
        packet: Mapping,
    },
    /// Reduces over slices, around a ring.
    Ring {
        /// The reduction.
        op: ReduceOp,
        /// The slices that remain.
        slice: Mapping,
    },
    /// Narrows elements.
    Cast {
        /// The new element.
        to: Element,
    },
    /// Exchanges time and packet.
    Transpose {
        /// Order of the packets then.
        time: Mapping,
        /// Content of a packet then.
        packet: Mapping,
    },
    /// Writes data memory.
    Commit {
        /// Destination.
        to: View,
    },
    /// Writes a register file.
    ToRegisters {
        /// Its tensor.
        tensor: usize,
    },
}

/// How the switch moves packets. Source: the book, computing-tensors/switch-engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Nothing moves.
    Forwarding,
    /// Copies along both halves of a slice's number.
    Broadcast01,
    /// Copies along the inner half.
    Broadcast1,
    /// Exchanges the halves.
    Transpose,
    /// Exchanges slices with time.
    InterTranspose,
    /// Exchanges, then copies.
    TransposedBroadcast1,
    /// Copies by a bitmap.
    CustomBroadcast,
}

/// How lanes become flits. Source: the book, contraction-engine/lane-folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMode {
    /// Eight lanes side by side make a flit.
    Interleaved,
    /// One lane after the other.
    Sequential,
}

/// Operations of the vector engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorOp {
    /// `i32` to `f32`.
    FixedToFloat,
    /// `stream + operand`.
    Add,
    /// `stream - operand`.
    Sub,
    /// `stream × operand` on the first multiplier.
    Mul0,
    /// `stream × operand` on the second.
    Mul1,
    /// `e^stream`.
    Exp,
    /// Square root.
    Sqrt,
    /// Logistic function.
    Sigmoid,
    /// `stream / operand`.
    Div,
    /// `operand / stream`.
    DivBy,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// `f32` to `i32`, to nearest.
    FloatToFixed,
}

/// Operand of the vector engine beside the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum VectorOperand {
    /// Nothing.
    None,
    /// A constant.
    Constant(f32),
    /// The stream itself.
    Stream,
    /// The stashed stream.
    Stash,
    /// The second tensor of an interleaved fetch.
    Second,
    /// A tensor in the vector register file.
    Vrf(usize),
}

/// How values are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// By their sum.
    Add,
    /// By the largest.
    Max,
    /// By the smallest.
    Min,
}
