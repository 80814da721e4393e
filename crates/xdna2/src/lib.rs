//! AMD XDNA2 (NPU2: Strix, Krackan): an 8 × 4 array of compute tiles with a memory tile and a shim
//! tile below each column.
//!
//! | module | holds |
//! |---|---|
//! | [`device`] | the virtual NPU2 as a device: verified, run, timed |
//! | [`fidelity`] | predictions beside published measurements |
//! | [`functional`] | functional simulation: bytes move, tile kernels compute, deadlocks are found |
//! | [`lower`] | from an op graph to programs, calls and host steps: placement, grouping, slots |
//! | [`machine`] | facts about the NPU as data, with their sources; variants and overrides |
//! | [`mapping`] | kernels laid onto the array: builders, references, legal shapes and tilings |
//! | [`numerics`] | how matrix units multiply: exactly, or through block floating point |
//! | [`predict`] | prices of programs, calls and host steps |
//! | [`target`] | the row of this kind of NPU in the registry of targets |
//! | [`profile`] | calibrated constants of a software stack on a box, apart from the facts |
//! | [`program`] | tile programs: programs, launches, channels, stages, herds; builder, text form, stitching |
//! | [`tile`] | tile kernels: dimensions, operands, cost and numerics of what a core computes in one call |
//! | [`timing`] | event simulation of a program's time, closed forms |
//! | [`verify`](mod@verify) | the mapping linter: every rule of the hardware by code, with limit, finding and remedy |
#![forbid(unsafe_code)]

pub mod device;
pub mod fidelity;
pub mod functional;
pub mod lower;
pub mod machine;
pub mod mapping;
pub mod numerics;
pub mod predict;
pub mod profile;
pub mod program;
pub mod target;
pub mod tile;
pub mod timing;
pub mod verify;

pub use machine::Machine;
pub use numerics::Numerics;
pub use profile::Profile;
pub use program::Program;
pub use verify::verify;
