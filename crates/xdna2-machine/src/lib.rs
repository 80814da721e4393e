//! The machine of AMD XDNA2 (NPU2: Strix, Krackan): an 8 × 4 array of compute tiles with a memory
//! tile and a shim tile below each column. This crate defines its programs and the rules by which it refuses some. It
//! also computes their results and their times.
//!
//! | module | holds |
//! |---|---|
//! | [`device`] | the virtual NPU2 as a device: verified, run, timed |
//! | [`simulate`] | functional simulation: bytes move, tile kernels compute, deadlocks are found |
//! | [`machine`] | facts about the NPU as data, with their sources; variants and overrides |
//! | [`numerics`] | how matrix units multiply: exactly, or through block floating point |
//! | [`profile`] | calibrated constants of a software stack on a box, apart from the facts |
//! | [`program`] | tile programs: programs, launches, channels, stages, herds; builder, text form, stitching |
//! | [`streams`] | DMA channels at the ends of a launch's streams, and the ways between them |
//! | [`tile`] | tile kernels: dimensions, operands, cost and numerics of one call of a core |
//! | [`timing`] | event simulation of a program's time, closed forms |
//! | [`verify`](mod@verify) | the mapping linter: every rule of the hardware by code, with limit, finding and remedy |
//!
//! The crate above, `millrace-xdna2`, lays kernels and whole models onto this machine.
#![forbid(unsafe_code)]

pub mod device;
pub mod machine;
pub mod numerics;
pub mod profile;
pub mod program;
pub mod simulate;
pub mod streams;
pub mod tile;
pub mod timing;
pub mod verify;

pub use machine::Machine;
pub use numerics::Numerics;
pub use profile::Profile;
pub use program::Program;
pub use verify::verify;
