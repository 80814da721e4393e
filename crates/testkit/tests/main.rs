//! Rules for the whole workspace: its pages, names, bounds and the steps of adding a part.
//!
//! All modules are one program: separate ones would each link the crates below again.

mod additions;
mod bounds;
mod caches;
mod floors;
mod models;
mod names;
mod ops;
mod pages;
