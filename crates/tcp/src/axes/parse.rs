//! Mapping expressions from text.

use super::Mapping;

/// Why a text is not a mapping expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: expected {expected} at byte {at}")]
pub struct AxesParseError {
    /// The text, shortened.
    pub text: String,
    /// Position of the error.
    pub at: usize,
    /// The expected text.
    pub expected: &'static str,
}

/// Deepest nesting of brackets.
const MAX_DEPTH: usize = 32;

/// Most parts of one expression.
const MAX_PARTS: usize = 256;

/// Whether a text can name an axis: a letter or underscore, then letters, digits, underscores.
pub fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= 64 && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Parses `N / 8 % 256`, with or without `m![…]` around it.
///
/// # Errors
/// [`AxesParseError`]: the expected text and its position.
pub(crate) fn parse_mapping(text: &str) -> Result<Mapping, AxesParseError> {
    let bare = text.trim();
    let inner = bare.strip_prefix("m![").and_then(|t| t.strip_suffix(']'));
    let mut parser = Parser {
        text: inner.unwrap_or(bare),
        at: 0,
        parts: 0,
    };
    let mapping = parser.list(0)?;
    match parser.peek() {
        None => Ok(mapping),
        Some(_) => Err(parser.error("the end")),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    parts: usize,
}

impl Parser<'_> {
    fn error(&self, expected: &'static str) -> AxesParseError {
        AxesParseError {
            text: self.text.chars().take(80).collect(),
            at: self.at,
            expected,
        }
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn word(&mut self, is_part: impl Fn(u8) -> bool) -> String {
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest.iter().take_while(|&&b| is_part(b)).count();
        let word = self.text[self.at..self.at + len].to_owned();
        self.at += len;
        word
    }

    fn number(&mut self) -> Result<u64, AxesParseError> {
        self.peek();
        let at = self.at;
        let number = self.word(|b| b.is_ascii_digit()).parse::<u64>().ok();
        let number = number.filter(|n| (1..=super::MAX_SIZE).contains(n));
        number.ok_or_else(|| {
            self.at = at;
            self.error("a number from 1 to 2^40")
        })
    }

    fn list(&mut self, depth: usize) -> Result<Mapping, AxesParseError> {
        let mut parts = vec![self.postfix(depth)?];
        while self.peek() == Some(b',') {
            self.at += 1;
            parts.push(self.postfix(depth)?);
        }
        // Pairs keep every part: `then` would leave identities out, and print would differ.
        let pair = |inner, outer| Mapping::Pair(Box::new(outer), Box::new(inner));
        let folded = parts.into_iter().rev().reduce(pair);
        folded.ok_or_else(|| self.error("an axis"))
    }

    fn postfix(&mut self, depth: usize) -> Result<Mapping, AxesParseError> {
        let mut mapping = self.primary(depth)?;
        loop {
            let wrap = match self.peek() {
                Some(b'/') => Mapping::Stride,
                Some(b'%') => Mapping::Modulo,
                Some(b'=') => Mapping::Resize,
                Some(b'#') => Mapping::Padding,
                _ => return Ok(mapping),
            };
            self.at += 1;
            self.count()?;
            let n = self.number()?;
            mapping = wrap(Box::new(mapping), n);
        }
    }

    fn count(&mut self) -> Result<(), AxesParseError> {
        self.parts += 1;
        match self.parts > MAX_PARTS {
            true => Err(self.error("at most 256 parts")),
            false => Ok(()),
        }
    }

    fn primary(&mut self, depth: usize) -> Result<Mapping, AxesParseError> {
        self.count()?;
        match self.peek() {
            Some(b'[') if depth < MAX_DEPTH => {
                self.at += 1;
                let inner = self.list(depth + 1)?;
                match self.peek() {
                    Some(b']') => self.at += 1,
                    _ => return Err(self.error("`]`")),
                }
                Ok(inner)
            }
            Some(b) if b.is_ascii_digit() => Ok(Mapping::Copies(self.number()?)),
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                let at = self.at;
                let name = self.word(|b| b.is_ascii_alphanumeric() || b == b'_');
                match is_name(&name) {
                    true => Ok(Mapping::Symbol(name)),
                    false => {
                        self.at = at;
                        Err(self.error("a name of at most 64 bytes"))
                    }
                }
            }
            _ => Err(self.error("an axis, a number or `[`")),
        }
    }
}
