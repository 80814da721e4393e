//! Pre-tokenizers: how a text is cut into the pieces that a model then encodes one by one.
//!
//! A pre-tokenizer is a list of steps; each step cuts every piece of the step before it.

mod digits;
pub(crate) mod profile;
pub(crate) mod scan;
mod split;

use crate::unicode::CharClass;
pub(crate) use digits::DigitRun;
use digits::digits;
pub(crate) use scan::Scanner;
pub(crate) use split::{Behavior, Pattern, Split};

/// The character that SentencePiece writes for a space.
pub(crate) const SPACE_MARK: char = '▁';

/// Where `Metaspace` puts its mark in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prepend {
    /// In front of every piece.
    Always,
    /// In front of the piece that begins the text, unless something was dropped before it.
    First,
    /// Nowhere.
    Never,
}

/// One step of a pre-tokenizer.
#[derive(Debug)]
pub(crate) enum PretokenizeStep {
    /// One of the built-in expressions; its pieces are the matches.
    Scan(Scanner),
    /// Any expression or string, with one of the five behaviours.
    Split(Split),
    /// Puts a space in front of a piece without one (`ByteLevel` with `add_prefix_space`).
    SpacePrefix,
    /// Cuts at numbers, into single characters if `individual`, into runs otherwise.
    Digits {
        /// Every character separately.
        individual: bool,
    },
    /// Cuts digits into threes from the right.
    DigitGroups(DigitRun),
    /// Cuts at white space, which is dropped, and around punctuation.
    Bert,
    /// Replaces spaces by a mark and, if `cut`, starts a piece at every mark.
    Metaspace {
        /// The mark.
        mark: char,
        /// Where a mark is put in front.
        prepend: Prepend,
        /// Whether a mark starts a piece.
        cut: bool,
    },
}

/// A list of steps.
#[derive(Debug, Default)]
pub(crate) struct PreTokenizer {
    pub(crate) steps: Vec<PretokenizeStep>,
}

impl PreTokenizer {
    /// Whether it matters which piece begins the text.
    pub(crate) fn asks_for_first(&self) -> bool {
        let asks = |step: &PretokenizeStep| {
            matches!(
                step,
                PretokenizeStep::Metaspace {
                    prepend: Prepend::First,
                    ..
                }
            )
        };
        self.steps.iter().any(asks)
    }

    /// Calls `emit` with each piece of a text, in order. `first`: whether the text begins the
    /// whole text.
    pub(crate) fn split(&self, text: &str, first: bool, emit: &mut dyn FnMut(&str)) {
        run(&self.steps, text, first, emit);
    }
}

fn run(steps: &[PretokenizeStep], text: &str, first: bool, emit: &mut dyn FnMut(&str)) {
    if text.is_empty() {
        return;
    }
    match steps.split_first() {
        None => emit(text),
        Some((step, [])) => step.split(text, first, emit),
        Some((step, rest)) => {
            let mut first = first;
            step.split(text, first, &mut |piece| {
                run(rest, piece, first && !leaves_out_start(text, piece), emit);
                first = false;
            });
        }
    }
}

/// Whether the first piece of a text begins after the start of the text: white space was dropped.
fn leaves_out_start(text: &str, piece: &str) -> bool {
    let at = piece.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    (1..text.len()).contains(&at)
}

impl PretokenizeStep {
    fn split(&self, text: &str, first: bool, emit: &mut dyn FnMut(&str)) {
        match self {
            PretokenizeStep::Scan(scanner) => scanner.split(text, emit),
            PretokenizeStep::Split(split) => split.run(text, emit),
            PretokenizeStep::SpacePrefix if text.starts_with(' ') => emit(text),
            PretokenizeStep::SpacePrefix => emit(&format!(" {text}")),
            PretokenizeStep::Digits { individual } => digits(text, *individual, emit),
            PretokenizeStep::DigitGroups(run) => run.split(text, emit),
            PretokenizeStep::Bert => bert(text, emit),
            PretokenizeStep::Metaspace { mark, prepend, cut } => {
                let text = marked(text, *mark, *prepend, first);
                if *cut {
                    cut_before(&text, *mark, emit)
                } else {
                    emit(&text)
                }
            }
        }
    }
}

/// Words without white space and without punctuation, and every punctuation character separately.
fn bert(text: &str, emit: &mut dyn FnMut(&str)) {
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let is_space = c.is_whitespace();
        if !is_space && !CharClass::BertPunctuation.holds(c) {
            continue;
        }
        if at > start {
            emit(&text[start..at]);
        }
        start = at + c.len_utf8();
        if !is_space {
            emit(&text[at..start]);
        }
    }
    if start < text.len() {
        emit(&text[start..]);
    }
}

/// Spaces replaced by the mark, and one in front where the rule asks for it.
fn marked(text: &str, mark: char, prepend: Prepend, first: bool) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 2 + mark.len_utf8());
    let wanted = match prepend {
        Prepend::Always => true,
        Prepend::First => first,
        Prepend::Never => false,
    };
    if wanted && !text.starts_with([mark, ' ']) {
        out.push(mark);
    }
    out.extend(text.chars().map(|c| if c == ' ' { mark } else { c }));
    out
}

/// Pieces that each begin with the mark, except the text before the first one.
fn cut_before(text: &str, mark: char, emit: &mut dyn FnMut(&str)) {
    let mut start = 0;
    for (at, _) in text.match_indices(mark) {
        if at > start {
            emit(&text[start..at]);
            start = at;
        }
    }
    emit(&text[start..]);
}

#[cfg(test)]
mod tests;
