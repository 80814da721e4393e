//! Escapes of HTML.

/// A text with the special characters of HTML escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

/// The characters of the usual names.
const ENTITIES: [(&str, &str); 22] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", "\u{a0}"),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("hellip", "…"),
    ("mdash", "—"),
    ("ndash", "–"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("middot", "·"),
    ("times", "×"),
    ("deg", "°"),
    ("euro", "€"),
];

/// A text with escapes resolved.
pub(crate) fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let resolved = entity(&rest[1..]);
        match resolved {
            Some((value, n)) => {
                out.push_str(&value);
                rest = &rest[1 + n..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The entity behind an ampersand: its text and its length.
fn entity(text: &str) -> Option<(String, usize)> {
    if let Some(number) = text.strip_prefix('#') {
        let (digits, radix) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16),
            None => (number, 10),
        };
        let n = digits
            .find(|c: char| !c.is_digit(radix))
            .unwrap_or(digits.len());
        let code = u32::from_str_radix(digits.get(..n)?, radix).ok()?;
        let c = char::from_u32(code)
            .filter(|c| *c != '\0')
            .unwrap_or('\u{fffd}');
        let before = text.len() - digits.len();
        let end = usize::from(digits[n..].starts_with(';'));
        return Some((c.to_string(), before + n + end));
    }
    let n = text.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (_, value) = ENTITIES.iter().find(|(name, _)| *name == &text[..n])?;
    text[n..]
        .starts_with(';')
        .then(|| ((*value).to_owned(), n + 1))
}

/// A text without comments and tags, its escapes resolved, and its spaces single.
pub(crate) fn stripped_of_tags(text: &str) -> String {
    let without = |text: &str, open: &str, close: &str| {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(open) {
            let Some(n) = rest[start..].find(close) else {
                break;
            };
            out.push_str(&rest[..start]);
            rest = &rest[start + n + close.len()..];
        }
        out + rest
    };
    let text = without(&without(text, "<!--", "-->"), "<", ">");
    let words = text
        .split(super::chars::is_space)
        .filter(|word| !word.is_empty());
    unescaped(&words.collect::<Vec<_>>().join(" "))
}
