//! Texts of a syntax as Lark: control tokens by their ids, variable parts as expressions.

use std::fmt::Write;

use millrace_text::{EncodeOptions, Tokenizer};

/// Placeholders for variable parts in the texts of a syntax: the name, and the expression that it matches.
pub(crate) const BLANKS: [(&str, &str); 3] = [
    ("⟨n⟩", "/[0-9]{1,4}/"),
    ("⟨id⟩", "/[a-zA-Z0-9]{9}/"),
    ("⟨w⟩", "/[a-z]{1,12}/"),
];

/// The control tokens among the texts of a syntax. In a grammar they are tokens, since no text of a model may contain
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Longest first.
    tokens: Vec<(String, u32)>,
}

impl Marks {
    /// The control tokens of a vocabulary.
    pub(crate) fn of<'t>(texts: impl IntoIterator<Item = &'t str>, tokenizer: &Tokenizer) -> Marks {
        let options = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        let ids = texts
            .into_iter()
            .flat_map(|text| tokenizer.encode(text, options));
        let control = ids.filter(|id| tokenizer.is_special(*id));
        let mut tokens: Vec<(String, u32)> = control
            .map(|id| (tokenizer.token_text(id).to_owned(), id))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        tokens.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        tokens.dedup();
        Marks { tokens }
    }

    /// Their texts, the longest first.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|(text, _)| text.as_str())
    }

    /// Their ids, in ascending order.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.tokens.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The rule of a text: quoted texts, tokens and expressions in sequence.
    pub(crate) fn rule(&self, text: &str) -> String {
        let mut rule = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (n_bytes, part) = self.first(rest);
            rule += &part;
            rule.push(' ');
            rest = &rest[n_bytes..];
        }
        if rule.is_empty() {
            rule.push_str("\"\" ");
        }
        rule
    }

    /// The first part of a text, as its length in bytes and its rule.
    fn first(&self, text: &str) -> (usize, String) {
        if let Some((mark, id)) = self.at(text) {
            return (mark.len(), format!("mark_{id}"));
        }
        if let Some((blank, expression)) = BLANKS.iter().find(|(blank, _)| text.starts_with(blank))
        {
            return (blank.len(), (*expression).to_owned());
        }
        let is_next = |at: &usize| {
            let rest = &text[*at..];
            self.at(rest).is_some() || BLANKS.iter().any(|(blank, _)| rest.starts_with(blank))
        };
        let places = text.char_indices().map(|(at, _)| at).skip(1);
        let end = places.into_iter().find(is_next).unwrap_or(text.len());
        (end, quoted(&text[..end]))
    }

    fn at(&self, text: &str) -> Option<&(String, u32)> {
        self.tokens
            .iter()
            .find(|(mark, _)| text.starts_with(mark.as_str()))
    }

    /// Splits a text before its first control token.
    pub(crate) fn parted<'t>(&self, text: &'t str) -> (&'t str, &'t str) {
        let places = text.char_indices().map(|(at, _)| at);
        let token = places
            .into_iter()
            .find(|at| self.at(&text[*at..]).is_some());
        text.split_at(token.unwrap_or(text.len()))
    }

    /// Whether a text begins with a control token.
    pub(crate) fn is_token(&self, text: &str) -> bool {
        self.at(text).is_some()
    }

    /// The definitions of the tokens' rules.
    pub(crate) fn definitions(&self) -> String {
        let mut out = String::new();
        for (_, id) in &self.tokens {
            let _ = writeln!(out, "mark_{id}: <[{id}]>");
        }
        out
    }
}

/// A text as a Lark string, which has the form of a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A regular expression for a text, without its slashes.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            // A backslash before other characters may have a meaning.
            c if "\\.+*?()|[]{}^$/".contains(c) => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_parted_into_tokens_and_the_rest() {
        let marks = Marks {
            tokens: vec![("<|call|>".to_owned(), 7), ("<|c".to_owned(), 5)],
        };
        assert_eq!(
            marks.rule("a\"<|call|>:⟨n⟩<|c"),
            "\"a\\\"\" mark_7 \":\" /[0-9]{1,4}/ mark_5 "
        );
        assert_eq!(marks.rule(""), "\"\" ");
        assert_eq!(marks.ids(), [5, 7]);
        assert_eq!(marks.definitions(), "mark_7: <[7]>\nmark_5: <[5]>\n");
        assert_eq!(escaped("</a>\n[x]"), "<\\/a>\\n\\[x\\]");
    }
}
