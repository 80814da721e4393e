//! What every NPU shares: element types, slots and their roles, buffers, the device contract, the
//! program container and its cache, traces and energy records.
//!
//! A target (AMD XDNA2 and others) builds programs of its own kind; this crate carries them,
//! caches them, runs them through a [`Device`](device) and counts every byte that crosses.
#![forbid(unsafe_code)]

pub mod element;
pub mod slot;

pub use element::Element;
pub use slot::{Role, Slot};
