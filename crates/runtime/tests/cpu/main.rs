//! The engine of the CPU: against goldens, at every geometry, within its limits, with kept prefixes.
#![allow(clippy::unwrap_used)] // A test may panic.

mod adapters;
mod assistant;
mod converted;
mod disk;
mod draft_layer;
mod encoders;
mod engine;
mod geometries;
mod limits;
mod long;
mod packed;
mod prefix;
mod quality;
mod ranks;
mod read_ahead;
mod sampler;
mod scales;
mod speculate;
mod states;
mod truth;
