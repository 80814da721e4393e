//! Models on devices: sessions and the engine on the virtual NPU, the check of ops, the gate.
#![allow(clippy::unwrap_used)] // A test may panic.

mod cached;
mod check;
mod engine;
mod engine_failure;
mod failure;
mod gate;
mod head;
mod images;
mod limits;
mod padding;
mod passes;
mod plan;
mod sessions;
mod support;
mod token;
mod tower;
mod vocab;
