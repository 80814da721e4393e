//! Normalizers: what is done to a text before it is cut into pieces.

use crate::Error;
use crate::pretokenize::Pattern;
use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfd_quick};
use unicode_normalization::{is_nfkc_quick, is_nfkd_quick};

/// A Unicode normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormalForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// One step of a normalizer.
#[derive(Debug)]
pub(crate) enum NormalizeRule {
    /// Brings the text into a normal form.
    Form(NormalForm),
    /// Replaces every match.
    Replace {
        /// What is looked for.
        pattern: Pattern,
        /// What takes its place, literally.
        content: String,
    },
    /// Puts a string in front of a text that is not empty.
    Prepend(String),
    /// Lower case.
    Lowercase,
    /// Drops white space at the ends.
    Strip {
        /// At the start.
        left: bool,
        /// At the end.
        right: bool,
    },
}

/// A list of rules.
#[derive(Debug, Default)]
pub(crate) struct Normalizer {
    pub(crate) rules: Vec<NormalizeRule>,
}

/// A normalizer may make a text this many times longer. Real ones write three bytes for a space.
const MAX_GROWTH: usize = 256;

/// Bytes that may be put in front of a text.
const MAX_PREFIX_BYTES: usize = 64;

impl Normalizer {
    /// A normalizer of some rules.
    ///
    /// # Errors
    /// Rules that could make a short text huge: replacements of replacements grow it exponentially.
    pub(crate) fn new(rules: Vec<NormalizeRule>) -> Result<Normalizer, Error> {
        let mut growth = 1usize;
        let mut prefix_bytes = 0usize;
        for rule in &rules {
            match rule {
                NormalizeRule::Replace { pattern, content } => {
                    growth =
                        growth.saturating_mul(content.len().div_ceil(pattern.min_bytes()).max(1));
                }
                NormalizeRule::Prepend(prefix) => {
                    prefix_bytes = prefix_bytes.saturating_add(prefix.len())
                }
                NormalizeRule::Form(_) | NormalizeRule::Lowercase | NormalizeRule::Strip { .. } => {
                }
            }
        }
        if growth > MAX_GROWTH || prefix_bytes > MAX_PREFIX_BYTES {
            return Err(Error::UnsupportedSetting {
                part: "normalizer",
                found: format!("growth by {growth} times and {prefix_bytes} bytes in front"),
                hint: "supported: 256 times, 64 bytes",
            });
        }
        Ok(Normalizer { rules })
    }

    /// The normalizer that SentencePiece vocabularies of GGUF files imply.
    pub(crate) fn sentencepiece(space_prefix: bool) -> Normalizer {
        let mark = crate::pretokenize::SPACE_MARK.to_string();
        let prepend = space_prefix.then(|| NormalizeRule::Prepend(mark.clone()));
        let replace = NormalizeRule::Replace {
            pattern: Pattern::Literal(" ".to_owned()),
            content: mark,
        };
        Normalizer {
            rules: prepend.into_iter().chain([replace]).collect(),
        }
    }

    /// The text as the rules leave it.
    pub(crate) fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.rules
            .iter()
            .fold(Cow::Borrowed(text), |text, rule| match text {
                Cow::Borrowed(text) => rule.apply(text),
                Cow::Owned(text) => Cow::Owned(rule.apply(&text).into_owned()),
            })
    }
}

impl NormalizeRule {
    fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            NormalizeRule::Form(form) => form.apply(text),
            NormalizeRule::Replace { pattern, content } => replace(text, pattern, content),
            NormalizeRule::Prepend(_) if text.is_empty() => Cow::Borrowed(text),
            NormalizeRule::Prepend(prefix) => Cow::Owned(format!("{prefix}{text}")),
            NormalizeRule::Lowercase => Cow::Owned(text.to_lowercase()),
            NormalizeRule::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                Cow::Borrowed(if *right { text.trim_end() } else { text })
            }
        }
    }
}

fn replace<'t>(text: &'t str, pattern: &Pattern, content: &str) -> Cow<'t, str> {
    if let Pattern::Literal(literal) = pattern {
        if !text.contains(literal.as_str()) {
            return Cow::Borrowed(text);
        }
        return Cow::Owned(text.replace(literal.as_str(), content));
    }
    let mut out = String::with_capacity(text.len());
    pattern.parts(text, &mut |part, is_match| {
        out.push_str(if is_match { content } else { part })
    });
    Cow::Owned(out)
}

impl NormalForm {
    fn apply(self, text: &str) -> Cow<'_, str> {
        // All four forms leave ASCII alone.
        if text.is_ascii() || self.holds(text) == IsNormalized::Yes {
            return Cow::Borrowed(text);
        }
        Cow::Owned(match self {
            NormalForm::Nfc => text.nfc().collect(),
            NormalForm::Nfd => text.nfd().collect(),
            NormalForm::Nfkc => text.nfkc().collect(),
            NormalForm::Nfkd => text.nfkd().collect(),
        })
    }

    fn holds(self, text: &str) -> IsNormalized {
        match self {
            NormalForm::Nfc => is_nfc_quick(text.chars()),
            NormalForm::Nfd => is_nfd_quick(text.chars()),
            NormalForm::Nfkc => is_nfkc_quick(text.chars()),
            NormalForm::Nfkd => is_nfkd_quick(text.chars()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let cases = [
            (NormalForm::Nfc, "e\u{301}", "é"),
            (NormalForm::Nfd, "é", "e\u{301}"),
            (NormalForm::Nfkc, "ﬁ①", "fi1"),
            (NormalForm::Nfkd, "ﬁé", "fie\u{301}"),
            (NormalForm::Nfc, "ﬁ", "ﬁ"),
            (NormalForm::Nfc, "가", "가"),
        ];
        for (form, text, want) in cases {
            let rules = vec![NormalizeRule::Form(form)];
            assert_eq!(Normalizer { rules }.apply(text), want, "{form:?} {text}");
        }
    }

    #[test]
    fn sentencepiece_marks_spaces() {
        assert_eq!(Normalizer::sentencepiece(true).apply("a  b"), "▁a▁▁b");
        assert_eq!(Normalizer::sentencepiece(false).apply("a b"), "a▁b");
        assert_eq!(Normalizer::sentencepiece(true).apply(""), "");
    }

    #[test]
    fn replacement_by_expression_takes_the_content_literally() {
        let pattern = Pattern::regex(" {2,}").unwrap();
        let rules = vec![NormalizeRule::Replace {
            pattern,
            content: "$0".to_owned(),
        }];
        assert_eq!(Normalizer { rules }.apply("a   b c"), "a$0b c");
    }

    #[test]
    fn replacements_that_explode_are_refused() {
        let double = || NormalizeRule::Replace {
            pattern: Pattern::Literal("a".to_owned()),
            content: "aa".to_owned(),
        };
        assert!(Normalizer::new((0..8).map(|_| double()).collect()).is_ok());
        assert!(Normalizer::new((0..100).map(|_| double()).collect()).is_err());
        assert!(Normalizer::new(vec![NormalizeRule::Prepend("x".repeat(65))]).is_err());
    }

    #[test]
    fn the_rest() {
        let rules = vec![
            NormalizeRule::Strip {
                left: true,
                right: false,
            },
            NormalizeRule::Lowercase,
        ];
        assert_eq!(Normalizer { rules }.apply("  AbÉ "), "abé ");
    }
}
