//! GBNF, llama.cpp's grammar format (`grammars/README.md` there), translated to Lark.
//!
//! A rule without recursion is a regular expression, and becomes a terminal: it is matched as llama.cpp matches it. A
//! recursive rule becomes a rule over its longest regular parts. llguidance reads such a part greedily, as lexers do.
//! A recursive grammar in which one part can continue as another begins is therefore narrower than with llama.cpp.

mod reader;
mod writer;

use reader::{GbnfReader, is_name};

/// A fault in a grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the grammar: {message}")]
pub struct GbnfError {
    line: usize,
    message: String,
}

/// Part of a rule.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// A class of characters, as a regular expression.
    Class(String),
    Rule(usize),
    Sequence(Vec<Part>),
    Options(Vec<Part>),
    Repeat(Box<Part>, u32, Option<u32>),
}

/// Whether a grammar is written in GBNF: its rules use another definition sign than Lark's.
pub fn is_gbnf(source: &str) -> bool {
    let rule = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let name = line
            .split("::=")
            .next()
            .filter(|name| name.len() < line.len());
        name.is_some_and(|name| !name.trim().is_empty() && name.trim().chars().all(is_name))
    };
    source.lines().any(rule)
}

/// Translates the grammar to Lark.
///
/// # Errors
/// The line, and the fault in it.
pub fn to_lark(source: &str) -> Result<String, GbnfError> {
    let mut reader = GbnfReader::new(source);
    reader.rules()?;
    let rules = reader.defined()?;
    Ok(writer::lark(&rules.list, rules.root))
}

#[cfg(test)]
mod tests;
