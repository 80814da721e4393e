//! BERT's normalizer.

use super::{NormalForm, lowercase, without};
use crate::unicode::CharClass;

/// Its settings, in the order in which they apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BertRules {
    /// Drops control characters and turns white space into spaces.
    pub(crate) clean_text: bool,
    /// Puts spaces around Chinese characters.
    pub(crate) space_ideographs: bool,
    /// Drops the marks of letters.
    pub(crate) strip_accents: bool,
    /// Turns letters into lower case.
    pub(crate) lowercase: bool,
}

impl BertRules {
    /// Whether a character that begins a text is dropped.
    pub(super) fn drops(self, c: char) -> bool {
        (self.clean_text && CharClass::BertControl.holds(c))
            || (self.strip_accents && CharClass::BertAccent.holds(c))
    }

    pub(super) fn apply(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8);
        for c in text.chars() {
            let c = match self.clean_text {
                true if CharClass::BertControl.holds(c) => continue,
                true if c.is_whitespace() => ' ',
                _ => c,
            };
            if self.space_ideographs && CharClass::BertIdeograph.holds(c) {
                out.extend([' ', c, ' ']);
            } else {
                out.push(c);
            }
        }
        if self.strip_accents {
            out = without(&NormalForm::Nfd.apply(&out), CharClass::BertAccent);
        }
        match self.lowercase {
            true => lowercase(&out),
            false => out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_does_its_part() {
        let none = BertRules {
            clean_text: false,
            space_ideographs: false,
            strip_accents: false,
            lowercase: false,
        };
        let text = "É\u{0}a\tb\u{AD}\u{A0}水Σ";
        for (rules, want) in [
            (none, text),
            (
                BertRules {
                    clean_text: true,
                    ..none
                },
                "Éa b 水Σ",
            ),
            (
                BertRules {
                    space_ideographs: true,
                    ..none
                },
                "É\u{0}a\tb\u{AD}\u{A0} 水 Σ",
            ),
            (
                BertRules {
                    strip_accents: true,
                    ..none
                },
                "E\u{0}a\tb\u{AD}\u{A0}水Σ",
            ),
            (
                BertRules {
                    lowercase: true,
                    ..none
                },
                "é\u{0}a\tb\u{AD}\u{A0}水σ",
            ),
        ] {
            assert_eq!(rules.apply(text), want, "{rules:?}");
        }
    }
}
