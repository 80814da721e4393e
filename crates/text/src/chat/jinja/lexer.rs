//! Sources to tokens, with the control of white space: `trim_blocks`, `lstrip_blocks`, `-` and `+`.

use super::chars::is_space;
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// Text between tags.
    Data(Rc<str>),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(Rc<str>),
    Int(i128),
    Float(f64),
    Str(Rc<str>),
    Op(&'static str),
    End,
}

/// Error in a source, and its place.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxFault {
    pub(crate) message: String,
    pub(crate) line: u32,
}

/// Two characters first, so that they are found first.
const OPERATORS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";", "`",
];

/// A source with every line ended by `\n` and without the line end at its end, as Jinja2 reads it.
fn normalized(source: &str) -> String {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// The tokens of a source, each with its line.
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, u32)>, SyntaxFault> {
    let source = normalized(source);
    let mut lexer = Lexer {
        source: &source,
        at: 0,
        line: 1,
        line_starts: true,
        tokens: Vec::new(),
    };
    while lexer.at < source.len() {
        lexer.text()?;
    }
    lexer.push(Token::End);
    Ok(lexer.tokens)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    /// Whether the last part that was read ends in a line end.
    line_starts: bool,
    tokens: Vec<(Token, u32)>,
}

fn skip_spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_space).len()
}

