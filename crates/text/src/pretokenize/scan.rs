//! Hand-written scanners for the regular expressions that most models split text with.
//!
//! Each reproduces its expression exactly. The alternatives are tried in the order in which the
//! expression lists them; the characters that a backtracking engine would give back are computed.
//! `tests` holds the expressions themselves and compares.

use crate::unicode::{ANY, CAPITAL, Classes, LETTER, MARK, NEWLINE, NUMBER, SMALL, SPACE, classes};

/// How a scanner separates words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordRule {
    /// ` ?\p{L}+`, numbers likewise, lower-case contractions (GPT-2).
    Spaced,
    /// `[^\r\n\p{L}\p{N}]?\p{L}+` (cl100k, Llama 3, Qwen 2).
    Led,
    /// The same with marks counted as letters (Qwen 3.5).
    LedWithMarks,
    /// Capitals before small letters (o200k, Tekken); a contraction belongs to its word if
    /// `contractions`.
    Cased {
        /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)?` ends a word.
        contractions: bool,
    },
}

/// The rules of one pre-tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scanner {
    words: WordRule,
    /// Digits a piece may hold; GPT-2's rule has no limit and ignores this.
    max_digits: usize,
    /// Whether a slash may follow punctuation, too: `[\r\n/]*`.
    slash: bool,
}

impl Scanner {
    /// GPT-2 and the many that reuse its expression.
    pub(crate) const GPT2: Scanner = Scanner {
        words: WordRule::Spaced,
        max_digits: 0,
        slash: false,
    };
    /// Llama 3: cl100k's expression with at most three digits a piece.
    pub(crate) const LLAMA3: Scanner = Scanner {
        words: WordRule::Led,
        max_digits: 3,
        slash: false,
    };
    /// Qwen 2, 2.5 and 3: the same with single digits.
    pub(crate) const QWEN2: Scanner = Scanner {
        words: WordRule::Led,
        max_digits: 1,
        slash: false,
    };
    /// Qwen 3.5: marks belong to words.
    pub(crate) const QWEN35: Scanner = Scanner {
        words: WordRule::LedWithMarks,
        max_digits: 1,
        slash: false,
    };
    /// Mistral's Tekken.
    pub(crate) const TEKKEN: Scanner = Scanner {
        words: WordRule::Cased {
            contractions: false,
        },
        max_digits: 1,
        slash: true,
    };
    /// GPT-4o's o200k, also of Llama 4.
    pub(crate) const O200K: Scanner = Scanner {
        words: WordRule::Cased { contractions: true },
        max_digits: 3,
        slash: true,
    };

    /// The scanner that implements an expression found in a file, if there is one.
    pub(crate) fn for_pattern(pattern: &str) -> Option<Scanner> {
        PATTERNS
            .iter()
            .find(|(known, _)| *known == pattern)
            .map(|(_, scanner)| *scanner)
    }

    /// Calls `emit` with each piece of the text, in order; together they are the text.
    #[inline]
    pub(crate) fn split<'t>(&self, text: &'t str, emit: &mut dyn FnMut(&'t str)) {
        let cursor = Cursor {
            text,
            bytes: text.as_bytes(),
            classes: classes(),
        };
        let mut at = 0;
        while at < text.len() {
            let end = match self.words {
                WordRule::Spaced => spaced_piece(&cursor, at),
                _ => self.led_piece(&cursor, at),
            };
            emit(&text[at..end]);
            at = end;
        }
    }

    /// One piece under the rules of cl100k and its descendants.
    fn led_piece(&self, cursor: &Cursor<'_>, at: usize) -> usize {
        let (class, len) = cursor.class(at);
        if let Some(end) = self.word(cursor, at, class, len) {
            return end;
        }
        if class & NUMBER != 0 {
            return cursor.run_of_at_most(at, NUMBER, self.max_digits);
        }
        // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
        let not_other = match self.words {
            WordRule::LedWithMarks => SPACE | LETTER | NUMBER | MARK,
            _ => SPACE | LETTER | NUMBER,
        };
        let start = if cursor.bytes[at] == b' ' { at + 1 } else { at };
        let end = cursor.run_without(start, not_other);
        if end > start {
            return self.tail(cursor, end);
        }
        // `\s*[\r\n]+`: up to the last line break of the white space
        let end = cursor.run(at, SPACE);
        match cursor.bytes[at..end]
            .iter()
            .rposition(|b| matches!(b, b'\r' | b'\n'))
        {
            Some(last) => at + last + 1,
            None => white_space(cursor, at, end),
        }
    }

    /// The alternatives of the expression that match words and contractions.
    fn word(&self, cursor: &Cursor<'_>, at: usize, class: u8, len: usize) -> Option<usize> {
        let letters = match self.words {
            WordRule::Cased { contractions } => {
                let end = cased_word(cursor, at, class, len)?;
                let tail = if contractions {
                    contraction(cursor, end, true)
                } else {
                    None
                };
                return Some(tail.unwrap_or(end));
            }
            WordRule::LedWithMarks => LETTER | MARK,
            _ => LETTER,
        };
        if let Some(end) = contraction(cursor, at, true) {
            return Some(end);
        }
        if class & letters != 0 {
            return Some(cursor.run(at, letters));
        }
        let may_lead = class & (NEWLINE | NUMBER) == 0;
        (may_lead && cursor.class(at + len).0 & letters != 0).then(|| cursor.run(at + len, letters))
    }

    /// `[\r\n]*` or `[\r\n/]*`
    fn tail(&self, cursor: &Cursor<'_>, at: usize) -> usize {
        let follows = |b: &&u8| matches!(b, b'\r' | b'\n') || (self.slash && **b == b'/');
        at + cursor.bytes[at..].iter().take_while(follows).count()
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
fn spaced_piece(cursor: &Cursor<'_>, at: usize) -> usize {
    if let Some(end) = contraction(cursor, at, false) {
        return end;
    }
    let start = if cursor.bytes[at] == b' ' { at + 1 } else { at };
    let (class, _) = cursor.class(start);
    if class & LETTER != 0 {
        cursor.run(start, LETTER)
    } else if class & NUMBER != 0 {
        cursor.run(start, NUMBER)
    } else if class & ANY != 0 && class & SPACE == 0 {
        cursor.run_without(start, SPACE | LETTER | NUMBER)
    } else {
        white_space(cursor, at, cursor.run(at, SPACE))
    }
}

/// `\s+(?!\S)|\s+` over the run of white space `at..end`: a run before a word leaves its last character.
fn white_space(cursor: &Cursor<'_>, at: usize, end: usize) -> usize {
    if end == cursor.bytes.len() {
        return end;
    }
    match cursor.text[at..end].char_indices().next_back() {
        Some((last, _)) if last > 0 => at + last,
        _ => end,
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d`; with `any_case`, Unicode's simple case folding, in which `ſ` is an
/// `s`.
fn contraction(cursor: &Cursor<'_>, at: usize, any_case: bool) -> Option<usize> {
    let rest = cursor.bytes[at..].strip_prefix(b"'")?;
    let fold = |i: usize| {
        let byte = *rest.get(i)?;
        Some(if any_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        })
    };
    match (fold(0)?, fold(1)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(at + 3),
        _ if any_case && rest.starts_with("ſ".as_bytes()) => Some(at + 1 + "ſ".len()),
        _ => None,
    }
}

