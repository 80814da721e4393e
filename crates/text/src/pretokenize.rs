//! Pre-tokenizers: how a text is cut into the pieces that a model then encodes one by one.
//!
//! A pre-tokenizer is a list of steps; each step cuts every piece of the step before it.

pub(crate) mod profile;
pub(crate) mod scan;
mod split;

pub(crate) use scan::Scanner;
pub(crate) use split::{Behavior, Pattern, Split};

use crate::unicode::{NUMBER, classes};

/// The character that SentencePiece writes for a space.
pub(crate) const SPACE_MARK: char = '▁';

/// Where `Metaspace` puts its mark in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prepend {
    /// In front of every piece.
    Always,
    /// In front of the piece that begins the text.
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
        /// Every character by itself.
        individual: bool,
    },
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
                run(rest, piece, first, emit);
                first = false;
            });
        }
    }
}

impl PretokenizeStep {
    fn split(&self, text: &str, first: bool, emit: &mut dyn FnMut(&str)) {
        match self {
            PretokenizeStep::Scan(scanner) => scanner.split(text, emit),
            PretokenizeStep::Split(split) => split.run(text, emit),
            PretokenizeStep::SpacePrefix if text.starts_with(' ') => emit(text),
            PretokenizeStep::SpacePrefix => emit(&format!(" {text}")),
            PretokenizeStep::Digits { individual } => digits(text, *individual, emit),
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

/// Pieces that each begin with the mark, but for what stands before the first one.
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

fn digits(text: &str, individual: bool, emit: &mut dyn FnMut(&str)) {
    let table = classes();
    let (mut start, mut in_number) = (0, false);
    for (at, c) in text.char_indices() {
        let is_number = table.of(c) & NUMBER != 0;
        let cut = if individual {
            is_number || in_number
        } else {
            is_number != in_number
        };
        if cut && at > start {
            emit(&text[start..at]);
            start = at;
        }
        in_number = is_number;
    }
    emit(&text[start..]);
}

#[cfg(test)]
mod tests;