/// The place of the first tag of a text.
fn first_tag(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_tag = |pair: &[u8]| pair[0] == b'{' && matches!(pair[1], b'{' | b'%' | b'#');
    bytes.windows(2).position(is_tag)
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, SyntaxFault> {
        Err(SyntaxFault {
            message: message.into(),
            line: self.line,
        })
    }

    /// Skips bytes.
    fn skip(&mut self, n: usize) {
        let passed = &self.source[self.at..self.at + n];
        self.line += passed.bytes().filter(|byte| *byte == b'\n').count() as u32;
        if n > 0 {
            self.line_starts = passed.ends_with('\n');
        }
        self.at += n;
    }

    /// Text up to the next tag, and the tag.
    fn text(&mut self) -> Result<(), SyntaxFault> {
        let rest = self.rest();
        let Some(n) = first_tag(rest) else {
            self.push(Token::Data(rest.into()));
            self.skip(rest.len());
            return Ok(());
        };
        let (text, tag) = rest.split_at(n);
        let sign = tag[2..].chars().next().filter(|c| matches!(c, '-' | '+'));
        let len = 2 + sign.map_or(0, char::len_utf8);
        let kind = tag.as_bytes()[1];
        self.data(text, sign, kind != b'{');
        self.skip(n);
        match kind {
            b'#' => self.comment(len),
            b'%' => match raw_tag(&tag[len..], "raw", false) {
                Some(more) => self.raw(len + more),
                None => self.tag(len, Token::BlockBegin, Token::BlockEnd),
            },
            _ => self.tag(len, Token::VariableBegin, Token::VariableEnd),
        }
    }

    /// Text before a tag, without the spaces that the tag strips.
    fn data(&mut self, text: &str, sign: Option<char>, is_block: bool) {
        let text = match sign {
            Some('-') => text.trim_end_matches(is_space),
            None if is_block => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                let is_blank = text[start..].chars().all(is_space);
                match is_blank && (start > 0 || self.line_starts) {
                    true => &text[..start],
                    false => text,
                }
            }
            _ => text,
        };
        if !text.is_empty() {
            self.push(Token::Data(text.into()));
        }
    }

    fn comment(&mut self, len: usize) -> Result<(), SyntaxFault> {
        let inside = &self.rest()[len..];
        let Some(end) = inside.find("#}") else {
            return self.fault("a comment has no end");
        };
        let (before, after) = (&inside[..end], &inside[end + 2..]);
        let trailing = match before.chars().next_back() {
            Some('-') => skip_spaces(after),
            Some('+') => 0,
            _ => usize::from(after.starts_with('\n')),
        };
        self.skip(len + end + 2 + trailing);
        Ok(())
    }

    fn raw(&mut self, len: usize) -> Result<(), SyntaxFault> {
        self.skip(len);
        let rest = self.rest();
        let mut from = 0;
        while let Some(found) = rest[from..].find("{%") {
            let at = from + found;
            let tag = &rest[at + 2..];
            let sign = tag.chars().next().filter(|c| matches!(c, '-' | '+'));
            let n_sign = sign.map_or(0, char::len_utf8);
            if let Some(more) = raw_tag(&tag[n_sign..], "endraw", true) {
                self.data(&rest[..at], sign, true);
                self.skip(at + 2 + n_sign + more);
                return Ok(());
            }
            from = at + 2;
        }
        self.fault("a raw block has no end")
    }

    /// Reads the contents of a tag, up to its end.
    fn tag(&mut self, len: usize, begin: Token, end: Token) -> Result<(), SyntaxFault> {
        self.push(begin);
        self.skip(len);
        let is_block = end == Token::BlockEnd;
        let mut open: Vec<&'static str> = Vec::new();
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return Ok(());
            }
            let ending = match open.is_empty() {
                true => end_of_tag(rest, is_block),
                false => None,
            };
            if let Some(n) = ending {
                self.push(end);
                self.skip(n);
                return Ok(());
            }
            let spaces = skip_spaces(rest);
            if spaces > 0 {
                self.skip(spaces);
                continue;
            }
            self.token(&mut open)?;
        }
    }

    fn token(&mut self, open: &mut Vec<&'static str>) -> Result<(), SyntaxFault> {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or_default();
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '_' || first.is_alphanumeric() {
            let is_part = |c: char| c == '_' || c.is_alphanumeric();
            let n = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            self.push(Token::Name(rest[..n].into()));
            self.skip(n);
            return Ok(());
        }
        if matches!(first, '"' | '\'') {
            return self.string(first);
        }
        let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            return self.fault(format!("unexpected character {first:?}"));
        };
        match *op {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" => match open.pop() {
                Some(expected) if expected == *op => {}
                Some(expected) => {
                    return self.fault(format!("unexpected \"{op}\", expected \"{expected}\""));
                }
                None => return self.fault(format!("unexpected \"{op}\"")),
            },
            "`" => return self.fault("unexpected character '`'"),
            _ => {}
        }
        self.push(Token::Op(op));
        self.skip(op.len());
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxFault> {
        let rest = self.rest();
        let follows_dot = self.source[..self.at].ends_with('.');
        if let Some(n) = float_len(rest).filter(|_| !follows_dot) {
            let digits = rest[..n].replace('_', "");
            let value = digits.parse().unwrap_or(f64::NAN);
            self.push(Token::Float(value));
            self.skip(n);
            return Ok(());
        }
        let (n, radix) = int_len(rest);
        let digits = rest[..n].replace('_', "");
        let digits = if radix == 10 {
            &digits[..]
        } else {
            &digits[2..]
        };
        let Ok(value) = i128::from_str_radix(digits, radix) else {
            return self.fault(format!("{digits} is beyond 128 bits"));
        };
        self.push(Token::Int(value));
        self.skip(n);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<(), SyntaxFault> {
        let rest = self.rest();
        let (mut end, mut escaped) = (None, false);
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let Some(end) = end else {
            return self.fault("a string has no end");
        };
        match unescaped(&rest[1..end]) {
            Ok(text) => self.push(Token::Str(text.into())),
            Err(message) => return self.fault(message),
        }
        self.skip(end + 1);
        Ok(())
    }
}

/// The length of ` raw %}` at the start of a text, with the white space that the end of the tag strips.
fn raw_tag(text: &str, name: &str, is_end: bool) -> Option<usize> {
    let start = skip_spaces(text);
    let after = text[start..].strip_prefix(name)?;
    let at = text.len() - after.len() + skip_spaces(after);
    let rest = &text[at..];
    if let Some(after) = rest.strip_prefix("-%}") {
        return Some(at + 3 + skip_spaces(after));
    }
    if rest.starts_with("+%}") && is_end {
        return Some(at + 3);
    }
    let after = rest.strip_prefix("%}")?;
    Some(at + 2 + usize::from(is_end && after.starts_with('\n')))
}

