//! From a checkpoint to an op graph with shapes: configuration, weight names, one file a family.
#![forbid(unsafe_code)]

pub mod config;
pub mod graph;
