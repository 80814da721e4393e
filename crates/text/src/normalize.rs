//! Normalizers: changes to a text before it is cut into pieces.

mod bert;
mod charsmap;
mod sentencepiece;

pub(crate) use bert::BertRules;
pub(crate) use charsmap::Charsmap;
#[cfg(test)]
pub(crate) use charsmap::tests::charsmap as charsmap_of;
pub(crate) use sentencepiece::SentencePieceRules;

use crate::Error;
use crate::pretokenize::Pattern;
use crate::unicode::CharClass;
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
        /// The pattern to look for.
        pattern: Pattern,
        /// Its replacement, literally.
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
    /// Drops marks, whether or not they belong to a letter.
    StripAccents,
    /// Drops control characters, and turns odd white space into spaces (`Nmt`).
    Nmt,
    /// BERT's rules.
    Bert(BertRules),
    /// Replaces characters by a map, as `tokenizers` does.
    Charsmap(Box<Charsmap>),
    /// SentencePiece's rules, with a model's settings.
    SentencePiece(SentencePieceRules),
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
                NormalizeRule::Charsmap(map) => {
                    growth = growth.saturating_mul(map.longest_bytes().max(1));
                }
                NormalizeRule::SentencePiece(rules) => {
                    growth = growth.saturating_mul(rules.growth());
                }
                NormalizeRule::Form(_)
                | NormalizeRule::Lowercase
                | NormalizeRule::Strip { .. }
                | NormalizeRule::StripAccents
                | NormalizeRule::Nmt
                | NormalizeRule::Bert(_) => {}
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

    /// The text after all rules.
    pub(crate) fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.rules
            .iter()
            .fold(Cow::Borrowed(text), |text, rule| match text {
                Cow::Borrowed(text) => rule.apply(text),
                Cow::Owned(text) => Cow::Owned(rule.apply(&text).into_owned()),
            })
    }
}

impl Normalizer {
    /// Whether some rule drops the character that begins a text. `tokenizers` then does not treat the
    /// rest as the start of a text.
    pub(crate) fn drops_start(&self, text: &str) -> bool {
        let mut text = Cow::Borrowed(text);
        self.rules.iter().any(|rule| {
            let dropped = rule.drops_start(&text);
            text = Cow::Owned(rule.apply(&text).into_owned());
            dropped
        })
    }
}

impl NormalizeRule {
    /// Whether the rule drops the character that begins a text.
    fn drops_start(&self, text: &str) -> bool {
        let Some(c) = text.chars().next() else {
            return false;
        };
        match self {
            NormalizeRule::Replace { pattern, content } if content.is_empty() => {
                let mut first = None;
                pattern.parts(text, &mut |_, is_match| {
                    first.get_or_insert(is_match);
                });
                first == Some(true)
            }
            NormalizeRule::Strip { left: true, .. } => c.is_whitespace(),
            NormalizeRule::StripAccents => CharClass::Mark.holds(c),
            NormalizeRule::Nmt => nmt(c).is_none(),
            NormalizeRule::Bert(rules) => rules.drops(c),
            _ => false,
        }
    }

    fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            NormalizeRule::Form(form) => form.apply(text),
            NormalizeRule::Replace { pattern, content } => replace(text, pattern, content),
            NormalizeRule::Prepend(_) if text.is_empty() => Cow::Borrowed(text),
            NormalizeRule::Prepend(prefix) => Cow::Owned(format!("{prefix}{text}")),
            NormalizeRule::Lowercase => Cow::Owned(lowercase(text)),
            NormalizeRule::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                Cow::Borrowed(if *right { text.trim_end() } else { text })
            }
            NormalizeRule::StripAccents => Cow::Owned(without(text, CharClass::Mark)),
            NormalizeRule::Nmt => Cow::Owned(text.chars().filter_map(nmt).collect()),
            NormalizeRule::Bert(rules) => Cow::Owned(rules.apply(text)),
            NormalizeRule::Charsmap(map) => Cow::Owned(map.map_clusters(text)),
            NormalizeRule::SentencePiece(rules) => Cow::Owned(rules.apply(text)),
        }
    }
}

/// Lower case character by character: a sigma at the end of a word is not special.
fn lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn without(text: &str, class: CharClass) -> String {
    text.chars().filter(|c| !class.holds(*c)).collect()
}

/// The character that the normalizer `Nmt` turns a character into.
fn nmt(c: char) -> Option<char> {
    match c {
        '\u{1}'..='\u{8}' | '\u{B}' | '\u{E}'..='\u{1F}' | '\u{7F}' | '\u{8F}' | '\u{9F}' => None,
        '\t'
        | '\n'
        | '\u{C}'
        | '\r'
        | '\u{1680}'
        | '\u{200B}'..='\u{200F}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2581}'
        | '\u{FEFF}'
        | '\u{FFFD}' => Some(' '),
        other => Some(other),
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
        let mut out = String::with_capacity(text.len());
        // A newer character neither changes nor lets marks pass.
        for part in text.split_inclusive(|c| CharClass::NewerThanForms.holds(c)) {
            let newer = part
                .chars()
                .next_back()
                .filter(|c| CharClass::NewerThanForms.holds(*c));
            let older = &part[..part.len() - newer.map_or(0, char::len_utf8)];
            match self {
                NormalForm::Nfc => out.extend(older.nfc()),
                NormalForm::Nfd => out.extend(older.nfd()),
                NormalForm::Nfkc => out.extend(older.nfkc()),
                NormalForm::Nfkd => out.extend(older.nfkd()),
            }
            out.extend(newer);
        }
        Cow::Owned(out)
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
            // Characters of Unicode 12.1 and 16 are left alone, as `tokenizers` does.
            (
                NormalForm::Nfkc,
                "ﬁ\u{32FF}\u{209D}①",
                "fi\u{32FF}\u{209D}1",
            ),
            // A newer mark does not let another one pass.
            (
                NormalForm::Nfd,
                "é\u{1DF9}\u{301}\u{327}",
                "e\u{301}\u{1DF9}\u{327}\u{301}",
            ),
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
        assert_eq!(Normalizer { rules }.apply("  AbÉΣ "), "abéσ ");
    }
}
