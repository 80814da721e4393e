//! Lowering, mappings, plans and predictions of the target.
//!
//! One program of modules: each would link the compiler and the machine anew.

mod compile;
mod device;
#[path = "lower/main.rs"]
mod lower;
#[path = "mappings/main.rs"]
mod mappings;
#[path = "predict/main.rs"]
mod predict;
mod timing;
#[path = "verified/main.rs"]
mod verified;
mod worked_example;
