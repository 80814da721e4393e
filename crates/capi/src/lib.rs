//! The C interface of Millrace, `millrace.h`.
//!
//! A function here checks its pointers and does its work behind a guard that no panic passes. Failures are reported
//! as a status and a text. `tools/c_header` generates the header from these files, and `.ci/capi` compares it with
//! them.

pub mod cancel;
pub mod guard;
pub mod memory;
pub mod model;
pub mod numbers;
pub mod settings;
pub mod text;

#[cfg(test)]
mod tests;

use std::ffi::c_char;

/// The version of the library, as a static text.
#[unsafe(no_mangle)]
pub extern "C" fn millrace_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
