//! References between the names of a Lark grammar, found without compiling it.
//!
//! Comments, texts, regular expressions and JSON are skipped as in llguidance's own parser.

use std::collections::HashMap;

use serde_json::Value;

/// The references in a grammar, for computing its depth.
#[derive(Default)]
pub(super) struct References {
    /// For each rule or terminal, in the order of first mention: the names that it refers to.
    pub(super) edges: Vec<Vec<usize>>,
    /// The schemas in it.
    pub(super) schemas: Vec<Value>,
}

/// Scans a grammar. Invalid Lark is skipped: the compiler reports it.
pub(super) fn scan(source: &str) -> References {
    let mut scanned = References::default();
    let mut index_of: HashMap<&str, usize> = HashMap::new();
    let mut defined = None;
    let mut at = 0;
    let mut is_line_start = true;
    while at < source.len() {
        let rest = &source[at..];
        let n_bytes = token_bytes(rest);
        let token = &rest[..n_bytes];
        at += n_bytes;
        if let Some(name) = name_of(token) {
            let n = scanned.edges.len();
            let index = *index_of.entry(name).or_insert(n);
            if index == n {
                scanned.edges.push(Vec::new());
            }
            if is_line_start && is_definition(&source[at..]) {
                defined = Some(index);
            } else if let Some(defined) = defined {
                scanned.edges[defined].push(index);
            }
        } else if token == "%json" {
            let mut values = serde_json::Deserializer::from_str(&source[at..]).into_iter();
            if let Some(Ok(schema)) = values.next() {
                scanned.schemas.push(schema);
                at += values.byte_offset();
            }
        } else if ["%llguidance", "%regex"].contains(&token) {
            let mut values = serde_json::Deserializer::from_str(&source[at..])
                .into_iter::<serde::de::IgnoredAny>();
            if let Some(Ok(_)) = values.next() {
                at += values.byte_offset();
            }
        }
        is_line_start = match token {
            "\n" | "{" | "%override" => true,
            " " | "\t" | "\r" => is_line_start,
            _ => false,
        };
    }
    scanned
}

/// Length in bytes of the first token of a non-empty text.
fn token_bytes(text: &str) -> usize {
    let mut chars = text.chars();
    let first = chars.next().map_or(0, char::len_utf8);
    let until =
        |end: &dyn Fn(char) -> bool| text[first..].find(end).map_or(text.len(), |n| first + n);
    match text.as_bytes()[0] {
        b'#' => until(&|c| c == '\n'),
        b'/' if text.starts_with("//") => until(&|c| c == '\n'),
        b'/' => closed(text, '/').unwrap_or(first),
        b'"' => closed(text, '"').unwrap_or(first),
        b'%' | b'@' => until(&|c| !is_of_name(c)),
        b'<' => text.find('>').map_or(first, |n| n + 1),
        b'!' | b'?' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => until(&|c| !is_of_name(c)),
        _ => first,
    }
}

/// Length in bytes of a text in quotes or slashes.
fn closed(text: &str, end: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == end {
            return Some(at + 1);
        } else if c == '\n' && end == '"' {
            return None;
        }
    }
    None
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-".contains(c)
}

/// The rule or terminal that a token names; `!` and `?` before it affect only the output tree.
fn name_of(token: &str) -> Option<&str> {
    let name = token.trim_start_matches(['!', '?']);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_name.then_some(name)
}

/// Whether this text after a name makes the line its definition: attributes, priority and parameter may precede the
/// colon.
fn is_definition(mut rest: &str) -> bool {
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let n_bytes = match rest.as_bytes().first() {
            Some(b':') if rest.starts_with("::") => 2,
            Some(b':') => return true,
            Some(b'[') => match rest.find([']', '\n']) {
                Some(end) if rest[end..].starts_with(']') => end + 1,
                _ => return false,
            },
            Some(b'{') => match rest.find(['}', '\n']) {
                Some(end) if rest[end..].starts_with('}') => end + 1,
                _ => return false,
            },
            Some(b'.' | b'_' | b'-' | b'0'..=b'9' | b'a'..=b'z') => 1,
            _ => return false,
        };
        rest = &rest[n_bytes..];
    }
}
