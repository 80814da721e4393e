//! Splitting at the matches of an expression, with the five behaviours of `tokenizer.json`.

use super::Scanner;
use crate::Error;

/// Treatment of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behavior {
    /// It is a piece.
    Isolated,
    /// It is dropped.
    Removed,
    /// It ends the piece before it.
    MergedWithPrevious,
    /// It begins the piece after it.
    MergedWithNext,
    /// It is one piece with the matches next to it.
    Contiguous,
}

/// The pattern to look for.
#[derive(Debug)]
pub(crate) enum Pattern {
    /// An expression with a scanner.
    Scanner(Scanner),
    /// Any other expression.
    Regex(Box<fancy_regex::Regex>),
    /// A string, never empty.
    Literal(String),
}

impl Pattern {
    /// Compiles an expression, or takes the scanner that does the same.
    pub(crate) fn regex(pattern: &str) -> Result<Pattern, Error> {
        if let Some(scanner) = Scanner::for_pattern(pattern) {
            return Ok(Pattern::Scanner(scanner));
        }
        // Files are written for Oniguruma, whose anchors are those of lines.
        let lines = fancy_regex::RegexBuilder::new(pattern)
            .multi_line(true)
            .build();
        match lines {
            Ok(regex) => Ok(Pattern::Regex(Box::new(regex))),
            Err(source) => Err(Error::Regex {
                pattern: pattern.to_owned(),
                source: Box::new(source),
            }),
        }
    }

    /// The least length of a match in bytes.
    pub(crate) fn min_bytes(&self) -> usize {
        match self {
            Pattern::Literal(text) => text.len().max(1),
            Pattern::Scanner(_) | Pattern::Regex(_) => 1,
        }
    }

    /// Calls `emit` with the parts of a text in order, and whether each is a match. No part is
    /// empty.
    pub(crate) fn parts<'t>(&self, text: &'t str, emit: &mut dyn FnMut(&'t str, bool)) {
        let mut end_of_last = 0;
        let mut found = |start: usize, end: usize| {
            if start > end_of_last {
                emit(&text[end_of_last..start], false);
            }
            if end > start {
                emit(&text[start..end], true);
            }
            end_of_last = end;
        };
        match self {
            Pattern::Scanner(scanner) => {
                return scanner.split(text, &mut |piece| emit(piece, true));
            }
            Pattern::Literal(literal) => {
                text.match_indices(literal)
                    .for_each(|(at, m)| found(at, at + m.len()));
            }
            // A search that exceeds the engine's limit on backtracking ends the matches. The rest
            // of the text is one part, so that no text is ever lost.
            Pattern::Regex(regex) => regex
                .find_iter(text)
                .map_while(Result::ok)
                .for_each(|matched| found(matched.start(), matched.end())),
        }
        found(text.len(), text.len());
    }
}

/// A pattern with the treatment of its matches.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) pattern: Pattern,
    pub(crate) behavior: Behavior,
    /// Whether the parts between the matches take the role of the matches.
    pub(crate) invert: bool,
}

impl Split {
    /// A split whose matches are pieces.
    pub(crate) fn isolated(pattern: &str) -> Result<Split, Error> {
        Ok(Split {
            pattern: Pattern::regex(pattern)?,
            behavior: Behavior::Isolated,
            invert: false,
        })
    }

    /// Calls `emit` with each piece of the text.
    pub(crate) fn run(&self, text: &str, emit: &mut dyn FnMut(&str)) {
        // The piece that may still grow: its bounds, and whether its last part was a match.
        let mut open: Option<(usize, usize, bool)> = None;
        let mut at = 0;
        self.pattern.parts(text, &mut |part, is_match| {
            let is_match = is_match != self.invert;
            let (start, end) = (at, at + part.len());
            at = end;
            if let Some((first, last, was_match)) = open {
                if self.joins(was_match, is_match) {
                    open = Some((first, end, is_match));
                    return;
                }
                emit(&text[first..last]);
            }
            open =
                (self.behavior != Behavior::Removed || !is_match).then_some((start, end, is_match));
        });
        if let Some((first, last, _)) = open {
            emit(&text[first..last]);
        }
    }

    /// Whether a part belongs to the piece that ends where it starts.
    fn joins(&self, was_match: bool, is_match: bool) -> bool {
        match self.behavior {
            Behavior::Isolated | Behavior::Removed => false,
            Behavior::MergedWithPrevious => is_match && !was_match,
            Behavior::MergedWithNext => was_match && !is_match,
            Behavior::Contiguous => was_match == is_match,
        }
    }
}
