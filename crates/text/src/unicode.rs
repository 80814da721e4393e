//! Classes of characters, as the regular expressions of pre-tokenizers name them.
//!
//! The ranges are taken from the regex engine's own tables, so that a hand-written scanner and its
//! expression agree on every character.

use regex_syntax::hir::{Class as HirClass, HirKind};
use std::sync::OnceLock;

/// `\p{L}`
pub(crate) const LETTER: u8 = 1;
/// `\p{N}`
pub(crate) const NUMBER: u8 = 2;
/// `\s`
pub(crate) const SPACE: u8 = 4;
/// `\p{M}`
pub(crate) const MARK: u8 = 8;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
pub(crate) const CAPITAL: u8 = 16;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
pub(crate) const SMALL: u8 = 32;
/// `[\r\n]`
pub(crate) const NEWLINE: u8 = 64;
/// Any character at all: distinguishes a character without a class from the end of the text.
pub(crate) const ANY: u8 = 128;

const CLASSES: [(&str, u8); 7] = [
    (r"\p{L}", LETTER),
    (r"\p{N}", NUMBER),
    (r"\s", SPACE),
    (r"\p{M}", MARK),
    (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", CAPITAL),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", SMALL),
    (r"[\r\n]", NEWLINE),
];

const BLOCK: usize = 256;
const N_BLOCKS: usize = 0x110000 / BLOCK;

/// Class bits of every character: an index of blocks, and the distinct blocks.
#[derive(Debug)]
pub(crate) struct Classes {
    ascii: [u8; 128],
    index: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
}

/// The table, built on first use.
pub(crate) fn classes() -> &'static Classes {
    static TABLE: OnceLock<Classes> = OnceLock::new();
    TABLE.get_or_init(Classes::build)
}

impl Classes {
    fn build() -> Classes {
        let mut flat = vec![ANY; N_BLOCKS * BLOCK];
        for (pattern, bit) in CLASSES {
            for (first, last) in ranges(pattern) {
                flat[first as usize..=last as usize]
                    .iter_mut()
                    .for_each(|bits| *bits |= bit);
            }
        }
        let mut blocks: Vec<[u8; BLOCK]> = Vec::new();
        let (chunks, _) = flat.as_chunks::<BLOCK>();
        let index = chunks
            .iter()
            .map(|chunk| {
                let at = blocks
                    .iter()
                    .rposition(|known| known == chunk)
                    .unwrap_or_else(|| {
                        blocks.push(*chunk);
                        blocks.len() - 1
                    });
                at as u16
            })
            .collect();
        let mut ascii = [0; 128];
        ascii.copy_from_slice(&flat[..128]);
        Classes {
            ascii,
            index,
            blocks,
        }
    }

    /// Class bits of a character.
    #[inline]
    pub(crate) fn of(&self, c: char) -> u8 {
        let code = c as usize;
        self.blocks[usize::from(self.index[code / BLOCK])][code % BLOCK]
    }

    /// Class bits of an ASCII byte, which must be below 128.
    #[inline]
    pub(crate) fn of_ascii(&self, byte: u8) -> u8 {
        self.ascii[usize::from(byte & 127)]
    }
}

/// The code points that a class written as a regular expression holds.
pub(crate) fn ranges(pattern: &str) -> Vec<(u32, u32)> {
    let hir = regex_syntax::parse(pattern).expect("the class is written correctly");
    match hir.kind() {
        HirKind::Class(HirClass::Unicode(class)) => class
            .iter()
            .map(|range| (range.start() as u32, range.end() as u32))
            .collect(),
        other => unreachable!("{pattern} is a class of characters, not {other:?}"),
    }
}

/// A class of characters that is looked up by ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CharClass {
    /// `\d`
    Digit,
    /// `\w` of Oniguruma, the engine of the package `tokenizers`: with some more numbers, without joiners.
    Word,
    /// Characters that BERT's normalizer drops: control characters but for white space, and U+FFFD.
    BertControl,
    /// The marks that BERT's normalizer drops from letters.
    BertAccent,
    /// Characters that BERT's pre-tokenizer makes separate pieces.
    BertPunctuation,
    /// The characters around which BERT's normalizer puts spaces.
    BertIdeograph,
    /// The marks that the normalizer `StripAccents` drops.
    Mark,
    /// Characters that the normal forms of the package `tokenizers` leave alone: those newer than Unicode 9.
    NewerThanForms,
}

/// Classes as regular expressions, in the order of [`CharClass`]. Those of the package `tokenizers` follow older
/// versions of Unicode; the other differences of its tables were found by asking it about every character.
const CHAR_CLASSES: [&str; 8] = [
    r"\d",
    r"[\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}[\w&&[^\x{200C}\x{200D}]]]",
    r"[\x00\x{FFFD}[\p{Cc}\p{Cf}\p{Co}&&\p{age:8.0}&&[^\t\n\r]]]",
    r"[\x{1734}\x{1171E}[\p{Mn}&&\p{age:8.0}&&[^\x{1885}\x{1886}\x{A9BD}\x{111C9}]]]",
    r"[!-/:-@\[-`{-~\x{166D}\x{111C9}[\p{P}&&\p{age:8.0}]]",
    r"[\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}]",
    r"[\x{1CF2}\x{1CF3}[\p{M}&&\p{age:9.0}&&[^\x{111C9}]]]",
    r"\P{age:9.0}",
];

impl CharClass {
    /// Whether a character is of the class.
    pub(crate) fn holds(self, c: char) -> bool {
        static RANGES: [OnceLock<Vec<(u32, u32)>>; CHAR_CLASSES.len()] =
            [const { OnceLock::new() }; CHAR_CLASSES.len()];
        let ranges = RANGES[self as usize].get_or_init(|| ranges(CHAR_CLASSES[self as usize]));
        let code = c as u32;
        let at = ranges.partition_point(|(_, last)| *last < code);
        ranges.get(at).is_some_and(|(first, _)| *first <= code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters() {
        let table = classes();
        for (c, want) in [
            ('a', ANY | LETTER | SMALL),
            ('A', ANY | LETTER | CAPITAL),
            ('7', ANY | NUMBER),
            ('²', ANY | NUMBER),
            (' ', ANY | SPACE),
            ('\n', ANY | SPACE | NEWLINE),
            ('\u{A0}', ANY | SPACE),
            ('\u{301}', ANY | MARK | CAPITAL | SMALL),
            ('我', ANY | LETTER | CAPITAL | SMALL),
            ('🦙', ANY),
            ('\u{10FFFF}', ANY),
        ] {
            assert_eq!(table.of(c), want, "{c:?}");
        }
    }

    #[test]
    fn agrees_with_the_standard_library_where_the_classes_coincide() {
        let table = classes();
        for c in '\0'..=char::MAX {
            assert_eq!(table.of(c) & SPACE != 0, c.is_whitespace(), "{c:?}");
            if c.is_ascii() {
                assert_eq!(table.of(c), table.of_ascii(c as u8));
                assert_eq!(table.of(c) & LETTER != 0, c.is_ascii_alphabetic(), "{c:?}");
            }
        }
    }
}
