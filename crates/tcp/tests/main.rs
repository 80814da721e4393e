//! The target: its device, its programs, models on it and its verifier.
//!
//! One program of modules: each would link the crates below anew.

mod device;
#[path = "model/main.rs"]
mod model;
#[path = "target/main.rs"]
mod target;
#[path = "verify/main.rs"]
mod verify;
