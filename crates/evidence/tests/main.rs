//! Tests of the crate, and of documents that quote measurements.
//!
//! One program of modules: each would link the targets anew.

mod registry;
mod rk3588_document;
mod tcp_document;
