//! Computation of ops on this computer: the plan of a pass, the registers between its steps, kernels where they
//! exist and definitions elsewhere.
//!
//! [`plan`] orders a graph's nodes and shares memory between their values. [`ops`] computes one op over rows of f32. The
//! CPU engine ([`pass`]) and the host part of a device's plan both call it, so an op that exists for one exists for
//! both. [`memory`] is for ops that read a sequence's memory. The graph's executor computes ops without a kernel; it
//! also computes whole graphs for checks ([`Sequence`](millrace_graph::Sequence)).

mod attend;
mod chunk;
mod compute;
mod encoder;
mod experts;
mod head;
mod memory;
mod op_kernels;
mod ops;
mod pass;
mod plan;
mod planes;
mod products;
mod recurrent;

pub(crate) use chunk::{Chunk, PassSink, RunSpan};
pub(crate) use memory::Past;
pub(crate) use op_kernels::has_kernel;
pub use ops::{Numbers, decode_vectors};
pub(crate) use ops::{Ops, decode_vector};
pub(crate) use pass::Executor;
pub use plan::PlanError;
pub(crate) use plan::head_of;
pub(crate) use planes::Planes;
