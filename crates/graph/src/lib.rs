//! The op graph: the computation of a forward pass, with shapes, independent of how or where it runs.
//!
//! A [`Graph`] is a list of [`Node`]s in execution order. Every node reads values of earlier nodes
//! and writes one value of shape `[n_tokens, width]`. Weights are named as the checkpoint names them.
//!
//! An [`Op`] is a file in `op/` and a row of the table in `op.rs`. The file answers every question of
//! generic code ([`Operation`]): inputs, weights, shapes, the memory of a sequence that it uses, cost, and
//! its value by definition. Checks, sizes, costs, memory and reports ask the op and never match on it. A
//! kernel or a device that computes an op in another way matches the ops it supports and ignores the rest.
//!
//! ```
//! use millrace_graph::{Add, Graph, Node, Op, Operation, Value, ValueId};
//! let node = Node {
//!     op: Op::Add(Add),
//!     inputs: vec![ValueId(0), ValueId(0)],
//!     output: ValueId(1),
//!     layer: None,
//!     label: "double",
//! };
//! assert_eq!((node.op.name(), node.op.arity()), ("add", 2));
//! ```
#![forbid(unsafe_code)]

mod check;
mod cost;
mod executor;
mod graph;
mod memory;
mod op;
mod reference;
mod sequence;
mod shard;

pub use check::{Error, Shapes, WIDTH_MAX, check};
pub use cost::{Depth, OpCost};
pub use executor::{Executor, FEW_INPUTS, InOrder, InputRows, RowPool, SequenceSpan, Tokens};
pub use graph::{
    Derivation, Graph, HeadRows, Node, Rope, RopeId, RopeStyle, Value, ValueId, Weight, WeightId,
    WeightSource, last_readers, single_row,
};
pub use memory::{AllTokensShape, KvShape, SequenceMemory, StateShape};
// Every op of the table, and the types that describe it: a new op needs no line here.
pub use op::*;
pub use reference::{Keys, Real, TokenContext, WeightValues, exact};
pub use sequence::{ComputeNode, Sequence, SequenceNode};
pub use shard::{RankGraph, RankPlace, WeightPart, shard};
