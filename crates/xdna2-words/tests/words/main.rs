//! Words written, read and listed.
#![allow(clippy::unwrap_used)] // A test may panic.

mod board;
mod fields;
mod goldens;
mod listing;
mod streams;
