//! Programs as Rust for the vendor's toolchain: a crate of `#[device]` functions, one for each program, with the
//! stages' names and order of `furiosa-opt-std` 0.10.0.
//!
//! The text is the verified program, command by command. Details that the vendor's interface requires and a program
//! leaves open are added here: packets are padded to flits, and the vector engine's ways are written out. Tensors held
//! in registers are named as the stream that meets them.
//!
//! Source of names and types: the crate's documentation and signatures, `furiosa-opt-std` 0.10.0.

mod chain;
mod module;
mod moves;
mod package;
mod spelling;
mod vector;
mod views;

use crate::Program;
pub(crate) use package::{PackageCall, Pass, package};

/// The vendor's crate that printed functions are written against.
pub(crate) const VENDOR_CRATE: (&str, &str) = ("furiosa-opt-std", "0.10.0");

/// Why a program cannot be printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{program}` cannot be written for furiosa-opt-std 0.10.0: {problem}")]
pub(crate) struct ExportError {
    /// The program.
    pub program: String,
    /// The part that cannot be printed.
    pub problem: String,
}

/// The device function of a program: a module. `notes` are lines about its computation.
///
/// # Errors
/// Parts of the program that the vendor's interface lacks.
pub(crate) fn function(program: &Program, notes: &[String]) -> Result<String, ExportError> {
    let printed = module::Module::new(program).and_then(|module| module.print(notes));
    printed.map_err(|problem| ExportError {
        program: program.name.clone(),
        problem,
    })
}

#[cfg(test)]
mod tests;
