//! A model's programs as source for a vendor's own toolchain.

use crate::{PassKind, Settings};
use millrace_model::graph::Graph;

/// What is to be exported.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// The model's name.
    pub model: &'a str,
    /// Its forward pass.
    pub graph: &'a Graph,
    /// What is asked of the target.
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
