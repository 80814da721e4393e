//! Tokens that are matched in the text before anything else: control tokens and user-defined ones.
//!
//! All of them are searched at once (Aho–Corasick), leftmost first and the longest of several that
//! start at one place. So the time does not depend on their number.

use crate::Error;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use std::ops::Range;
use std::sync::LazyLock;

/// A token matched by its text, and its conditions on the surroundings.
#[derive(Clone, Debug)]
pub(crate) struct SpecialToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// A control token: matched only where the caller asks for it.
    pub(crate) control: bool,
    /// Takes white space in front of it.
    pub(crate) lstrip: bool,
    /// Takes white space behind it.
    pub(crate) rstrip: bool,
    /// Matches only between characters that are not part of words.
    pub(crate) single_word: bool,
    /// Looked for in the normalized text, not in the original.
    pub(crate) normalized: bool,
}

impl SpecialToken {
    /// A token without conditions.
    pub(crate) fn plain(id: u32, content: &str, control: bool) -> SpecialToken {
        SpecialToken {
            id,
            content: content.to_owned(),
            control,
            lstrip: false,
            rstrip: false,
            single_word: false,
            normalized: false,
        }
    }
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    /// Text without special tokens; never empty.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// Cuts texts at special tokens.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// Every token.
    all: Option<Matcher>,
    /// All but the control tokens.
    user_defined: Option<Matcher>,
}

#[derive(Debug)]
struct Matcher {
    automaton: AhoCorasick,
    tokens: Vec<SpecialToken>,
}

impl Splitter {
    /// A splitter for some tokens; those without a text are ignored.
    pub(crate) fn new(tokens: Vec<SpecialToken>) -> Result<Splitter, Error> {
        let user_defined: Vec<_> = tokens
            .iter()
            .filter(|token| !token.control)
            .cloned()
            .collect();
        Ok(Splitter {
            all: Matcher::new(tokens)?,
            user_defined: Matcher::new(user_defined)?,
        })
    }

    /// Calls `emit` with the parts of a text in order.
    pub(crate) fn split<'t>(
        &self,
        text: &'t str,
        control: Control<'_>,
        emit: &mut dyn FnMut(Segment<'t>),
    ) {
        let (matcher, literal) = match control {
            Control::Text => (&self.user_defined, &[][..]),
            Control::TokenExcept(literal) => (&self.all, literal),
        };
        match matcher {
            Some(matcher) => matcher.split(text, literal, emit),
            None if text.is_empty() => {}
            None => emit(Segment::Text(text)),
        }
    }

    /// Where control tokens occur in a text.
    pub(crate) fn control_spans(&self, text: &str) -> Vec<Range<usize>> {
        let Some(matcher) = &self.all else {
            return Vec::new();
        };
        let found = matcher.automaton.find_iter(text);
        found
            .filter(|m| matcher.tokens[m.pattern()].control)
            .map(|m| m.range())
            .collect()
    }
}

/// Treatment of control tokens in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control<'l> {
    /// Ordinary text.
    Text,
    /// Tokens, but for those that touch one of these ranges, which are in ascending order.
    TokenExcept(&'l [Range<usize>]),
}

impl Matcher {
    fn new(mut tokens: Vec<SpecialToken>) -> Result<Option<Matcher>, Error> {
        tokens.retain(|token| !token.content.is_empty());
        if tokens.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            // The other automata may take memory out of proportion to the tokens.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(tokens.iter().map(|token| &token.content))
            .map_err(Box::new)?;
        Ok(Some(Matcher { automaton, tokens }))
    }

    fn split<'t>(
        &self,
        text: &'t str,
        literal: &[Range<usize>],
        emit: &mut dyn FnMut(Segment<'t>),
    ) {
        let mut done = 0;
        for found in self.automaton.find_iter(text) {
            let token = &self.tokens[found.pattern().as_usize()];
            // White space that the token before it took does not belong to another token.
            if found.start() < done || !token.may_stand(text, found.range()) {
                continue;
            }
            if token.control && touches(literal, &found.range()) {
                continue;
            }
            let before = &text[done..found.start()];
            let before = if token.lstrip {
                before.trim_end()
            } else {
                before
            };
            if !before.is_empty() {
                emit(Segment::Text(before));
            }
            emit(Segment::Token(token.id));
            done = found.end();
            if token.rstrip {
                let rest = &text[done..];
                done += rest.len() - rest.trim_start().len();
            }
        }
        if done < text.len() {
            emit(Segment::Text(&text[done..]));
        }
    }
}

impl SpecialToken {
    /// Whether the surroundings of a match allow it.
    fn may_stand(&self, text: &str, at: Range<usize>) -> bool {
        if !self.single_word {
            return true;
        }
        let before = text[..at.start].chars().next_back();
        let after = text[at.end..].chars().next();
        !before.is_some_and(is_word_character) && !after.is_some_and(is_word_character)
    }
}

