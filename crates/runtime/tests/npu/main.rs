//! Models on devices: sessions and the engine on the virtual NPU.
#![allow(clippy::unwrap_used)] // A test may panic.

mod cached;
mod delta_net;
mod engine;
mod engine_failure;
mod failure;
mod head;
mod images;
mod limits;
mod padding;
mod passes;
mod plan;
mod sessions;
mod states;
mod support;
mod token;
mod vision;
mod vocab;
