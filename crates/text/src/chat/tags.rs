//! The sizes of the tags of a source, before it is read.

/// The most characters that a tag or expression has outside of quotes, blanks left out.
pub(super) fn longest_tag(source: &str) -> usize {
    let (mut longest, mut rest) = (0, source);
    while let Some(at) = rest.find('{') {
        let tag = &rest[at..];
        let (tag, tail) = tag.split_at(tag_len(tag));
        if !tag.starts_with("{#") {
            longest = longest.max(n_outside_of_quotes(tag));
        }
        rest = tail;
    }
    longest
}

fn n_outside_of_quotes(tag: &str) -> usize {
    let (mut n, mut quote, mut escaped) = (0, None, false);
    for c in tag.chars() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if c.is_whitespace() => {}
            None => n += 1,
        }
    }
    n
}

/// Length of the tag, expression or comment that a text starts with; 1 for a lone brace.
fn tag_len(text: &str) -> usize {
    let close = match text.as_bytes().get(1) {
        Some(b'#') => return text.find("#}").map_or(text.len(), |at| at + 2),
        Some(b'%') => b"%}",
        Some(b'{') => b"}}",
        _ => return 1,
    };
    let bytes = text.as_bytes();
    let (mut at, mut quote) = (2, None);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (None, _) if bytes[at..].starts_with(close) => return at + close.len(),
            (None, b'"' | b'\'') => quote = Some(bytes[at]),
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_tag_is_counted_without_texts_and_blanks() {
        for (source, n) in [
            ("text", 0),
            ("{{ a }}{% if b %}", 7),
            ("{{ 'long }} \\' text' }}", 4),
            ("{# a long comment #}", 0),
            ("{{ --------", 10),
        ] {
            assert_eq!(longest_tag(source), n, "{source}");
        }
    }
}
