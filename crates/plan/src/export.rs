//! A model's programs as source for a vendor's own toolchain.

use crate::{BenchError, PassKind, Settings};
use millrace_graph::Graph;

/// Writes a target's programs as source for the vendor's own toolchain.
pub trait Exporter: Sync {
    /// The form that it writes, in words.
    fn form(&self) -> &'static str;

    /// A model's programs as files of a package.
    ///
    /// # Errors
    /// A setting; a pass that is not lowered; a program that the vendor's interface has no words for.
    fn export(&self, request: &Export<'_>) -> Result<Vec<SourceFile>, BenchError>;
}

/// A request for an export.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// The model's name.
    pub model: &'a str,
    /// Its forward pass.
    pub graph: &'a Graph,
    /// Settings of the target.
    pub settings: &'a Settings,
    /// The passes whose programs are wanted.
    pub kinds: &'a [PassKind],
}

/// A file of an exported package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where in the package, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}
