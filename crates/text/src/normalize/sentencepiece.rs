//! SentencePiece's normalizer (`normalizer.cc`).

use super::Charsmap;
use crate::pretokenize::SPACE_MARK;

/// A model's settings.
#[derive(Debug)]
pub(crate) struct SentencePieceRules {
    /// Which characters become which.
    pub(crate) charsmap: Option<Box<Charsmap>>,
    /// A space goes in front of the text.
    pub(crate) space_prefix: bool,
    /// Spaces at the ends are dropped, and of several only one stays.
    pub(crate) merge_spaces: bool,
}

impl SentencePieceRules {
    /// How many times longer a text may become: a space takes three bytes.
    pub(super) fn growth(&self) -> usize {
        let map = self.charsmap.as_ref().map_or(1, |map| map.longest_bytes());
        map.max(1).saturating_mul(SPACE_MARK.len_utf8())
    }

    pub(super) fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 2 + 3);
        if self.space_prefix && !text.is_empty() {
            out.push(SPACE_MARK);
        }
        let mut follows_space = self.merge_spaces;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let found = self.charsmap.as_ref().and_then(|map| map.longest(rest));
            let (length, part) = found.unwrap_or((c.len_utf8(), &rest[..c.len_utf8()]));
            rest = &rest[length..];
            let part = match follows_space {
                true => part.trim_start_matches(' '),
                false => part,
            };
            out.extend(part.chars().map(|c| if c == ' ' { SPACE_MARK } else { c }));
            if !part.is_empty() {
                follows_space = self.merge_spaces && part.ends_with(' ');
            }
        }
        if self.merge_spaces {
            let end = out.trim_end_matches(SPACE_MARK).len();
            out.truncate(end);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_follow_the_settings() {
        for (space_prefix, merge_spaces, text, want) in [
            (true, true, "  a  b ", "▁a▁b"),
            (false, true, "  a  b ", "a▁b"),
            (true, false, "  a  b ", "▁▁▁a▁▁b▁"),
            (false, false, " a", "▁a"),
            (true, true, "   ", ""),
            (true, true, "", ""),
            (true, false, "", ""),
            (true, false, " ", "▁▁"),
        ] {
            let rules = SentencePieceRules {
                charsmap: None,
                space_prefix,
                merge_spaces,
            };
            assert_eq!(
                rules.apply(text),
                want,
                "{text:?} {space_prefix} {merge_spaces}"
            );
        }
    }
}
