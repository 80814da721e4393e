//! Nodes of Linux's compute accelerators (`/dev/accel/accelN`), shared by the drivers of NPUs.
//!
//! | module | holds |
//! |---|---|
//! | [`find`] | which node belongs to a driver, and why none does |
//! | [`file`](mod@file) | an open node: its ioctls, mappings of its objects |
//! | [`header`] | structures compared with the kernel's headers by a C compiler, for tests |
//!
//! Numbers and structures are those of `drm/drm.h`.
#![deny(unsafe_code)]

pub mod file;
pub mod find;
pub mod header;

pub use file::{AccelFile, FileMapping, now_ns};
pub use find::{Absence, DriverVersion, find_node, kernel_release, node_paths};
