//! Arguments as Python writes them, and as in Gemma 4.

use serde_json::Value;

use super::calls::GEMMA_QUOTE;
use super::fit::loosely;
use super::json::CallFit;

/// Maximum nesting of lists and objects.
const MAX_DEPTH: usize = 64;

/// Reason why there is no value.
enum Stop {
    /// More of the text may come.
    Partial,
    Not,
}

type PythonResult<T> = Result<T, Stop>;

/// Names with values, in order of appearance.
type Members = Vec<(String, Value)>;

/// Reads `a=1, b="x"`, followed by `after`.
pub(super) fn arguments(text: &str, after: &str) -> CallFit<Value> {
    read(text, after, false)
}

/// Reads `a:1,b:<|"|>x<|"|>`, followed by `after`.
pub(super) fn gemma_arguments(text: &str, after: &str) -> CallFit<Value> {
    read(text, after, true)
}

/// The value of a whole text, as Python prints it.
pub(super) fn literal(text: &str) -> Option<Value> {
    // A word needs a following character to end.
    let text = format!("{text} ");
    let mut reader = ValueReader {
        text: &text,
        at: 0,
        is_gemma: false,
    };
    let value = reader.value(0).ok()?;
    reader.rest().is_empty().then_some(value)
}

/// The complete arguments of a possibly incomplete call, in their order.
pub(super) fn complete(text: &str, after: &str, is_gemma: bool) -> Members {
    let mut arguments = Members::new();
    members(text, after, is_gemma, &mut arguments);
    arguments
}

fn read(text: &str, after: &str, is_gemma: bool) -> CallFit<Value> {
    let mut arguments = Members::new();
    members(text, after, is_gemma, &mut arguments).then(|(), at| {
        loosely(&text[at..], after).then(|(), n_bytes| {
            CallFit::Full(Value::Object(arguments.into_iter().collect()), at + n_bytes)
        })
    })
}

/// Reads arguments up to `after`.
fn members(text: &str, after: &str, is_gemma: bool, arguments: &mut Members) -> CallFit<()> {
    let mut reader = ValueReader {
        text,
        at: 0,
        is_gemma,
    };
    let end = after.trim_start().chars().next().unwrap_or(')');
    let delimiter = if is_gemma { ':' } else { '=' };
    match reader.members(delimiter, end, 0, arguments) {
        Ok(()) => CallFit::Full((), reader.at),
        Err(Stop::Partial) => CallFit::Partial,
        Err(Stop::Not) => CallFit::Not,
    }
}

struct ValueReader<'t> {
    text: &'t str,
    at: usize,
    is_gemma: bool,
}

