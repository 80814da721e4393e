//! Why a file or a change is refused.

/// Why a file cannot be read, or a value cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct FactsError {
    /// The file, or `--set`.
    pub path: String,
    /// What is wrong in it.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is no TOML: what the parser says, with line and column.
    #[error("{0}")]
    Syntax(String),
    /// No such key.
    #[error("no {noun} `{key}`; {hint}")]
    Unknown {
        /// What keys are called: key or constant.
        noun: &'static str,
        /// The key.
        key: String,
        /// The key that was meant, or all there are.
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
        /// What to do.
        remedy: &'static str,
    },
    /// A value of the wrong type, out of its range, or in another unit.
    #[error("`{key}` = {found}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// What is there.
        found: String,
        /// What may be there.
        expected: String,
    },
    /// A change that is no assignment.
    #[error("`{change}` has no `=`; write key=value, as in {example}=NUMBER")]
    Assignment {
        /// What was written.
        change: String,
        /// A key there is.
        example: &'static str,
    },
    /// A base that leads back to a file before it.
    #[error("`base` leads in a circle: {}; one of them must stand alone", .0.join(" → "))]
    Circle(Vec<String>),
}
