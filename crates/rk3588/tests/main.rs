//! The target against its documents, its goldens, its virtual device and its driver.
//!
//! One program of modules: each would link the crates below anew.

mod board;
#[path = "device/main.rs"]
mod device;
mod docs;
mod golden;
mod linear;
#[path = "model/main.rs"]
mod model;
mod probe;
mod verify;
