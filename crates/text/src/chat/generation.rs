//! The tags `{% generation %}` and `{% endgeneration %}`.
//!
//! They mark what the assistant says, for training, and print nothing. The engine does not know
//! them; a `with` block without variables does the same to everything inside.

/// The source with every such tag made a `with` tag.
pub(super) fn without_tags(source: &str) -> String {
    if !source.contains("generation") {
        return source.to_owned();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (text, tag) = rest.split_at(at);
        out.push_str(text);
        let len = tag_len(tag);
        let (tag, tail) = tag.split_at(len);
        match statement(tag) {
            Some((before, "generation", after)) => out.extend([before, "with", after]),
            Some((before, "endgeneration", after)) => out.extend([before, "endwith", after]),
            Some((_, "raw", _)) => {
                // Nothing inside is a tag.
                let end = end_of_raw(tail);
                out.extend([tag, &tail[..end]]);
                rest = &tail[end..];
                continue;
            }
            _ => out.push_str(tag),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

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

/// A statement's tag as what stands before its name, the name, and what stands after.
fn statement(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let start = tag.len() - inner.len();
    let n = inner
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(inner.len());
    Some((&tag[..start], &inner[..n], &inner[n..]))
}

/// Where the tag starts that ends a raw block.
fn end_of_raw(text: &str) -> usize {
    let mut at = 0;
    while let Some(found) = text[at..].find("{%") {
        at += found;
        let tag = &text[at..at + tag_len(&text[at..])];
        if matches!(statement(tag), Some((_, "endraw", _))) {
            return at;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_with_blocks() {
        for (source, want) in [
            (
                "{% generation %}a{% endgeneration %}",
                "{% with %}a{% endwith %}",
            ),
            (
                "{%- generation -%}a{%-endgeneration-%}",
                "{%- with -%}a{%-endwith-%}",
            ),
            (
                "{# {% generation %} #}{{ '{% generation %}' }}",
                "{# {% generation %} #}{{ '{% generation %}' }}",
            ),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{% endraw %}{% with %}",
            ),
            (
                "{% if add_generation_prompt %}{",
                "{% if add_generation_prompt %}{",
            ),
            (
                "{ {{ \"\\\"}}\" }} generation",
                "{ {{ \"\\\"}}\" }} generation",
            ),
        ] {
            assert_eq!(without_tags(source), want);
        }
    }

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

    #[test]
    fn unfinished_sources_are_left_alone() {
        for source in [
            "generation {%",
            "{{ generation",
            "{# generation",
            "{% raw %} generation",
            "{",
        ] {
            assert_eq!(without_tags(source), source);
        }
    }
}
