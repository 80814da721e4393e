//! The checks on the virtual NPU: right devices pass, wrong ones are found and named.
#![allow(clippy::unwrap_used)] // A test may panic.

mod cache;
mod delta_net;
mod experts;
mod four_bits;
mod goldens;
mod mixtures;
mod ops;
mod verification;

// The models and devices of the runtime's tests of NPUs.
#[allow(dead_code)] // Those tests use the rest.
#[path = "../../../runtime/tests/npu/support.rs"]
mod support;
