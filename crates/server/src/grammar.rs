//! Answers of a required form: JSON, a JSON schema, a regular expression, a Lark grammar, tool calls.
//!
//! After each token, `llguidance` says which tokens may follow; the others are masked out of the logits before
//! sampling. The text is therefore always a valid beginning of the form. An answer that reaches its token limit stays
//! such a beginning.
//!
//! A grammar comes from a client, and may be malicious. The defences, in this order: a limit on its length; limits on
//! the depth of its references ([`MAX_REFERENCE_DEPTH`], [`MAX_RULE_DEPTH`]); a trial in a separate process
//! ([`try_grammars_with`]); llguidance's limits, on threads with large stacks; and during an answer, limits on the
//! time and memory of the parser. Each client has one grammar compiled at a time, and compiled grammars are cached.

mod cache;
mod compiler;
mod constraint;
mod depth;
mod factory;
pub mod gbnf;
mod lark;
mod semaphore;
mod trial;

use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use constraint::Constraint;
pub(crate) use constraint::Follower;
pub use depth::{MAX_REFERENCE_DEPTH, MAX_RULE_DEPTH};
pub use factory::GrammarFactory;
pub(crate) use factory::Requester;
pub use trial::{GrammarTrial, TrialReply, TryElsewhere, try_grammars_with};

/// Maximum length of a grammar or schema, as JSON or source, in bytes.
pub const MAX_GRAMMAR_BYTES: usize = 64 << 10;

/// Maximum length of a grammar of calls, in bytes: a hundred functions with schemas of some kilobytes each.
pub const MAX_CALLS_BYTES: usize = 512 << 10;

/// The required form of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema(Value),
    /// The whole answer matches a regular expression, in the syntax of Rust's crate `regex`.
    Regex(String),
    /// llguidance's dialect of Lark.
    Lark(String),
    /// Calls of functions: Lark generated from their names and schemas.
    Calls(String),
}

/// A grammar that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GrammarError {
    /// Too long.
    #[error("the {what} has {found} bytes; at most {most} are accepted")]
    TooLong {
        /// The kind of grammar.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The longest that is accepted.
        most: usize,
    },
    /// It does not compile.
    #[error("the {what} cannot be used: {reason}")]
    Bad {
        /// The kind of grammar.
        what: &'static str,
        /// The reason, in llguidance's words.
        reason: String,
    },
    /// It exceeds a limit on its work.
    #[error("the {what} is too hard: {reason}")]
    TooHard {
        /// The kind of grammar.
        what: &'static str,
        /// The limit.
        reason: String,
    },
    /// It could not be tried, for reasons outside the grammar.
    #[error("the {what} could not be tried: {reason}; try again")]
    Untried {
        /// The kind of grammar.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// The vocabulary has no token that ends an answer.
    #[error(
        "this model's vocabulary names no token that ends an answer, so no form can be enforced"
    )]
    NoEnd,
}

impl GrammarError {
    /// Whether a reduced form of the grammar may succeed. One that is too hard was probably made so on purpose, and
    /// is refused whole.
    pub(crate) fn may_be_relaxed(&self) -> bool {
        matches!(
            self,
            GrammarError::Bad { .. } | GrammarError::TooLong { .. }
        )
    }
}

impl Grammar {
    fn what(&self) -> &'static str {
        match self {
            Grammar::JsonObject => "JSON grammar",
            Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "grammar",
            Grammar::Calls(_) => "grammar of the functions' names and schemas",
        }
    }

    fn source(&self) -> TopLevelGrammar {
        match self {
            Grammar::JsonObject => {
                TopLevelGrammar::from_json_schema(compact(json!({"type": "object"})))
            }
            Grammar::JsonSchema(schema) => {
                TopLevelGrammar::from_json_schema(compact(schema.clone()))
            }
            Grammar::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Grammar::Lark(source) | Grammar::Calls(source) => {
                TopLevelGrammar::from_lark(source.clone())
            }
        }
    }

    /// The same for a vocabulary without control tokens: each becomes plain text.
    fn without_tokens(&self) -> Grammar {
        let Grammar::Calls(source) = self else {
            return self.clone();
        };
        let plain = |line: &str| match line.split_once(": <[") {
            Some((name, id)) if name.starts_with("mark_") => {
                format!("{name}: \"<{}>\"\n", id.trim_end_matches("]>"))
            }
            _ => format!("{line}\n"),
        };
        Grammar::Calls(source.lines().map(plain).collect())
    }

    fn check_length(&self) -> Result<(), GrammarError> {
        let (what, found, most) = (self.what(), self.n_bytes(), self.most_bytes());
        if found > most {
            return Err(GrammarError::TooLong { what, found, most });
        }
        Ok(())
    }

    fn check_depth(&self) -> Result<(), GrammarError> {
        let checked = match self {
            // The regex engine has its own limit on nesting.
            Grammar::JsonObject | Grammar::Regex(_) => Ok(()),
            Grammar::JsonSchema(schema) => depth::check_schema(schema),
            Grammar::Lark(source) | Grammar::Calls(source) => depth::check_lark(source),
        };
        let what = self.what();
        checked.map_err(|reason| GrammarError::TooHard { what, reason })
    }

    fn most_bytes(&self) -> usize {
        match self {
            Grammar::Calls(_) => MAX_CALLS_BYTES,
            _ => MAX_GRAMMAR_BYTES,
        }
    }

    fn n_bytes(&self) -> usize {
        match self {
            Grammar::JsonObject => 0,
            Grammar::JsonSchema(schema) => schema.to_string().len(),
            Grammar::Regex(text) | Grammar::Lark(text) | Grammar::Calls(text) => text.len(),
        }
    }
}

/// A schema that allows no optional white space: a model that may write any amount of it sometimes writes nothing
/// else.
pub(crate) fn compact(mut schema: Value) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.entry("x-guidance").or_insert_with(
            || json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}),
        );
    }
    schema
}
