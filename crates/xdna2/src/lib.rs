//! AMD XDNA2 (NPU2: Strix, Krackan): an 8 × 4 array of compute tiles with a memory tile and a shim
//! tile below each column.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | tile programs: programs, launches, channels, stages, herds; builder, text form, stitching |
#![forbid(unsafe_code)]

pub mod program;

pub use program::Program;
