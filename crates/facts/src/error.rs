//! Errors of reading a file of facts, or of changing one of its values.

/// Why a file cannot be read, or a value cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct FactsError {
    /// The file, or `--set`.
    pub path: String,
    /// The fault in it.
    pub problem: Problem,
}

/// The fault in a file or a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is not TOML. Holds the parser's message, with line and column.
    #[error("{0}")]
    Syntax(String),
    /// No such key.
    #[error("no {noun} `{key}`; {hint}")]
    Unknown {
        /// The word for keys of this kind: key or constant.
        noun: &'static str,
        /// The key.
        key: String,
        /// The key that was probably meant, or all keys there are.
        hint: String,
    },
    /// A key is absent, and no base gives it.
    #[error(
        "`{key}` is missing; give it as [{key}] with value and source, or start the file with base = \"{base}\""
    )]
    Missing {
        /// The key.
        key: String,
        /// A file to start from.
        base: &'static str,
    },
    /// A text at the top of a file is absent.
    #[error("`{0}` is missing; add {0} = \"…\" at the top")]
    Label(&'static str),
    /// A part of an entry is absent.
    #[error("`{key}.{part}` is missing; {remedy}")]
    Part {
        /// The key.
        key: String,
        /// The part (`source`).
        part: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// A value of the wrong type, out of its range, or in another unit.
    #[error("`{key}` = {found}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value found.
        found: String,
        /// The values allowed.
        expected: String,
    },
    /// A change that is not an assignment.
    #[error("`{change}` has no `=`; write key=value, as in {example}=NUMBER")]
    Assignment {
        /// The assignment as written.
        change: String,
        /// A key that exists.
        example: &'static str,
    },
    /// A base that leads back to a file before it.
    #[error("`base` leads in a circle: {}; one of them must stand alone", .0.join(" → "))]
    Circle(Vec<String>),
}
