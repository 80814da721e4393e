//! The scanners against the regular expressions that they implement.

use super::*;
use proptest::prelude::*;

fn pieces(scanner: Scanner, text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    scanner.split(text, &mut |piece| out.push(piece));
    out
}

fn matches<'t>(regex: &fancy_regex::Regex, text: &'t str) -> Vec<&'t str> {
    regex
        .find_iter(text)
        .map(|found| found.unwrap().as_str())
        .collect()
}

/// Characters at the edges of the classes: contractions in odd cases, white space of all widths,
/// marks, letters of every case, digits that are not decimal, surrogate-range neighbours,
/// unassigned ones.
const ALPHABET: &[char] = &[
    'a',
    'b',
    's',
    't',
    'r',
    'e',
    'v',
    'm',
    'l',
    'd',
    'S',
    'T',
    'R',
    'E',
    'V',
    'M',
    'L',
    'D',
    'ſ',
    'K',
    'ß',
    'ﬆ',
    'é',
    'É',
    'ǅ',
    'ʰ',
    'я',
    'Я',
    '我',
    'ก',
    'ā',
    '0',
    '1',
    '9',
    '²',
    '½',
    'Ⅷ',
    '٣',
    ' ',
    ' ',
    ' ',
    '\t',
    '\n',
    '\n',
    '\r',
    '\u{B}',
    '\u{85}',
    '\u{A0}',
    '\u{1680}',
    '\u{2003}',
    '\u{2028}',
    '\u{3000}',
    '\u{FEFF}',
    '\u{200B}',
    '\u{200D}',
    '\'',
    '\'',
    '\'',
    '’',
    '"',
    '.',
    ',',
    '!',
    '/',
    '/',
    '-',
    '_',
    '(',
    '$',
    '+',
    '=',
    '<',
    '|',
    '>',
    '\\',
    '\u{301}',
    '\u{302}',
    '\u{93F}',
    '\u{20E3}',
    '\u{FE0F}',
    '🦙',
    '😁',
    '～',
    '\0',
    '\u{7F}',
    '\u{AD}',
    '\u{D7FF}',
    '\u{E000}',
    '\u{378}',
    '\u{10FFFF}',
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(ALPHABET), 0..40)
            .prop_map(|chars| chars.into_iter().collect()),
        prop::collection::vec(any::<char>(), 0..20).prop_map(|chars| chars.into_iter().collect()),
    ]
}

#[test]
fn scanners_equal_their_expressions() {
    let compiled: Vec<_> = PATTERNS
        .iter()
        .map(|(pattern, scanner)| (fancy_regex::Regex::new(pattern).unwrap(), *scanner))
        .collect();
    proptest!(ProptestConfig::with_cases(4000), |(text in text())| {
        for (regex, scanner) in &compiled {
            prop_assert_eq!(pieces(*scanner, &text), matches(regex, &text), "{:?}", scanner);
        }
    });
}

#[test]
fn known_splits() {
    let cases: [(Scanner, &str, &[&str]); 9] = [
        (
            Scanner::GPT2,
            "I'm  here\n\n 12345!",
            &["I", "'m", " ", " here", "\n\n", " 12345", "!"],
        ),
        (
            Scanner::LLAMA3,
            "I'M  here\n\n 12345!",
            &["I", "'M", " ", " here", "\n\n", " ", "123", "45", "!"],
        ),
        (Scanner::QWEN2, "a 12\r\n", &["a", " ", "1", "2", "\r\n"]),
        (Scanner::LLAMA3, " \n  \n  x", &[" \n  \n", " ", " x"]),
        (Scanner::LLAMA3, "(a).\n\nb", &["(a", ").\n\n", "b"]),
        (Scanner::QWEN35, "e\u{301}a", &["e\u{301}a"]),
        (Scanner::QWEN2, "e\u{301}a", &["e", "\u{301}a"]),
        (Scanner::TEKKEN, "HelloWORLD's", &["Hello", "WORLD", "'s"]),
        (Scanner::O200K, "HelloWORLD's", &["Hello", "WORLD's"]),
    ];
    for (scanner, text, want) in cases {
        assert_eq!(pieces(scanner, text), want, "{scanner:?} {text:?}");
    }
}

#[test]
fn long_runs_take_linear_time() {
    // A quadratic scanner would need minutes for these.
    for unit in [" ", "\n", "a", "A", "1", "!", "'", "文A", "e\u{301}"] {
        let text = unit.repeat(400_000 / unit.len());
        for (_, scanner) in PATTERNS {
            let mut n = 0;
            scanner.split(&text, &mut |piece| n += piece.len());
            assert_eq!(n, text.len());
        }
    }
}
