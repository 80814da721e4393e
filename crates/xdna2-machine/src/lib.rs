//! The machine of AMD XDNA2 (NPU2: Strix, Krackan): an 8 × 4 array of compute tiles with a memory
//! tile and a shim tile below each column. What its programs are, which of them it would refuse, what
//! they compute and how long they take.
//!
//! | module | holds |
//! |---|---|
//! | [`device`] | the virtual NPU2 as a device: verified, run, timed |
//! | [`simulate`] | functional simulation: bytes move, tile kernels compute, deadlocks are found |
//! | [`machine`] | facts about the NPU as data, with their sources; variants and overrides |
//! | [`numerics`] | how matrix units multiply: exactly, or through block floating point |
//! | [`profile`] | calibrated constants of a software stack on a box, apart from the facts |
//! | [`program`] | tile programs: programs, launches, channels, stages, herds; builder, text form, stitching |
//! | [`tile`] | tile kernels: dimensions, operands, cost and numerics of what a core computes in one call |
//! | [`timing`] | event simulation of a program's time, closed forms |
//! | [`verify`](mod@verify) | the mapping linter: every rule of the hardware by code, with limit, finding and remedy |
//!
//! What is laid onto this machine, kernels and whole models, is the crate above: `millrace-xdna2`.
#![forbid(unsafe_code)]

pub mod device;
pub mod machine;
pub mod numerics;
pub mod profile;
pub mod program;
pub mod simulate;
pub mod tile;
pub mod timing;
pub mod verify;

pub use machine::Machine;
pub use numerics::Numerics;
pub use profile::Profile;
pub use program::Program;
pub use verify::verify;
