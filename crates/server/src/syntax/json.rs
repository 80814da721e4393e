//! Where a JSON value ends, in text that may go on or be cut.

use serde_json::Value;

/// What a text is, so far as it is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallFit<T> {
    /// More of it may come.
    Partial,
    /// This, and so many bytes of the text.
    Full(T, usize),
    /// Not what was looked for.
    Not,
}

impl<T> CallFit<T> {
    /// Whatever comes of the next step where this one is complete.
    pub(super) fn then<U>(self, next: impl FnOnce(T, usize) -> CallFit<U>) -> CallFit<U> {
        match self {
            CallFit::Partial => CallFit::Partial,
            CallFit::Not => CallFit::Not,
            CallFit::Full(value, n_bytes) => next(value, n_bytes),
        }
    }
}

/// The object, list or text that a text begins with.
pub(super) fn value(text: &str) -> CallFit<Value> {
    match text.chars().next() {
        None => CallFit::Partial,
        Some('{' | '[' | '"') => closed(text),
        Some(_) => CallFit::Not,
    }
}

/// The object that a text begins with.
pub(super) fn object(text: &str) -> CallFit<Value> {
    if text.is_empty() {
        return CallFit::Partial;
    }
    match text.starts_with('{') {
        true => closed(text),
        false => CallFit::Not,
    }
}

/// A value that ends with a brace, a bracket or a quote.
fn closed(text: &str) -> CallFit<Value> {
    match end_of(text) {
        Some(n_bytes) => parsed(text, n_bytes),
        None => CallFit::Partial,
    }
}

/// Bytes up to where the braces, brackets or quotes that a text begins with are closed, whatever stands between them.
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
