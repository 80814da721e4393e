//! GBNF, the grammars of llama.cpp (`grammars/README.md` there), as Lark.
//!
//! A rule that does not lead back to itself is a regular expression, and becomes a terminal: it is matched as llama.cpp
//! matches it. A rule that does becomes a rule over the longest regular parts of it. llguidance reads such a part
//! to its end, as lexers do, so a recursive grammar of which one part may begin as another goes on is
//! narrower than with llama.cpp.

mod reader;
mod writer;

use reader::{GbnfReader, is_name};

/// What is wrong with a grammar.
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

/// Whether a grammar is written in GBNF: its rules have another sign than Lark's.
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

/// The same grammar in Lark.
///
/// # Errors
/// The line, and what is wrong there.
pub fn to_lark(source: &str) -> Result<String, GbnfError> {
    let mut reader = GbnfReader::new(source);
    reader.rules()?;
    let rules = reader.defined()?;
    Ok(writer::lark(&rules.list, rules.root))
}

#[cfg(test)]
mod tests;
