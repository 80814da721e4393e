//! Development only: the model fixtures and how closely results must agree with them.
//!
//! [`golden`] loads the fixtures of `testdata/goldens`, and [`compare`] measures and asserts agreement. [`rng`] gives repeatable random
//! data, [`sample`] the part of a test's cases that it takes, and [`ops`] an op that no crate knows. Everything here is called by tests,
//! so a broken fixture panics with the reason instead of returning an error.
#![forbid(unsafe_code)]

pub mod assistant;
pub mod compare;
pub mod draft;
pub mod encoder;
pub mod golden;
pub mod ops;
pub mod rng;
pub mod sample;
pub mod vision;

pub use compare::{Agreement, assert_logits_close, assert_top5};
pub use golden::{Golden, GoldenMatrix, GoldenValues};
