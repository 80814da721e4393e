//! Finds the end of a JSON value, in text that may continue or be incomplete.

use serde_json::Value;

/// Result of matching a possibly incomplete text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallFit<T> {
    /// It may match with more text.
    Partial,
    /// A match, with its length in bytes.
    Full(T, usize),
    /// No match.
    Not,
}

impl<T> CallFit<T> {
    /// Matches the next step if this one is complete.
    pub(super) fn then<U>(self, next: impl FnOnce(T, usize) -> CallFit<U>) -> CallFit<U> {
        match self {
            CallFit::Partial => CallFit::Partial,
            CallFit::Not => CallFit::Not,
            CallFit::Full(value, n_bytes) => next(value, n_bytes),
        }
    }
}

/// Reads the object, list or string at the beginning of a text.
pub(super) fn value(text: &str) -> CallFit<Value> {
    match text.chars().next() {
        None => CallFit::Partial,
        Some('{' | '[' | '"') => closed(text),
        Some(_) => CallFit::Not,
    }
}

/// Reads the object at the beginning of a text.
pub(super) fn object(text: &str) -> CallFit<Value> {
    if text.is_empty() {
        return CallFit::Partial;
    }
    match text.starts_with('{') {
        true => closed(text),
        false => CallFit::Not,
    }
}

/// Reads a value that ends with a brace, a bracket or a quote.
fn closed(text: &str) -> CallFit<Value> {
    match end_of(text) {
        Some(n_bytes) => parsed(text, n_bytes),
        None => CallFit::Partial,
    }
}

/// Number of bytes until the opening brace, bracket or quote of a text is closed, whatever is between them.
pub(super) fn end_of(text: &str) -> Option<usize> {
    let is_quoted = text.starts_with('"');
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' if is_quoted && is_text => return Some(at + 1),
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn parsed(text: &str, n_bytes: usize) -> CallFit<Value> {
    match serde_json::from_str(&text[..n_bytes]) {
        Ok(value) => CallFit::Full(value, n_bytes),
        Err(_) => CallFit::Not,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_end_where_their_braces_do() {
        for (text, fit) in [
            (
                "{\"a\": \"}\\\"{\"} x",
                CallFit::Full(json!({"a": "}\"{"}), 13),
            ),
            ("{}", CallFit::Full(json!({}), 2)),
            ("{\"a\": [1, {", CallFit::Partial),
            ("{\"a\": \"", CallFit::Partial),
            ("", CallFit::Partial),
            ("[1]", CallFit::Not),
            ("{a}", CallFit::Not),
            ("{]", CallFit::Not),
        ] {
            assert_eq!(object(text), fit, "{text}");
        }
    }
}