/// Whether a range has a byte in common with one of some ranges in ascending order.
pub(crate) fn touches(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
    let first = ranges.partition_point(|other| other.end <= range.start);
    ranges
        .get(first)
        .is_some_and(|other| other.start < range.end)
}

/// `\w`, as the regex engine defines it.
fn is_word_character(c: char) -> bool {
    static WORD: LazyLock<fancy_regex::Regex> =
        LazyLock::new(|| fancy_regex::Regex::new(r"\w").expect("the class is written correctly"));
    // Without lookaround the expression runs in the engine that cannot fail.
    WORD.is_match(c.encode_utf8(&mut [0; 4]) as &str)
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    type SpecialEdit = fn(&mut SpecialToken);

    fn splitter(tokens: &[(&str, SpecialEdit)]) -> Splitter {
        let tokens = tokens.iter().enumerate().map(|(id, (content, set))| {
            let mut token = SpecialToken::plain(id as u32, content, content.starts_with("<|"));
            set(&mut token);
            token
        });
        Splitter::new(tokens.collect()).unwrap()
    }

    fn split<'t>(splitter: &Splitter, text: &'t str, control: bool) -> Vec<Segment<'t>> {
        let mut out = Vec::new();
        let control = if control {
            Control::TokenExcept(&[])
        } else {
            Control::Text
        };
        splitter.split(text, control, &mut |segment| out.push(segment));
        out
    }

    use Segment::{Text, Token};

    #[test]
    fn longest_of_the_leftmost() {
        let s = splitter(&[
            ("ab", |_| {}),
            ("abc", |_| {}),
            ("bcd", |_| {}),
            ("  ", |_| {}),
        ]);
        assert_eq!(
            split(&s, "xabcdab", true),
            [Text("x"), Token(1), Text("d"), Token(0)]
        );
        assert_eq!(split(&s, "   ", true), [Token(3), Text(" ")]);
        assert!(split(&s, "", true).is_empty());
    }

    #[test]
    fn control_tokens_are_text_unless_asked_for() {
        let s = splitter(&[("<|end|>", |_| {}), ("<b>", |_| {})]);
        assert_eq!(
            split(&s, "a<|end|><b>", true),
            [Text("a"), Token(0), Token(1)]
        );
        assert_eq!(
            split(&s, "a<|end|><b>", false),
            [Text("a<|end|>"), Token(1)]
        );
    }

    #[test]
    fn control_tokens_in_literal_ranges_are_text() {
        let s = splitter(&[("<|end|>", |_| {}), ("<b>", |_| {})]);
        let text = "<|end|>a<|end|><b>";
        let mut out = Vec::new();
        let literal = [8..9, 16..18];
        s.split(text, Control::TokenExcept(&literal), &mut |segment| {
            out.push(segment)
        });
        assert_eq!(out, [Token(0), Text("a<|end|>"), Token(1)]);
        assert_eq!(s.control_spans(text), [0..7, 8..15]);
    }

    #[test]
    fn white_space_around_belongs_to_tokens_that_strip() {
        let s = splitter(&[
            ("<m>", |t| t.lstrip = true),
            ("<r>", |t| t.rstrip = true),
            (" ", |_| {}),
        ]);
        let want = [Text("a"), Token(2), Token(0), Token(2), Text("b")];
        assert_eq!(split(&s, "a \u{A0}<m> b", true), want);
        let s = splitter(&[("<m>", |t| t.lstrip = true), ("<r>", |t| t.rstrip = true)]);
        assert_eq!(
            split(&s, "a \n<m> b", true),
            [Text("a"), Token(0), Text(" b")]
        );
        assert_eq!(
            split(&s, "a <r> \n<m>b", true),
            [Text("a "), Token(1), Token(0), Text("b")]
        );
        assert_eq!(split(&s, " <m>", true), [Token(0)]);
    }

    #[test]
    fn single_words_stand_alone() {
        let s = splitter(&[("cat", |t| t.single_word = true)]);
        assert_eq!(
            split(&s, "cat, cat", true),
            [Token(0), Text(", "), Token(0)]
        );
        assert_eq!(
            split(&s, "cats é cat_ concat", true),
            [Text("cats é cat_ concat")]
        );
    }

    #[test]
    fn many_tokens_and_a_long_text_take_linear_time() {
        let contents: Vec<_> = (1..300).map(|n| "a".repeat(n) + "b").collect();
        let tokens = contents
            .iter()
            .enumerate()
            .map(|(i, c)| SpecialToken::plain(i as u32, c, false));
        let s = Splitter::new(tokens.collect()).unwrap();
        let text = "a".repeat(1_000_000);
        assert_eq!(split(&s, &text, true), [Text(&text)]);
    }
}
