//! Where a JSON value ends, in text that may go on or be cut.

use serde_json::Value;

/// What a text is, so far as it is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fit<T> {
    /// More of it may come.
    Partial,
    /// This, and so many bytes of the text.
    Full(T, usize),
    /// Not what was looked for.
    Not,
}

impl<T> Fit<T> {
    /// Whatever comes of the next step where this one is complete.
    pub(super) fn then<U>(self, next: impl FnOnce(T, usize) -> Fit<U>) -> Fit<U> {
        match self {
            Fit::Partial => Fit::Partial,
            Fit::Not => Fit::Not,
            Fit::Full(value, n_bytes) => next(value, n_bytes),
        }
    }
}

/// The object that a text begins with.
pub(super) fn object(text: &str) -> Fit<Value> {
    if text.is_empty() {
        return Fit::Partial;
    }
    if !text.starts_with('{') {
        return Fit::Not;
    }
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return match serde_json::from_str(&text[..=at]) {
                        Ok(value) => Fit::Full(value, at + 1),
                        Err(_) => Fit::Not,
                    };
                }
            }
            _ => {}
        }
    }
    Fit::Partial
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_end_where_their_braces_do() {
        for (text, fit) in [
            ("{\"a\": \"}\\\"{\"} x", Fit::Full(json!({"a": "}\"{"}), 13)),
            ("{}", Fit::Full(json!({}), 2)),
            ("{\"a\": [1, {", Fit::Partial),
            ("{\"a\": \"", Fit::Partial),
            ("", Fit::Partial),
            ("[1]", Fit::Not),
            ("{a}", Fit::Not),
            ("{]", Fit::Not),
        ] {
            assert_eq!(object(text), fit, "{text}");
        }
    }
}