impl<'t> ValueReader<'t> {
    fn rest(&mut self) -> &'t str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn next(&mut self) -> PythonResult<char> {
        self.rest().chars().next().ok_or(Stop::Partial)
    }

    /// Consumes the wanted character.
    fn pass(&mut self, wanted: char) -> PythonResult<()> {
        if self.next()? != wanted {
            return Err(Stop::Not);
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    /// Reads names with values up to `end`, which is not consumed. `members` gets the complete ones, even if the rest
    /// fails.
    fn members(
        &mut self,
        delimiter: char,
        end: char,
        depth: usize,
        members: &mut Members,
    ) -> PythonResult<()> {
        if self.next()? == end {
            return Ok(());
        }
        loop {
            let key = self.key(delimiter)?;
            self.pass(delimiter)?;
            let value = self.value(depth)?;
            members.push((key, value));
            match self.next()? {
                ',' => self.at += 1,
                c if c == end => return Ok(()),
                _ => return Err(Stop::Not),
            }
            // A trailing comma is allowed.
            if self.next()? == end {
                return Ok(());
            }
        }
    }

    fn key(&mut self, delimiter: char) -> PythonResult<String> {
        let rest = self.rest();
        if rest.starts_with(['"', '\'']) || self.is_gemma && rest.starts_with(GEMMA_QUOTE) {
            return self.quoted();
        }
        let is_end = |c: char| c == delimiter || ",(){}[]\"'\n".contains(c);
        match rest.find(is_end) {
            None => Err(Stop::Partial),
            Some(n_bytes) if n_bytes > 0 && rest[n_bytes..].starts_with(delimiter) => {
                self.at += n_bytes;
                Ok(rest[..n_bytes].trim_end().to_owned())
            }
            Some(_) => Err(Stop::Not),
        }
    }

    fn value(&mut self, depth: usize) -> PythonResult<Value> {
        if depth > MAX_DEPTH {
            return Err(Stop::Not);
        }
        let rest = self.rest();
        match self.next()? {
            '[' => {
                self.at += 1;
                self.list(depth + 1)
            }
            '{' => {
                self.at += 1;
                let mut members = Members::new();
                self.members(':', '}', depth + 1, &mut members)?;
                self.pass('}')?;
                Ok(Value::Object(members.into_iter().collect()))
            }
            '"' | '\'' => Ok(self.quoted()?.into()),
            '<' if self.is_gemma => match rest.starts_with(GEMMA_QUOTE) {
                true => Ok(self.quoted()?.into()),
                false if GEMMA_QUOTE.starts_with(rest) => Err(Stop::Partial),
                false => Err(Stop::Not),
            },
            _ => self.word(),
        }
    }

    fn list(&mut self, depth: usize) -> PythonResult<Value> {
        let mut items = Vec::new();
        loop {
            if self.next()? == ']' {
                self.at += 1;
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth)?);
            match self.next()? {
                ',' => self.at += 1,
                ']' => {}
                _ => return Err(Stop::Not),
            }
        }
    }

    /// Reads a number, or a word for true, false or null.
    fn word(&mut self) -> PythonResult<Value> {
        let rest = self.rest();
        let n_bytes = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)));
        let word = &rest[..n_bytes.ok_or(Stop::Partial)?];
        let value = match word {
            "True" | "true" => true.into(),
            "False" | "false" => false.into(),
            "None" | "null" => Value::Null,
            number => serde_json::from_str::<serde_json::Number>(number)
                .map_err(|_| Stop::Not)?
                .into(),
        };
        self.at += word.len();
        Ok(value)
    }

    fn quoted(&mut self) -> PythonResult<String> {
        let rest = self.rest();
        if self.is_gemma && rest.starts_with(GEMMA_QUOTE) {
            let inner = &rest[GEMMA_QUOTE.len()..];
            let n_bytes = inner.find(GEMMA_QUOTE).ok_or(Stop::Partial)?;
            self.at += n_bytes + 2 * GEMMA_QUOTE.len();
            return Ok(inner[..n_bytes].to_owned());
        }
        let mut chars = rest.char_indices();
        let quote = chars.next().map_or('"', |(_, quote)| quote);
        let mut out = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => match rest[at + 1..].trim_start().chars().next() {
                    None => return Err(Stop::Partial),
                    Some(next) if ",:)]}".contains(next) => {
                        self.at += at + 1;
                        return Ok(out);
                    }
                    // Templates put strings between quotes unescaped, possibly with an apostrophe.
                    Some(_) => out.push(c),
                },
                '\\' => {
                    let (_, c) = chars.next().ok_or(Stop::Partial)?;
                    match c {
                        'u' => out.push_str(&escaped(&mut chars)?),
                        'x' => out.push(digits(&mut chars, 2)?),
                        'U' => out.push(digits(&mut chars, 8)?),
                        c => out.extend(unescaped(c)),
                    }
                }
                c => out.push(c),
            }
        }
        Err(Stop::Partial)
    }
}

/// The meaning of a character after a backslash; if it has none, the backslash stays.
fn unescaped(c: char) -> impl Iterator<Item = char> {
    let (first, second) = match c {
        'n' => ('\n', None),
        't' => ('\t', None),
        'r' => ('\r', None),
        'b' => ('\u{8}', None),
        'f' => ('\u{c}', None),
        '\\' | '"' | '\'' | '/' => (c, None),
        other => ('\\', Some(other)),
    };
    [first].into_iter().chain(second)
}

