//! The device contract, its conformance suite and the program cache, on a device in memory.
#![allow(clippy::unwrap_used)] // A test may panic.

mod cache;
mod conformance;
mod ram_device;
