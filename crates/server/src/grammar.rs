//! Answers that must have a form: JSON, a JSON schema, a regular expression, a Lark grammar, tool calls.
//!
//! `llguidance` says after each token which tokens may follow; the others are struck out of the logits
//! before sampling. What is written is therefore of the form at every moment; an answer that runs into its
//! limit of tokens is a beginning of it.

use std::sync::{Arc, OnceLock};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use millrace_text::Tokenizer;
use serde_json::{Value, json};

/// The longest grammar or schema, as JSON or source.
pub const MAX_GRAMMAR_BYTES: usize = 64 << 10;

/// The longest grammar of calls: of a hundred functions, of which each has a schema of some kilobytes.
pub const MAX_CALLS_BYTES: usize = 512 << 10;

/// Struck out: finite, since a row with infinities is taken for a damaged one, and so low that no temperature
/// or bias brings it back.
const STRUCK_OUT: f32 = f32::MIN;

/// What an answer must look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema(Value),
    /// All of the answer matches a regular expression, in the syntax of Rust's crate `regex`.
    Regex(String),
    /// llguidance's dialect of Lark.
    Lark(String),
    /// Calls of functions: Lark made of their names and schemas.
    Calls(String),
}

/// A grammar that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GrammarError {
    /// Too long.
    #[error("the {what} has {found} bytes; at most {most} are accepted")]
    TooLong {
        /// What.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The longest that is accepted.
        most: usize,
    },
    /// It does not compile.
    #[error("the {what} cannot be used: {reason}")]
    Bad {
        /// What.
        what: &'static str,
        /// Why, in llguidance's words.
        reason: String,
    },
    /// The vocabulary has no token that ends an answer.
    #[error(
        "this model's vocabulary names no token that ends an answer, so no form can be enforced"
    )]
    NoEnd,
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

/// A schema without freedom of white space: a model that may write any amount of it sometimes writes
/// nothing else.
pub(crate) fn compact(mut schema: Value) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.entry("x-guidance").or_insert_with(
            || json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}),
        );
    }
    schema
}

/// Compiles grammars for one vocabulary.
pub struct GrammarFactory {
    tokenizer: Arc<Tokenizer>,
    vocab_size: usize,
    /// Made at the first grammar: a tree of the whole vocabulary.
    parsers: OnceLock<Result<ParserFactory, String>>,
}

impl GrammarFactory {
    /// For a tokenizer, and a model of `vocab_size` logits.
    pub fn new(tokenizer: Arc<Tokenizer>, vocab_size: usize) -> GrammarFactory {
        GrammarFactory {
            tokenizer,
            vocab_size,
            parsers: OnceLock::new(),
        }
    }

    /// Compiles a grammar.
    ///
    /// # Errors
    /// A grammar that is too long or cannot be used, with the reason.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint, GrammarError> {
        let what = grammar.what();
        let (found, most) = (grammar.n_bytes(), grammar.most_bytes());
        if found > most {
            return Err(GrammarError::TooLong { what, found, most });
        }
        if self.tokenizer.end_of_generation().is_empty() {
            return Err(GrammarError::NoEnd);
        }
        let bad = |reason| GrammarError::Bad { what, reason };
        let parsers = self.parsers.get_or_init(|| self.parsers());
        let parsers = parsers.as_ref().map_err(|reason| bad(reason.clone()))?;
        let mut matcher = Matcher::new(parsers.create_parser(grammar.source()));
        // Some grammars fail only when they are first asked.
        let first = matcher.compute_mask();
        if let Some(error) = matcher.get_error().or(first.err().map(|e| e.to_string())) {
            return Err(bad(first_lines(&error)));
        }
        Ok(Constraint { matcher })
    }

    fn parsers(&self) -> Result<ParserFactory, String> {
        let tokenizer = &self.tokenizer;
        let word = |id: usize| {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            if tokenizer.is_special(id) || tokenizer.is_end_of_generation(id) {
                let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
                word.extend_from_slice(tokenizer.token_text(id).as_bytes());
                return word;
            }
            let bytes = tokenizer.token_bytes(id).into_owned();
            // This byte is in no UTF-8 text, and marks control tokens in the tree.
            match bytes.first() {
                Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Vec::new(),
                _ => bytes,
            }
        };
        let words: Vec<Vec<u8>> = (0..self.vocab_size).map(word).collect();
        let ends = tokenizer.end_of_generation();
        let vocab_size = u32::try_from(self.vocab_size).map_err(|error| error.to_string())?;
        let trie = TokTrie::from(&TokRxInfo::new(vocab_size, ends[0]), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie.with_eos_tokens(ends)));
        let mut parsers = ParserFactory::new_simple(&env).map_err(|error| error.to_string())?;
        parsers.quiet();
        parsers.limits_mut().verbose_errors = false;
        Ok(parsers)
    }
}

/// The part of an error that is about the grammar.
fn first_lines(error: &str) -> String {
    if error.starts_with("NoExtensionBias") {
        return "no text is of this form: it refers to itself without end, or excludes itself"
            .to_owned();
    }
    let lines: Vec<&str> = error
        .lines()
        .filter(|line| !line.is_empty() && *line != "<non-verbose/>")
        .take(3)
        .collect();
    lines.join("; ")
}

/// A grammar at some place in an answer.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
}

impl Constraint {
    /// Strikes out the logits of tokens that may not follow.
    ///
    /// # Errors
    /// The grammar became too hard to follow.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| format!("grammar: {}", first_lines(&error.to_string())))?;
        for (id, logit) in logits.iter_mut().enumerate() {
            if id >= mask.len() || !mask.get(id) {
                *logit = STRUCK_OUT;
            }
        }
        Ok(())
    }

    /// A token was drawn.
    ///
    /// # Errors
    /// It may not follow; or the grammar became too hard to follow.
    pub fn accept(&mut self, token: u32) -> Result<(), String> {
        self.matcher
            .consume_token(token)
            .map_err(|error| format!("grammar: {}", first_lines(&error.to_string())))
    }

    /// Whether nothing may follow but the end.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}