/// Reads the character of four hexadecimal digits, or of twice four for a surrogate pair.
fn escaped(chars: &mut std::str::CharIndices<'_>) -> PythonResult<String> {
    let first = unit(chars)?;
    if !(0xD800..0xDC00).contains(&first) {
        return Ok(String::from_utf16_lossy(&[first]));
    }
    for wanted in ['\\', 'u'] {
        let (_, c) = chars.next().ok_or(Stop::Partial)?;
        if c != wanted {
            return Err(Stop::Not);
        }
    }
    let units = [first, unit(chars)?];
    Ok(String::from_utf16_lossy(&units))
}

/// Reads the character of `n` hexadecimal digits.
fn digits(chars: &mut std::str::CharIndices<'_>, n: usize) -> PythonResult<char> {
    let mut code = 0_u32;
    for _ in 0..n {
        let (_, c) = chars.next().ok_or(Stop::Partial)?;
        let digit = c.to_digit(16).ok_or(Stop::Not)?;
        code = code.checked_mul(16).ok_or(Stop::Not)? | digit;
    }
    char::from_u32(code).ok_or(Stop::Not)
}

fn unit(chars: &mut std::str::CharIndices<'_>) -> PythonResult<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        let (_, c) = chars.next().ok_or(Stop::Partial)?;
        unit = unit << 4 | c.to_digit(16).ok_or(Stop::Not)? as u16;
    }
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_pythons_or_jsons() {
        let text =
            r#"a=1, b='it\'s', c=[True, None, 2.5], d={"k": "é\u0041\ud83e\udd99", 'l': false},)"#;
        let value =
            json!({"a": 1, "b": "it's", "c": [true, null, 2.5], "d": {"k": "éA🦙", "l": false}});
        assert_eq!(arguments(text, ")"), CallFit::Full(value, text.len()));
        for end in 0..text.len() {
            if text.is_char_boundary(end) {
                assert_eq!(arguments(&text[..end], ")"), CallFit::Partial, "{end}");
            }
        }
        assert_eq!(arguments(")", ")"), CallFit::Full(json!({}), 1));
        // Unescaped strings between quotes, and strings as Python prints them.
        let text = r"a='it's', b='\x41\U0001f999', c=['don't', 'x'])";
        let value = json!({"a": "it's", "b": "A🦙", "c": ["don't", "x"]});
        assert_eq!(arguments(text, ")"), CallFit::Full(value, text.len()));
        for text in [
            "a)",
            "a=b)",
            "a=1 b=2)",
            "=1)",
            "a=1}",
            "a=\"\\uZZZZ\")",
            "a='\\xZZ')",
        ] {
            assert_eq!(arguments(text, ")"), CallFit::Not, "{text}");
        }
        assert_eq!(literal("None"), Some(Value::Null));
        assert_eq!(literal("{'a': [1, True]}"), Some(json!({"a": [1, true]})));
        assert_eq!(literal("'a'"), None);
        for text in ["", "a", "[1", "1 2", "'a"] {
            assert_eq!(literal(text), None, "{text}");
        }
        let deep = format!("a={}", "[".repeat(100));
        assert_eq!(arguments(&deep, ")"), CallFit::Not);
    }

    #[test]
    fn gemma_quotes_texts_its_own_way() {
        let text =
            "city:<|\"|>Rome, {\"x\"}<|\"|>,n:3,deep:{a:[1,true,<|\"|>x<|\"|>]}}<tool_call|>";
        let value = json!({"city": "Rome, {\"x\"}", "n": 3, "deep": {"a": [1, true, "x"]}});
        assert_eq!(
            gemma_arguments(text, "}<tool_call|>"),
            CallFit::Full(value, text.len())
        );
        for end in 0..text.len() {
            assert_eq!(
                gemma_arguments(&text[..end], "}<tool_call|>"),
                CallFit::Partial,
                "{end}"
            );
        }
        assert_eq!(
            gemma_arguments("}<tool_call|>", "}<tool_call|>"),
            CallFit::Full(json!({}), 13)
        );
    }
}
