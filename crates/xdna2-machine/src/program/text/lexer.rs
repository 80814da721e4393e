//! Tokens of the text form.

use super::ParseError;

/// One token; texts are borrowed from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// A word: keyword, name or variable.
    Word(&'t str),
    /// A string literal without its quotes, escapes not yet undone.
    Text(&'t str),
    /// A number: decimal digits, perhaps with fraction and exponent, or `0x` and digits.
    Number(&'t str),
    /// Punctuation: one character, or `->`, `<-`, `..`, `==`, `!=`, `>=`.
    Mark(&'t str),
    /// The end of the text.
    End,
}

/// A place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub(super) fn error(self, message: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }
}

const MARKS: [&str; 6] = ["->", "<-", "..", "==", "!=", ">="];

#[derive(Debug)]
pub(super) struct Lexer<'t> {
    rest: &'t str,
    at: Position,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer {
            rest: text,
            at: Position { line: 1, column: 1 },
        }
    }

    /// The next token and where it begins.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, Position), ParseError> {
        self.skip_blanks();
        let at = self.at;
        let Some(first) = self.rest.chars().next() else {
            return Ok((Token::End, at));
        };
        if first.is_ascii_alphabetic() || first == '_' {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            let len = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
            return Ok((Token::Word(self.take(len)), at));
        }
        if first.is_ascii_digit() {
            let len = number_len(self.rest.as_bytes());
            return Ok((Token::Number(self.take(len)), at));
        }
        if first == '"' {
            return Ok((Token::Text(self.text()?), at));
        }
        if let Some(mark) = MARKS.iter().find(|mark| self.rest.starts_with(**mark)) {
            return Ok((Token::Mark(self.take(mark.len())), at));
        }
        if "{}[]():,=+-*#<>".contains(first) {
            return Ok((Token::Mark(self.take(1)), at));
        }
        Err(at.error(format!("the character {first:?} has no meaning here")))
    }

    fn skip_blanks(&mut self) {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.take(blanks);
            if !self.rest.starts_with("//") {
                return;
            }
            let line = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(line);
        }
    }

    /// A string literal; the scan ends at the first quote that no backslash precedes.
    fn text(&mut self) -> Result<&'t str, ParseError> {
        let begin = self.at;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    let literal = self.take(at + 1);
                    return Ok(&literal[1..at]);
                }
                _ => {}
            }
        }
        Err(begin.error("the string does not end on its line"))
    }

    fn take(&mut self, len: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        match taken.rfind('\n') {
            None => self.at.column += taken.chars().count(),
            Some(last) => {
                self.at.line += taken.matches('\n').count();
                self.at.column = 1 + taken[last + 1..].chars().count();
            }
        }
        taken
    }
}

/// Length of the number that the bytes begin with. `0..8` is a number, `..`, a number.
fn number_len(bytes: &[u8]) -> usize {
    let digits = |from: usize, test: fn(&u8) -> bool| {
        from + bytes[from..].iter().take_while(|b| test(b)).count()
    };
    if bytes.starts_with(b"0x") {
        return digits(2, u8::is_ascii_hexdigit);
    }
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut len = digits(0, u8::is_ascii_digit);
    if bytes.get(len) == Some(&b'.') && digit(len + 1) {
        len = digits(len + 1, u8::is_ascii_digit);
    }
    if bytes.get(len) == Some(&b'e') {
        let sign = usize::from(bytes.get(len + 1) == Some(&b'-'));
        if digit(len + 1 + sign) {
            len = digits(len + 1 + sign, u8::is_ascii_digit);
        }
    }
    len
}

/// Undoes the escapes of a string literal: those that `char::escape_debug` makes.
pub(super) fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match rest.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('0') => '\0',
            Some(c @ ('\\' | '"' | '\'')) => c,
            Some('u') => {
                let body = rest.as_str().strip_prefix('{');
                let (code, after) = body
                    .and_then(|body| body.split_once('}'))
                    .ok_or("`\\u` needs braces: \\u{1f}")?;
                rest = after.chars();
                u32::from_str_radix(code, 16)
                    .ok()
                    .and_then(char::from_u32)
                    .ok_or_else(|| "`\\u{…}` is not a character".to_owned())?
            }
            _ => {
                return Err(
                    "a backslash begins \\n, \\r, \\t, \\0, \\\\, \\\", \\' or \\u{…}".into(),
                );
            }
        });
    }
    Ok(out)
}
