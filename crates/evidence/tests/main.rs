//! What documents say of measurements, beside the crate.
//!
//! One program of modules: each would link the targets anew.

mod registry;
mod rk3588_document;
mod tcp_document;
