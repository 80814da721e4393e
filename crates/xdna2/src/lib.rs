//! AMD XDNA2 (NPU2: Strix, Krackan) as a target: kernels and whole models laid onto the machine of
//! [`millrace_xdna2_machine`], and priced.
//!
//! | module | holds |
//! |---|---|
//! | [`lower`] | from an op graph to programs, calls and host steps: placement, grouping, slots |
//! | [`mapping`] | kernels laid onto the array: builders, references, legal shapes and tilings |
//! | [`predict`] | prices of programs, calls and host steps |
//! | [`target`] | the row of this kind of NPU in the registry of targets |
#![forbid(unsafe_code)]

pub mod lower;
pub mod mapping;
pub mod predict;
pub mod target;
