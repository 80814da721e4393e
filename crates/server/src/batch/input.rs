//! The requests of a batch.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::BatchError;

/// Maximum number of requests of a batch, as in OpenAI's API.
const MAX_LINES: usize = 50_000;

/// Endpoints that a batch may request.
const URLS: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/responses",
];

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchLine {
    /// Its id, which is unique in the batch.
    pub custom_id: String,
    /// The path of the endpoint.
    pub url: String,
    /// The body of the request.
    pub body: Value,
}

/// Reads the requests of a file; blank lines are skipped.
///
/// # Errors
/// The first invalid line.
pub fn read_lines(path: &Path) -> Result<Vec<BatchLine>, BatchError> {
    let text = std::fs::read(path).map_err(|error| BatchError::File {
        file: path.to_owned(),
        error,
    })?;
    parse_lines(&text).map_err(|(line, message)| BatchError::Line {
        file: path.to_owned(),
        line,
        message,
    })
}

/// The requests in a text, or the number of the first invalid line, with a description of the fault.
pub(crate) fn parse_lines(text: &[u8]) -> Result<Vec<BatchLine>, (usize, String)> {
    let mut lines: Vec<BatchLine> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (i, text) in text.split(|byte| *byte == b'\n').enumerate() {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let line = parse_line(text).map_err(|message| (i + 1, message))?;
        if let Some(first) = places.insert(line.custom_id.clone(), i + 1) {
            let message = format!(
                "custom_id \"{}\" is that of line {first} too",
                line.custom_id
            );
            return Err((i + 1, message));
        }
        if lines.len() == MAX_LINES {
            return Err((i + 1, format!("a batch has at most {MAX_LINES} requests")));
        }
        lines.push(line);
    }
    match lines.is_empty() {
        true => Err((1, "there are no requests".to_owned())),
        false => Ok(lines),
    }
}

fn parse_line(text: &[u8]) -> Result<BatchLine, String> {
    let mut value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let custom_id = text("custom_id").filter(|id| !id.is_empty() && id.len() <= 512);
    let custom_id = custom_id.ok_or("custom_id: expected a text of 1 to 512 bytes")?;
    if value.get("method").is_some_and(|method| method != "POST") {
        return Err("method: expected \"POST\"".to_owned());
    }
    let url = text("url").ok_or("url: this field is required")?;
    if !URLS.contains(&url.as_str()) {
        return Err(format!(
            "url: expected one of {}, found \"{url}\"",
            URLS.join(", ")
        ));
    }
    let body = value.get_mut("body").map(Value::take).unwrap_or_default();
    if !body.is_object() {
        return Err("body: expected an object".to_owned());
    }
    if body
        .get("stream")
        .is_some_and(|stream| *stream != Value::Bool(false) && !stream.is_null())
    {
        return Err("body.stream: a batch's answers are whole".to_owned());
    }
    Ok(BatchLine {
        custom_id,
        url,
        body,
    })
}

/// Sorts the requests so that prompts with a common beginning follow each other. The beginning is then computed once.
pub fn by_prefix(lines: Vec<BatchLine>) -> Vec<BatchLine> {
    let mut keyed: Vec<(String, BatchLine)> =
        lines.into_iter().map(|line| (key(&line), line)).collect();
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    keyed.into_iter().map(|(_, line)| line).collect()
}

/// Sort key: the endpoint, the model, and the beginning of the prompt.
fn key(line: &BatchLine) -> String {
    let mut key = line.url.clone();
    for name in [
        "model",
        "tools",
        "system",
        "instructions",
        "messages",
        "prompt",
        "input",
    ] {
        key.push('\0');
        if let Some(value) = line.body.get(name) {
            key += &value.to_string();
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(id: &str, prompt: &str) -> String {
        let body = json!({"model": "m", "prompt": prompt});
        json!({"custom_id": id, "method": "POST", "url": "/v1/completions", "body": body})
            .to_string()
    }

    #[test]
    fn lines_are_openais() {
        let text = format!("{}\n\n{}\r\n", line("a", "x"), line("b", "y"));
        let lines = parse_lines(text.as_bytes()).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[1].custom_id.as_str(), lines[1].url.as_str()),
            ("b", "/v1/completions")
        );
        assert_eq!(lines[1].body["prompt"], "y");
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        let with = |name: &str, value: Value| {
            let mut good: Value = serde_json::from_str(&line("a", "x")).unwrap();
            good[name] = value;
            good.to_string()
        };
        for (second, expected) in [
            ("{".to_owned(), "EOF"),
            ("[]".to_owned(), "custom_id: expected"),
            (with("custom_id", json!("")), "custom_id: expected"),
            (with("method", json!("GET")), "method: expected \"POST\""),
            (with("url", json!("/v1/files")), "url: expected one of"),
            (with("body", json!("x")), "body: expected an object"),
            (with("body", json!({"stream": true})), "body.stream"),
            (
                line("first", "x"),
                "custom_id \"first\" is that of line 1 too",
            ),
        ] {
            let text = format!("{}\n{second}\n", line("first", "x"));
            let (at, message) = parse_lines(text.as_bytes()).unwrap_err();
            assert_eq!(at, 2);
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!(parse_lines(b" \n").unwrap_err().0, 1);
    }

    #[test]
    fn prompts_that_begin_alike_are_neighbours() {
        let text = [
            line("1", "aa x"),
            line("2", "b"),
            line("3", "aa y"),
            line("4", "b c"),
            line("5", "aa x z"),
        ];
        let order = by_prefix(parse_lines(text.join("\n").as_bytes()).unwrap());
        let ids: Vec<&str> = order.iter().map(|line| line.custom_id.as_str()).collect();
        assert_eq!(ids, ["5", "1", "3", "4", "2"]);
    }
}
