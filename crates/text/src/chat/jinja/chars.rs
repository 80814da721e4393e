//! Characters as Python classifies them.

use crate::unicode::ranges;
use std::sync::OnceLock;

/// `str.isspace` of one character.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Where `str.splitlines` ends a line.
pub(crate) fn is_line_end(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// A class of characters by the ranges of a regular expression.
struct Class(OnceLock<Vec<(u32, u32)>>, &'static str);

impl Class {
    const fn new(pattern: &'static str) -> Class {
        Class(OnceLock::new(), pattern)
    }

    fn has(&self, c: char) -> bool {
        let ranges = self.0.get_or_init(|| ranges(self.1));
        let code = c as u32;
        let at = ranges.partition_point(|(_, last)| *last < code);
        ranges.get(at).is_some_and(|(first, _)| *first <= code)
    }
}

static LETTERS: Class = Class::new(r"\p{L}");
static DECIMALS: Class = Class::new(r"\p{Nd}");
static HIDDEN: Class = Class::new(r"[\p{C}\p{Z}]");
static UPPER: Class = Class::new(r"\p{Uppercase}");
static LOWER: Class = Class::new(r"\p{Lowercase}");
static TITLE: Class = Class::new(r"\p{Lt}");
/// Characters with a case for `str.title`.
static CASED: Class = Class::new(r"\p{Cased}");
static NAME_START: Class = Class::new(r"[\p{XID_Start}_]");
static NAME_PART: Class = Class::new(r"\p{XID_Continue}");

/// Digits that are not decimal: superscripts and circled ones.
const MORE_DIGITS: [(char, char); 14] = [
    ('\u{b2}', '\u{b3}'),
    ('\u{b9}', '\u{b9}'),
    ('\u{1369}', '\u{1371}'),
    ('\u{19da}', '\u{19da}'),
    ('\u{2070}', '\u{2070}'),
    ('\u{2074}', '\u{2079}'),
    ('\u{2080}', '\u{2089}'),
    ('\u{2460}', '\u{2468}'),
    ('\u{2474}', '\u{247c}'),
    ('\u{2488}', '\u{2490}'),
    ('\u{24ea}', '\u{24ea}'),
    ('\u{24f5}', '\u{24fd}'),
    ('\u{24ff}', '\u{24ff}'),
    ('\u{2776}', '\u{2793}'),
];

/// Chinese characters with a numeric value.
const NUMERALS: &str = "㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹壺弌弍弎弐拾捌柒玖百肆萬貮貳贰阡陆陌陸零〇";

pub(crate) fn is_alpha(c: char) -> bool {
    LETTERS.has(c)
}

pub(crate) fn is_decimal(c: char) -> bool {
    DECIMALS.has(c)
}

pub(crate) fn is_digit(c: char) -> bool {
    let is_more = || MORE_DIGITS.iter().any(|(a, b)| (*a..=*b).contains(&c));
    is_decimal(c) || (!c.is_ascii() && (is_more() || ('\u{1f100}'..='\u{1f10a}').contains(&c)))
}

pub(crate) fn is_numeric(c: char) -> bool {
    c.is_numeric() || (!c.is_ascii() && NUMERALS.contains(c))
}

pub(crate) fn is_alnum(c: char) -> bool {
    is_alpha(c) || is_digit(c) || is_numeric(c)
}

/// Whether `repr` shows a character unescaped.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        // Marks of a prompt's texts are removed later.
        c if crate::chat::prompt::is_mark(c) => true,
        c => !HIDDEN.has(c),
    }
}

pub(crate) fn is_upper(c: char) -> bool {
    UPPER.has(c)
}

pub(crate) fn is_lower(c: char) -> bool {
    LOWER.has(c)
}

pub(crate) fn is_title(c: char) -> bool {
    TITLE.has(c)
}

pub(crate) fn is_cased(c: char) -> bool {
    CASED.has(c)
}

/// `str.isidentifier`
pub(crate) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| NAME_START.has(c)) && chars.all(|c| NAME_PART.has(c))
}

/// `\w` of Python's regular expressions.
pub(crate) fn is_word(c: char) -> bool {
    c == '_' || is_alnum(c)
}

/// A character as the first of a word in title case.
pub(crate) fn to_title(c: char, out: &mut String) {
    match c {
        'ǅ' | 'ǈ' | 'ǋ' | 'ǲ' => out.push(c),
        'Ǆ' | 'ǆ' => out.push('ǅ'),
        'Ǉ' | 'ǉ' => out.push('ǈ'),
        'Ǌ' | 'ǌ' => out.push('ǋ'),
        'Ǳ' | 'ǳ' => out.push('ǲ'),
        // Greek letters with an iota beneath keep it there, Georgian ones have no capitals in titles.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            out.extend(char::from_u32(c as u32 + 8));
        }
        '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}' | '\u{1fa8}'..='\u{1faf}' => out.push(c),
        'ᾳ' | 'ᾼ' => out.push('ᾼ'),
        'ῃ' | 'ῌ' => out.push('ῌ'),
        'ῳ' | 'ῼ' => out.push('ῼ'),
        'ᾲ' => out.push_str("Ὰ\u{345}"),
        'ᾴ' => out.push_str("Ά\u{345}"),
        'ᾷ' => out.push_str("Α\u{342}\u{345}"),
        'ῂ' => out.push_str("Ὴ\u{345}"),
        'ῄ' => out.push_str("Ή\u{345}"),
        'ῇ' => out.push_str("Η\u{342}\u{345}"),
        'ῲ' => out.push_str("Ὼ\u{345}"),
        'ῴ' => out.push_str("Ώ\u{345}"),
        'ῷ' => out.push_str("Ω\u{342}\u{345}"),
        '\u{10d0}'..='\u{10ff}' => out.push(c),
        c => {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            // "ß" is "Ss" there.
            upper.for_each(|more| match is_upper(more) {
                true => out.extend(more.to_lowercase()),
                false => out.push(more),
            });
        }
    }
}

/// `str.casefold` of one character.
pub(crate) fn fold(c: char, out: &mut String) {
    match c {
        'ı' => out.push(c),
        // Cherokee folds to its capitals.
        '\u{13a0}'..='\u{13f5}' => out.push(c),
        '\u{13f8}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => out.extend(c.to_uppercase()),
        c => c
            .to_uppercase()
            .for_each(|upper| out.extend(upper.to_lowercase())),
    }
}
