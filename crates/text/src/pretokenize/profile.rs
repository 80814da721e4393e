//! The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
//!
//! A GGUF file names its splitting rules instead of carrying them. The rules here are those of the
//! `tokenizer.json` files that the names were given for.

mod expressions;
mod table;

use super::{Behavior, DigitRun, Pattern, PreTokenizer, PretokenizeStep, Scanner, Split};
use crate::Error;
use crate::normalize::NormalForm;
use table::TABLE;

/// Splitting rules under a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PretokenizerProfile {
    names: &'static [&'static str],
    /// The steps, in order.
    rules: &'static [StepRule],
    /// A piece that is a token is not merged from its parts.
    pub(crate) ignore_merges: bool,
    /// Whether a begin-of-sequence token is added where the file does not say.
    pub(crate) add_bos: bool,
    /// Normal form that text is brought into.
    pub(crate) form: Option<NormalForm>,
    /// How the vocabulary spells text.
    pub(crate) spelling: Spelling,
    /// A piece of line ends that is a token is not merged from its parts.
    pub(crate) whole_line_ends: bool,
}

/// How a vocabulary with merges spells text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Bytes, in GPT-2's alphabet.
    Bytes,
    /// Characters, with SentencePiece's mark for a space; text without a token is written as bytes.
    Marked,
    /// Characters as they are; text without a token is written as bytes.
    Plain,
}

/// How one step cuts.
#[derive(Clone, Copy, Debug)]
enum StepRule {
    /// The pieces of a scanner.
    Scan(Scanner),
    /// The matches of an expression, and the texts between them.
    Regex(&'static str),
    /// The texts between the matches of an expression.
    Drop(&'static str),
    /// Single digits.
    Digits,
    /// Digits in threes from the right.
    DigitGroups(DigitRun),
}

impl StepRule {
    fn step(&self) -> Result<PretokenizeStep, Error> {
        Ok(match self {
            StepRule::Scan(scanner) => PretokenizeStep::Scan(*scanner),
            StepRule::Regex(pattern) => PretokenizeStep::Split(Split::isolated(pattern)?),
            StepRule::Drop(pattern) => PretokenizeStep::Split(Split {
                pattern: Pattern::regex(pattern)?,
                behavior: Behavior::Removed,
                invert: false,
            }),
            StepRule::Digits => PretokenizeStep::Digits { individual: true },
            StepRule::DigitGroups(run) => PretokenizeStep::DigitGroups(*run),
        })
    }
}

impl PretokenizerProfile {
    /// The profile with a name; a file without one gets `default`.
    ///
    /// # Errors
    /// [`Error::UnknownPreTokenizer`], which lists the known names.
    pub(crate) fn named(name: Option<&str>) -> Result<PretokenizerProfile, Error> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or("default");
        TABLE
            .iter()
            .find(|profile| profile.names.contains(&name))
            .copied()
            .ok_or_else(|| Error::UnknownPreTokenizer {
                found: name.to_owned(),
                known: known_names().join(", "),
            })
    }

    /// The steps of the pre-tokenizer.
    pub(crate) fn pre_tokenizer(&self) -> Result<PreTokenizer, Error> {
        let steps = self.rules.iter().map(StepRule::step);
        Ok(PreTokenizer {
            steps: steps.collect::<Result<_, _>>()?,
        })
    }
}

/// Every name in the table, in alphabetical order.
pub(super) fn known_names() -> Vec<&'static str> {
    let mut names: Vec<_> = TABLE
        .iter()
        .flat_map(|profile| profile.names.iter().copied())
        .collect();
    names.sort_unstable();
    names
}
