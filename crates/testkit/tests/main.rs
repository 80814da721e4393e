//! What holds of the whole workspace: its pages, names, bounds and what it takes to add a thing.
//!
//! One program: each would link the crates below anew.

mod additions;
mod bounds;
mod caches;
mod floors;
mod models;
mod names;
mod ops;
mod pages;