/// The length of a tag's end with the white space that it strips.
fn end_of_tag(rest: &str, is_block: bool) -> Option<usize> {
    let close = if is_block { "%}" } else { "}}" };
    if let Some(after) = rest.strip_prefix('-')
        && let Some(after) = after.strip_prefix(close)
    {
        return Some(3 + skip_spaces(after));
    }
    if is_block && rest.starts_with("+%}") {
        return Some(3);
    }
    let after = rest.strip_prefix(close)?;
    Some(2 + usize::from(is_block && after.starts_with('\n')))
}

/// The length of digits with single underscores between them; 0 if there are none.
fn digits_len(text: &str, is_digit: impl Fn(u8) -> bool) -> usize {
    let bytes = text.as_bytes();
    let mut n = 0;
    while n < bytes.len() {
        if is_digit(bytes[n]) {
            n += 1;
        } else if bytes[n] == b'_' && n > 0 && bytes.get(n + 1).is_some_and(|b| is_digit(*b)) {
            n += 2;
        } else {
            break;
        }
    }
    n
}

fn float_len(text: &str) -> Option<usize> {
    let decimal = |text: &str| digits_len(text, |b| b.is_ascii_digit());
    let whole = decimal(text);
    let fraction = match text[whole..].strip_prefix('.') {
        Some(after) => match decimal(after) {
            0 => 0,
            n => n + 1,
        },
        None => 0,
    };
    let mantissa = whole + fraction;
    let exponent = text[mantissa..].strip_prefix(['e', 'E']).map(|after| {
        let sign = usize::from(after.starts_with(['+', '-']));
        match decimal(&after[sign..]) {
            0 => 0,
            n => 1 + sign + n,
        }
    });
    let exponent = exponent.unwrap_or(0);
    (fraction + exponent > 0).then_some(mantissa + exponent)
}

/// The length and the base of the integer that a text starts with.
fn int_len(text: &str) -> (usize, u32) {
    let prefix = text.get(..2).map(str::to_ascii_lowercase);
    let radix = match prefix.as_deref() {
        Some("0b") => 2,
        Some("0o") => 8,
        Some("0x") => 16,
        _ => 10,
    };
    if radix != 10 {
        // An underscore may follow the prefix.
        let after = &text[2..];
        let skipped = usize::from(after.starts_with('_'));
        let n = digits_len(&after[skipped..], |b| (b as char).is_digit(radix));
        if n > 0 {
            return (2 + skipped + n, radix);
        }
    }
    match text.starts_with('0') {
        true => (digits_len(text, |b| b == b'0'), 10),
        false => (digits_len(text, |b| b.is_ascii_digit()), 10),
    }
}

/// A string's text with its escapes resolved, as Python does it.
fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let Some(c) = rest[at + 1..].chars().next() else {
            return Err("a string ends in a backslash".to_owned());
        };
        rest = &rest[at + 1 + c.len_utf8()..];
        let simple = match c {
            '\n' => continue,
            '\\' | '\'' | '"' => c,
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{C}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{B}',
            '0'..='7' => {
                let is_octal = |b: &u8| (b'0'..=b'7').contains(b);
                let more = rest.bytes().take(2).take_while(is_octal).count();
                let digits = format!("{c}{}", &rest[..more]);
                rest = &rest[more..];
                code(&digits, 8)?
            }
            'x' | 'u' | 'U' => {
                let n = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let digits = rest
                    .get(..n)
                    .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                let digits = digits.ok_or_else(|| format!("the escape \\{c} needs {n} digits"))?;
                rest = &rest[n..];
                code(digits, 16)?
            }
            'N' => return Err("characters by name are not known here".to_owned()),
            other => {
                out.push('\\');
                other
            }
        };
        out.push(simple);
    }
    out.push_str(rest);
    Ok(out)
}

fn code(digits: &str, radix: u32) -> Result<char, String> {
    let number = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    char::from_u32(number).ok_or_else(|| format!("{digits} is the code of no character"))
}
