//! MLIR's text: the part of it that designs use.
//!
//! Ops are read in their own form by a table of forms ([`table`]), and in MLIR's generic form. An op without a row is
//! refused by name.

mod affine;
mod attribute;
mod dialect;
mod form;
mod index;
mod irregular;
mod lexer;
mod linalg;
mod op;
mod parser;
mod rename;
mod table;
mod types;

pub(crate) use affine::AffineExpression;
pub(crate) use attribute::Attribute;
pub(crate) use linalg::loop_name;
pub(crate) use op::{Op, OpBlock, Region, Successor};
pub(crate) use parser::parse;
pub(crate) use types::{MemRefType, Type};

use std::fmt;

/// A place in the text; lines and columns count from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a design cannot be read or lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {}{problem}", if op.is_empty() { String::new() } else { format!("`{op}`: ") })]
pub struct SyntaxError {
    /// The place.
    pub at: Location,
    /// The op, where one is known.
    pub op: String,
    /// Description of the fault.
    pub problem: String,
}

impl SyntaxError {
    pub(crate) fn new(at: Location, problem: impl Into<String>) -> SyntaxError {
        SyntaxError {
            at,
            op: String::new(),
            problem: problem.into(),
        }
    }

    /// This error within an op, where none is named yet.
    pub(crate) fn in_op(mut self, op: &str) -> SyntaxError {
        if self.op.is_empty() {
            op.clone_into(&mut self.op);
        }
        self
    }
}
