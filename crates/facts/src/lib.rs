//! Facts of machines and constants of profiles, read from files in which every number names its source.
//!
//! A target states a struct and its [keys](Key): path, range and field. This crate does the rest: reading TOML, files
//! that start from a [base](self#files), changes by `key=value`, and errors that name file, key, value and remedy.
//!
//! # Files
//!
//! A file has a `name`, a profile also a `summary`. A number is a table. A value that a user gives himself may be the
//! number alone:
//!
//! ```toml
//! name = "mine"
//! base = "air-strix-2026"      # optional: values that this file leaves out come from that built-in file
//! summary = "my box"
//!
//! [ddr]
//! write_gb_per_s = 70          # a value that the user gives
//!
//! [ddr.read_gb_per_s]
//! value = 55.0
//! unit = "GB/s"                # optional: must be the key's own unit
//! origin = "fitted"            # profiles only: published, derived, fitted or assumed
//! rows = ["N0492", "N0472"]    # of a fitted constant: the measurements
//! source = "steady state of GEMM"
//! note = "contradicting sources" # optional
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`key`] | keys with range and field; units |
//! | [`fact`] | a value with its source and origin |
//! | [`error`] | why a file or a change is refused |
#![forbid(unsafe_code)]

pub mod error;
pub mod fact;
pub mod key;
mod read;
mod suggest;
mod unit;

pub use error::{FactsError, Problem};
pub use fact::{Datum, Fact, Origin, calibration_rows};
pub use key::{Family, Key};
pub use toml::Value;
pub use unit::unit_of;

use std::sync::OnceLock;

/// Which of the two kinds of files a record is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Facts of the hardware. Values have sources and no origin; a file with a base may leave out its name.
    Machine,
    /// Performance that software attains on it. Each constant has an origin, and the file has a `summary`.
    Profile,
}

impl Kind {
    /// The word for a key in errors.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Machine => "key",
            Kind::Profile => "constant",
        }
    }
}

/// A struct whose fields are read from a file of facts. Reading starts from its `Default`, which is all zeros.
pub trait Record: Clone + Default + Send + Sync + 'static {
    /// Machine or profile.
    const KIND: Kind;

    /// The files that come with the target, the default first.
    fn builtins() -> &'static [Builtin<Self>];

    /// Every key, in the order in which fields are set.
    fn keys() -> &'static [Key<Self>];

    /// The field that holds its name.
    fn name_mut(&mut self) -> &mut String;

    /// The field that holds its summary, if it has one.
    fn summary_mut(&mut self) -> Option<&mut String> {
        None
    }

    /// Its values with their sources, in the order of the file.
    fn facts(&self) -> &[Fact];

    /// The same list, mutable.
    fn facts_mut(&mut self) -> &mut Vec<Fact>;

    /// Plain numbers at the top of a file that describe the record itself and have no source: stated errors.
    fn remarks() -> &'static [Key<Self>] {
        &[]
    }

    /// Keys that contain a name (`kernel.NAME.call_cycles`).
    fn family() -> Option<&'static Family<Self>> {
        None
    }

    /// Called before each file of a chain of bases is read, to drop values that a file does not inherit.
    fn begin_file(&mut self) {}

    /// The key that an assignment `key=value` refers to.
    fn assigned_key(key: &str) -> &str {
        key
    }
}

/// A file that comes with a target.
#[derive(Debug)]
pub struct Builtin<S> {
    name: &'static str,
    text: &'static str,
    read: OnceLock<S>,
}

impl<S> Builtin<S> {
    /// A file's name and its text.
    pub const fn new(name: &'static str, text: &'static str) -> Builtin<S> {
        Builtin {
            name,
            text,
            read: OnceLock::new(),
        }
    }
}

/// Names of the files that come with the target, the default first.
pub fn names<S: Record>() -> impl Iterator<Item = &'static str> {
    S::builtins().iter().map(|builtin| builtin.name)
}

/// The built-in record of that name, read once.
///
/// # Panics
/// The embedded file is wrong. That is a bug in the program, which the target's tests find.
pub fn builtin<S: Record>(name: &str) -> Option<&'static S> {
    let found = S::builtins().iter().find(|builtin| builtin.name == name)?;
    let read = || match read::builtin(found.name) {
        Ok(record) => record,
        Err(error) => panic!("a file of the program is wrong: {error}"),
    };
    Some(found.read.get_or_init(read))
}

/// Reads a record from the text of a file; `path` is for messages.
///
/// # Errors
/// The text is not TOML. A base is not built in or leads back to itself. A key does not exist (the nearest is
/// suggested) or is missing. A value is out of range, in another unit, or without a source.
pub fn from_toml<S: Record>(text: &str, path: &str) -> Result<S, FactsError> {
    read::file(text, path)
}

/// Changes one value by `key=value`; a refused change leaves the record as it is.
///
/// # Errors
/// The key does not exist (the nearest is suggested), or the value is out of range or not a number.
pub fn set<S: Record>(record: &mut S, assignment: &str) -> Result<(), FactsError> {
    read::assign(record, assignment)
}

#[cfg(test)]
mod tests;
