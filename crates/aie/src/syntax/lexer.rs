//! Words of MLIR's text.

use super::{Location, SyntaxError};

/// Kind of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// `%name`, with `#n` of a result of several.
    Value,
    /// `@name`.
    Symbol,
    /// `^name`.
    Label,
    /// `#name`.
    Hash,
    /// `!name`.
    Bang,
    /// A word, with dots.
    Word,
    /// A whole number, decimal or hexadecimal.
    Integer,
    /// A number with a point or an exponent.
    Float,
    /// A string with its quotes.
    Text,
    /// One sign, or `->`.
    Sign,
    /// The end of the text.
    End,
}

/// A word of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MlirToken<'t> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'t str,
    /// Its first byte in the text.
    pub(crate) start: usize,
    pub(crate) at: Location,
}

impl MlirToken<'_> {
    /// Name in messages.
    pub(crate) fn name(&self) -> String {
        match self.kind {
            TokenKind::End => "the end of the text".to_owned(),
            _ => {
                let short: String = self.text.chars().take(40).collect();
                format!("`{short}`")
            }
        }
    }
}

struct MlirLexer<'t> {
    text: &'t str,
    next: usize,
    line: u32,
    /// A byte of this line, and its column, from which counting goes on.
    counted: (usize, u32),
}

fn continues(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

impl<'t> MlirLexer<'t> {
    fn peek(&self, ahead: usize) -> u8 {
        *self.text.as_bytes().get(self.next + ahead).unwrap_or(&0)
    }

    fn location(&mut self) -> Location {
        let (from, column) = self.counted;
        let between = self.text.get(from..self.next).unwrap_or_default();
        self.counted = (self.next, column + between.chars().count() as u32);
        Location {
            line: self.line,
            column: self.counted.1,
        }
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.next += 1;
                    self.line += 1;
                    self.counted = (self.next, 1);
                }
                b' ' | b'\t' | b'\r' => self.next += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.next < self.text.len() && self.peek(0) != b'\n' {
                        self.next += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) {
        while self.next < self.text.len() && keep(self.peek(0)) {
            self.next += 1;
        }
    }

    /// A string from its first quote on.
    fn quoted(&mut self) -> Result<(), SyntaxError> {
        let at = self.location();
        self.next += 1;
        loop {
            match self.peek(0) {
                b'"' => break,
                b'\\' => self.next += 2,
                0 | b'\n' => return Err(SyntaxError::new(at, "a string has no end")),
                _ => self.next += 1,
            }
        }
        self.next += 1;
        Ok(())
    }

    fn number(&mut self) -> TokenKind {
        if self.peek(0) == b'0' && self.peek(1) == b'x' && self.peek(2).is_ascii_hexdigit() {
            self.next += 2;
            self.take_while(|byte| byte.is_ascii_hexdigit());
            return TokenKind::Integer;
        }
        self.take_while(|byte| byte.is_ascii_digit());
        if self.peek(0) != b'.' || !self.peek(1).is_ascii_digit() {
            return TokenKind::Integer;
        }
        self.next += 1;
        self.take_while(|byte| byte.is_ascii_digit());
        let signed = usize::from(matches!(self.peek(1), b'+' | b'-'));
        if matches!(self.peek(0), b'e' | b'E') && self.peek(1 + signed).is_ascii_digit() {
            self.next += 1 + signed;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        TokenKind::Float
    }

    /// The word that begins here; the text goes on.
    fn word(&mut self) -> Result<TokenKind, SyntaxError> {
        let sigil = match self.peek(0) {
            b'%' => Some(TokenKind::Value),
            b'@' => Some(TokenKind::Symbol),
            b'^' => Some(TokenKind::Label),
            b'#' => Some(TokenKind::Hash),
            b'!' => Some(TokenKind::Bang),
            _ => None,
        };
        if let Some(kind) = sigil {
            self.next += 1;
            if kind == TokenKind::Symbol && self.peek(0) == b'"' {
                self.quoted()?;
                return Ok(kind);
            }
            self.take_while(|byte| continues(byte) || byte == b'-');
            if kind == TokenKind::Value && self.peek(0) == b'#' {
                self.next += 1;
                self.take_while(|byte| byte.is_ascii_digit());
            }
            return Ok(kind);
        }
        match self.peek(0) {
            b'"' => self.quoted().map(|()| TokenKind::Text),
            b'0'..=b'9' => Ok(self.number()),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                self.take_while(continues);
                Ok(TokenKind::Word)
            }
            b'-' if self.peek(1) == b'>' => {
                self.next += 2;
                Ok(TokenKind::Sign)
            }
            b'(' | b')' | b'{' | b'}' | b'[' | b']' | b'<' | b'>' | b',' | b':' | b'=' | b'-'
            | b'?' | b'*' | b'+' | b'/' | b'|' => {
                self.next += 1;
                Ok(TokenKind::Sign)
            }
            _ => {
                let rest = self.text.get(self.next..).unwrap_or_default();
                let sign = rest.chars().next().unwrap_or('\u{fffd}');
                let problem = format!("the sign {sign:?} has no meaning in MLIR");
                let at = self.location();
                Err(SyntaxError::new(at, problem))
            }
        }
    }
}

/// The words of a text, the last one its end.
pub(crate) fn tokens(text: &str) -> Result<Vec<MlirToken<'_>>, SyntaxError> {
    let mut lexer = MlirLexer {
        text,
        next: 0,
        line: 1,
        counted: (0, 1),
    };
    let mut all = Vec::new();
    loop {
        lexer.skip_blank();
        let (start, at) = (lexer.next, lexer.location());
        if start >= text.len() {
            all.push(MlirToken {
                kind: TokenKind::End,
                text: "",
                start: text.len(),
                at,
            });
            return Ok(all);
        }
        let kind = lexer.word()?;
        // A word may end within a character only in a string, whose end is a quote.
        let word = text
            .get(start..lexer.next)
            .ok_or_else(|| SyntaxError::new(at, "a word ends within a character"))?;
        all.push(MlirToken {
            kind,
            text: word,
            start,
            at,
        });
    }
}
