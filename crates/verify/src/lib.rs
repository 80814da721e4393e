//! Checks of devices: whether an NPU computes its model, and where it does not.
//!
//! Nothing that runs models for users depends on this crate. It looks at the runtime from outside: it reads plans,
//! slots and logits, and computes the expected values by its own code.
//!
//! - [`reference`](mod@reference): the graph by its definition, node by node, in f32 and in a device's numerics.
//! - [`verification`]: a device's logits compared with the reference's along the same tokens, and how far apart they may be.
//! - [`ops`]: every op of every dispatch in isolation, from the operands that the device had.
//! - [`mutants`]: devices that are wrong on purpose, which test all of the above.
#![forbid(unsafe_code)]

pub mod mutants;
pub mod ops;
pub mod reference;
pub mod verification;
