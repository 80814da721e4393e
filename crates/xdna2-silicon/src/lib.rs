//! Tile programs as the words that an NPU2 reads.
//!
//! A tile program describes the data movement. The words add its addresses, lock and descriptor numbers, port indices,
//! task queues and completion tokens. [`mod@lower`] decides all of it, the same way every time. It makes one
//! transaction stream for each launch, which sets all the state that it relies on. [`mod@run`] executes the streams on
//! the board of `millrace-xdna2-words`. There, tile kernels stand in for the cores' code, so that the bytes in DDR can
//! be compared with the simulator's. Nothing here has run on hardware.
//!
//! | module | holds |
//! |---|---|
//! | [`lower`](mod@lower) | placement, numbers, routes, shim tasks, the stream |
//! | [`core`] | a core's program as the board runs it |
//! | [`run`](mod@run) | a program's launches on the board |
//! | [`export`] | launches as designs in MLIR's aie dialect, with shells of the kernels |
//! | [`amdxdna`] | the Linux driver's interface: Linux, and a kernel in software over the board |
//! | [`device`] | a virtual NPU2 that executes words behind that kernel |
//!
//! Programs without words yet are refused and named: stage patterns that vary over the grid, elements of four bits.

#![deny(unsafe_code)]

pub mod amdxdna;
pub mod core;
pub mod device;
pub mod export;
pub mod lower;
pub mod run;

pub use export::{KernelFunction, LaunchDesign, designs};
pub use lower::{LaunchWords, LoweredLaunch, WordCounts, WordsError, lower};
pub use run::{RunError, run};
