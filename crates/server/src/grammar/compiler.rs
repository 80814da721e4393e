//! Grammars to constraints, for one vocabulary.

use std::fmt;
use std::sync::{Arc, OnceLock};

use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use millrace_text::Tokenizer;

use super::cache::{GrammarCache, GrammarKey};
use super::constraint::Constraint;
use super::trial::{TrialReply, try_elsewhere};
use super::{Grammar, GrammarError};

/// Stack of the threads that compile and follow grammars. The deepest accepted grammar needs less than a quarter of
/// it.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// Maximum number of states of a grammar's lexer, each about 1 KiB. Real ones have some hundreds.
const MAX_LEXER_STATES: usize = 40_000;

/// Sets llguidance's own limits: its defaults, except for the number of states, whose default would take a quarter of
/// a gigabyte.
pub(super) fn limits(parsers: &mut ParserFactory) {
    let limits = parsers.limits_mut();
    limits.verbose_errors = false;
    limits.max_lexer_states = MAX_LEXER_STATES;
}

/// Compiles grammars for one vocabulary, and caches recent ones.
pub(super) struct Compiler {
    tokenizer: Arc<Tokenizer>,
    vocab_size: usize,
    /// Created with the first grammar: a tree of the whole vocabulary.
    parsers: OnceLock<Result<ParserFactory, String>>,
    pub(super) cache: GrammarCache,
}

/// Message from a compiling thread.
pub(super) enum Message {
    /// The trial is over, and compiling for the vocabulary starts: in this process, where nothing can end it.
    Compiling,
    /// The result; `None` if no client waits any more.
    Done(Option<Result<Arc<Constraint>, GrammarError>>),
}

impl Compiler {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, vocab_size: usize) -> Compiler {
        Compiler {
            tokenizer,
            vocab_size,
            parsers: OnceLock::new(),
            cache: GrammarCache::default(),
        }
    }

    /// Checks, tries and compiles a grammar on a separate thread with a large stack, and caches the result.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(
        self: &Arc<Self>,
        key: GrammarKey,
        grammar: Grammar,
        is_given_up: impl Fn() -> bool + Send + 'static,
        tell: impl Fn(Message) + Send + 'static,
    ) -> std::io::Result<()> {
        let compiler = Arc::clone(self);
        let work = move || {
            let result = compiler.checked(&grammar, &is_given_up, &|| tell(Message::Compiling));
            if let Some((kept, n_bytes)) = &result {
                // Failures that may be the machine's are not cached.
                if !matches!(kept, Err(GrammarError::Untried { .. })) {
                    compiler.cache.put(key, kept.clone(), *n_bytes);
                }
            }
            tell(Message::Done(result.map(|(kept, _)| kept)));
        };
        std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(work)?;
        Ok(())
    }

    /// The result, with its approximate size in bytes. `None` if no client waits any more.
    fn checked(
        &self,
        grammar: &Grammar,
        is_given_up: &dyn Fn() -> bool,
        compiling: &dyn Fn(),
    ) -> Option<(Result<Arc<Constraint>, GrammarError>, usize)> {
        let what = grammar.what();
        let refused = |error| Some((Err(error), 1024));
        if let Err(error) = self.check(grammar) {
            return refused(error);
        }
        match try_elsewhere(grammar, is_given_up) {
            TrialReply::Passed => {}
            TrialReply::GivenUp => return None,
            TrialReply::Bad(reason) => return refused(GrammarError::Bad { what, reason }),
            TrialReply::TooHard(reason) => return refused(GrammarError::TooHard { what, reason }),
            TrialReply::Untried(reason) => return refused(GrammarError::Untried { what, reason }),
        }
        let parsers = self.parsers.get_or_init(|| self.parsers());
        compiling();
        let compiled = match parsers {
            Ok(parsers) => compile(parsers, grammar).map_err(|fault| fault.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        match compiled {
            Ok((constraint, n_bytes)) => Some((Ok(Arc::new(constraint)), n_bytes)),
            Err(reason) => refused(GrammarError::Bad { what, reason }),
        }
    }

    #[cfg(test)]
    pub(super) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The checks of a grammar that need no compiling.
    fn check(&self, grammar: &Grammar) -> Result<(), GrammarError> {
        grammar.check_length()?;
        if self.tokenizer.end_of_generation().is_empty() {
            return Err(GrammarError::NoEnd);
        }
        grammar.check_depth()
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
            // This byte occurs in no UTF-8 text, and marks control tokens in the tree.
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
        limits(&mut parsers);
        Ok(parsers)
    }
}

/// A constraint, with its approximate size in bytes.
fn compile(
    parsers: &ParserFactory,
    grammar: &Grammar,
) -> Result<(Constraint, usize), GrammarFault> {
    let mut parser = parsers
        .create_parser(grammar.source())
        .map_err(|error| GrammarFault::of(&error))?;
    parser.start_without_prompt();
    // Some grammars fail only at the first mask. Also, this computes its costly part once for all answers.
    parser
        .compute_mask()
        .map_err(|error| GrammarFault::of(&error))?;
    let n_bytes = parser.parser.lexer_stats().num_bytes + 8 * grammar.n_bytes() + (64 << 10);
    let mut matcher = Matcher::new(Ok(parser)).into_cancellable();
    // An answer's cost is counted from the statistics of this step.
    matcher
        .compute_mask()
        .map_err(|error| GrammarFault::of(&error))?;
    Ok((Constraint::new(matcher), n_bytes))
}

/// A fault in a grammar, from its compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrammarFault {
    /// The grammar contradicts itself.
    NoText,
    /// The compiler's message.
    Words(String),
}

impl GrammarFault {
    /// The part of an error that is about the grammar.
    pub(super) fn of(error: &impl ToString) -> GrammarFault {
        let error = error.to_string();
        if error.starts_with("NoExtensionBias") {
            return GrammarFault::NoText;
        }
        let lines: Vec<&str> = error
            .lines()
            // The remaining lines are about the compiler's code.
            .take_while(|line| !line.contains("<backtrace>"))
            .filter(|line| !line.is_empty() && *line != "<non-verbose/>")
            .take(3)
            .collect();
        GrammarFault::Words(lines.join("; "))
    }
}

impl fmt::Display for GrammarFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrammarFault::NoText => f.write_str(
                "no text is of this form: it refers to itself without end, or excludes itself",
            ),
            GrammarFault::Words(words) => f.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_about_the_grammar() {
        for (error, expected) in [
            ("bad\n\nhere\n<non-verbose/>", "bad; here"),
            (
                "panic: overflow\n<backtrace>\n   0: llguidance::panic_utils",
                "panic: overflow",
            ),
            ("a\nb\nc\nd", "a; b; c"),
        ] {
            assert_eq!(GrammarFault::of(&error).to_string(), expected);
        }
        let fault = GrammarFault::of(&"NoExtensionBias");
        assert_eq!(fault, GrammarFault::NoText);
        assert!(fault.to_string().contains("refers to itself"));
    }
}
