//! The C interface of Millrace, `millrace.h`.
//!
//! A function here checks its pointers, does its work behind a guard that no panic passes, and says what went wrong in a status and
//! a text. `tools/c_header` makes the header of these files, and `.ci/capi` compares.

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

/// The version of the library, a static text.
#[unsafe(no_mangle)]
pub extern "C" fn millrace_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
