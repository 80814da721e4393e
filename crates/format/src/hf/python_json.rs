//! JSON as Python's `json` writes it: with `NaN`, `Infinity` and `-Infinity` among the numbers.

use std::borrow::Cow;

use serde_json::Value;

/// Words that Python writes for numbers that JSON cannot express.
const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Parses a file. A number that JSON cannot write becomes a string of its name. A reader that needs a
/// number there finds none, and can name the word in its place.
///
/// # Errors
/// The parser's error for the unchanged file.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => match quoted(bytes) {
            Cow::Owned(quoted) => serde_json::from_slice(&quoted).map_err(|_| error),
            Cow::Borrowed(_) => Err(error),
        },
    }
}

/// The text with quotes around those words outside of strings.
fn quoted(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let (mut done, mut at, mut in_string) = (0, 0, false);
    while at < bytes.len() {
        match bytes[at] {
            // An escape includes the next byte.
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            _ if !in_string => {
                let word = WORDS
                    .iter()
                    .find(|word| bytes[at..].starts_with(word.as_bytes()));
                if let Some(word) = word {
                    out.extend_from_slice(&bytes[done..at]);
                    out.push(b'"');
                    out.extend_from_slice(word.as_bytes());
                    out.push(b'"');
                    at += word.len();
                    done = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if out.is_empty() {
        return Cow::Borrowed(bytes);
    }
    out.extend_from_slice(&bytes[done..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_json_cannot_write() {
        for (text, want) in [
            (
                r#"{"a": NaN, "b": [Infinity,-Infinity], "c": 1}"#,
                json!({"a": "NaN", "b": ["Infinity", "-Infinity"], "c": 1}),
            ),
            // Within strings they are text, behind escapes too.
            (
                r#"{"NaN": "Infinity \" NaN \\", "x": NaN}"#,
                json!({"NaN": "Infinity \" NaN \\", "x": "NaN"}),
            ),
            (r#"{"NaN": 1}"#, json!({"NaN": 1})),
            ("NaN", json!("NaN")),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_json_stays_an_error_of_the_file_as_it_stands() {
        for text in [
            "",
            "{",
            r#"{"a": NaNN}"#,
            r#"{"a": nan}"#,
            r#"{"a": +Infinity}"#,
            "\"NaN",
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            let plain = serde_json::from_str::<Value>(text).unwrap_err();
            assert_eq!(error.to_string(), plain.to_string(), "{text}");
        }
        assert!(parse(b"{\"a\": \"\\").is_err());
        assert!(parse(&[b'N', 0xFF]).is_err());
    }
}