/// A word with its capitals in front, and at most one leading character that is not a letter, digit
/// or line break: `[^\r\n\p{L}\p{N}]?C*S+|[^\r\n\p{L}\p{N}]?C+S*` with C the capitals and S the
/// small letters (caseless letters and marks are both).
fn cased_word(cursor: &Cursor<'_>, at: usize, class: u8, len: usize) -> Option<usize> {
    let may_lead = class & (NEWLINE | LETTER | NUMBER) == 0;
    let led = may_lead.then_some(at + len);
    let starts = || led.into_iter().chain([at]);
    starts()
        .find_map(|start| ends_small(cursor, start))
        .or_else(|| starts().find_map(|start| ends_capital(cursor, start)))
}

/// `C*S+`
fn ends_small(cursor: &Cursor<'_>, at: usize) -> Option<usize> {
    let capitals = cursor.run(at, CAPITAL);
    if cursor.class(capitals).0 & SMALL != 0 {
        return Some(cursor.run(capitals, SMALL));
    }
    // The capitals give back characters until one of them is a small letter as well.
    let mut taken = cursor.text[at..capitals].char_indices();
    let (i, c) = taken.rfind(|(_, c)| cursor.classes.of(*c) & SMALL != 0)?;
    Some(at + i + c.len_utf8())
}

/// `C+S*`
fn ends_capital(cursor: &Cursor<'_>, at: usize) -> Option<usize> {
    let capitals = cursor.run(at, CAPITAL);
    (capitals > at).then(|| cursor.run(capitals, SMALL))
}

/// A text with the classes of its characters.
struct Cursor<'t> {
    text: &'t str,
    bytes: &'t [u8],
    classes: &'static Classes,
}

impl Cursor<'_> {
    /// Class bits and length in bytes of the character at an offset; zeros at the end.
    #[inline]
    fn class(&self, at: usize) -> (u8, usize) {
        match self.bytes.get(at) {
            None => (0, 0),
            Some(&byte) if byte < 128 => (self.classes.of_ascii(byte), 1),
            Some(_) => match self.text[at..].chars().next() {
                Some(c) => (self.classes.of(c), c.len_utf8()),
                None => (0, 0),
            },
        }
    }

    /// End of the characters from an offset on that satisfy a condition on their class bits.
    #[inline]
    fn run_while(&self, mut at: usize, holds: impl Fn(u8) -> bool) -> usize {
        loop {
            let (class, len) = self.class(at);
            if class == 0 || !holds(class) {
                return at;
            }
            at += len;
        }
    }

    /// End of the run of characters that are of any of the classes.
    #[inline]
    fn run(&self, at: usize, classes: u8) -> usize {
        self.run_while(at, |class| class & classes != 0)
    }

    /// End of the run of characters that are of none of the classes.
    #[inline]
    fn run_without(&self, at: usize, classes: u8) -> usize {
        self.run_while(at, |class| class & classes == 0)
    }

    fn run_of_at_most(&self, mut at: usize, classes: u8, limit: usize) -> usize {
        for _ in 0..limit {
            let (class, len) = self.class(at);
            if class & classes == 0 {
                break;
            }
            at += len;
        }
        at
    }
}

/// GPT-2's expression, as `tokenizer.json` implies it with `ByteLevel`.
pub(crate) const GPT2_PATTERN: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Expressions as files spell them, and the scanner for each.
const PATTERNS: [(&str, Scanner); 7] = [
    (GPT2_PATTERN, Scanner::GPT2),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Scanner::LLAMA3,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Scanner::QWEN2,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Scanner::QWEN35,
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Scanner::TEKKEN,
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Scanner::O200K,
    ),
    // cl100k itself: the possessive quantifiers and `\s*[\r\n]` for `\s*[\r\n]+` make no
    // difference.
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        Scanner::LLAMA3,
    ),
];

#[cfg(test)]
mod tests;
