//! Steps, behaviours and profiles.

use super::profile::{PretokenizerProfile, known_names};
use super::*;

fn pieces(steps: Vec<PretokenizeStep>, text: &str) -> Vec<String> {
    let mut out = Vec::new();
    PreTokenizer { steps }.split(text, true, &mut |piece| out.push(piece.to_owned()));
    out
}

fn split(behavior: Behavior, invert: bool) -> PretokenizeStep {
    PretokenizeStep::Split(Split {
        pattern: Pattern::regex("-").unwrap(),
        behavior,
        invert,
    })
}

#[test]
fn behaviors() {
    use Behavior::*;
    let text = "the-final--countdown-";
    let cases: [(Behavior, bool, &[&str]); 7] = [
        (
            Isolated,
            false,
            &["the", "-", "final", "-", "-", "countdown", "-"],
        ),
        (Removed, false, &["the", "final", "countdown"]),
        (
            MergedWithPrevious,
            false,
            &["the-", "final-", "-", "countdown-"],
        ),
        (
            MergedWithNext,
            false,
            &["the", "-final", "-", "-countdown", "-"],
        ),
        (
            Contiguous,
            false,
            &["the", "-", "final", "--", "countdown", "-"],
        ),
        (Removed, true, &["-", "-", "-", "-"]),
        (
            MergedWithPrevious,
            true,
            &["the", "-final", "-", "-countdown", "-"],
        ),
    ];
    for (behavior, invert, want) in cases {
        assert_eq!(
            pieces(vec![split(behavior, invert)], text),
            want,
            "{behavior:?} {invert}"
        );
    }
    assert_eq!(pieces(vec![split(Isolated, false)], "-"), ["-"]);
    assert!(pieces(vec![split(Removed, false)], "-").is_empty());
    assert!(pieces(vec![split(Isolated, false)], "").is_empty());
}

#[test]
fn literal_patterns_are_not_expressions() {
    let step = Split {
        pattern: Pattern::Literal(".".to_owned()),
        behavior: Behavior::Isolated,
        invert: false,
    };
    assert_eq!(
        pieces(vec![PretokenizeStep::Split(step)], "a.b"),
        ["a", ".", "b"]
    );
}

#[test]
fn an_expression_that_backtracks_too_far_loses_no_text() {
    // A lookahead forces the backtracking engine, which gives up on this one.
    let step = Split::isolated(r"(?:a|a|a)*(?=b)c").unwrap();
    let text = "a".repeat(5000);
    assert_eq!(
        pieces(vec![PretokenizeStep::Split(step)], &text).concat(),
        text
    );
}

#[test]
fn digits_and_metaspace() {
    let single = || vec![PretokenizeStep::Digits { individual: true }];
    assert_eq!(pieces(single(), "a12b"), ["a", "1", "2", "b"]);
    assert_eq!(
        pieces(vec![PretokenizeStep::Digits { individual: false }], "a12b3"),
        ["a", "12", "b", "3"]
    );
    assert_eq!(pieces(single(), "½²"), ["½", "²"]);
    let metaspace = |prepend, cut| {
        vec![PretokenizeStep::Metaspace {
            mark: '▁',
            prepend,
            cut,
        }]
    };
    assert_eq!(
        pieces(metaspace(Prepend::Always, true), "a b  c"),
        ["▁a", "▁b", "▁", "▁c"]
    );
    assert_eq!(pieces(metaspace(Prepend::Always, false), "a b"), ["▁a▁b"]);
    assert_eq!(pieces(metaspace(Prepend::Always, true), " a"), ["▁a"]);
    assert_eq!(pieces(metaspace(Prepend::Never, true), "a b"), ["a", "▁b"]);
    let mut steps = single();
    steps.extend(metaspace(Prepend::First, true));
    assert_eq!(pieces(steps, "1 2"), ["▁1", "▁", "2"]);
}

#[test]
fn a_piece_gets_one_space_in_front() {
    let steps = || {
        vec![
            PretokenizeStep::SpacePrefix,
            PretokenizeStep::Scan(Scanner::GPT2),
        ]
    };
    assert_eq!(pieces(steps(), "a b"), [" a", " b"]);
    assert_eq!(pieces(steps(), " a b"), [" a", " b"]);
}

#[test]
fn every_profile_compiles_and_keeps_all_text() {
    let text = "Hello, World's  1234 \n\n\tπ=3.14 我想 e\u{301}!? <|x|> \u{A0}";
    for name in known_names() {
        let profile = PretokenizerProfile::named(Some(name)).unwrap();
        let steps = profile.pre_tokenizer().unwrap().steps;
        assert_eq!(pieces(steps, text).concat(), text, "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let error = PretokenizerProfile::named(Some("gpt-99"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("gpt-99") && error.contains("llama-bpe") && error.contains("qwen2"),
        "{error}"
    );
    assert!(PretokenizerProfile::named(None).is_ok());
}

#[test]
fn smollm_isolates_digits_before_words() {
    let steps = PretokenizerProfile::named(Some("smollm"))
        .unwrap()
        .pre_tokenizer()
        .unwrap()
        .steps;
    assert_eq!(
        pieces(steps, "in 1999  now"),
        ["in", " ", "1", "9", "9", "9", " ", " now"]
    );
}

/// What `pre_tokenizers.Sequence` of `Split`s with the models' expressions gives, of the package
/// `tokenizers` 0.23.3.
#[test]
fn profiles_of_many_expressions_cut_as_tokenizers_does() {
    const TEXTS: [&str; 4] = [
        "Hello,  World 1234! it's\r\n\n x=(a|b);  ",
        "Größe Ω ЖУК наб 你好世界，再见。한국어 ひらがな ١٢٣ don't",
        "\tif x:\n\t\treturn 3.14 // ok?\n",
        "a…b । نص، 😀 e\u{301}  ",
    ];
    let cases: [(&str, [&[&str]; 4]); 3] = [
        (
            "deepseek-llm",
            [
                &[
                    "Hello", ",", " ", " World", " ", "1234", "!", " it", "'", "s", "\r", "\n",
                    "\n", " x", "=(", "a", "|", "b", ");", "  ",
                ],
                &[
                    "Gr",
                    "öß",
                    "e",
                    " Ω",
                    " ЖУК",
                    " наб",
                    " ",
                    "你好世界",
                    "，",
                    "再见",
                    "。",
                    "한국어",
                    " ",
                    "ひらがな",
                    " ",
                    "١٢٣",
                    " don",
                    "'",
                    "t",
                ],
                &[
                    "\tif", " x", ":", "\n", "\t", "\treturn", " ", "3", ".", "14", " //", " ok",
                    "?", "\n",
                ],
                &["a", "…", "b", " ", "।", " نص، 😀", " e", "\u{301}", "  "],
            ],
        ),
        (
            "seed-coder",
            [
                &[
                    "Hello", ",", " ", " World", " ", "1", "2", "3", "4", "!", " it", "'s",
                    "\r\n\n", " x", "=(", "a", "|b", ");", "  ",
                ],
                &[
                    "Größe",
                    " Ω",
                    " ЖУК",
                    " наб",
                    " 你好世界",
                    "，再见",
                    "。한국어",
                    " ひらがな",
                    " ",
                    "١",
                    "٢",
                    "٣",
                    " don",
                    "'t",
                ],
                &[
                    "\tif", " x", ":", "\n", "\t", "\treturn", " ", "3", ".", "1", "4", " //",
                    " ok", "?", "\n",
                ],
                &["a", "…b", " ।", " نص", "،", " 😀", " e", "\u{301}", "  "],
            ],
        ),
        (
            "viking",
            [
                &[
                    "Hello", ", ", " World", " ", "1", "2", "3", "4", "!", " it's", "\r\n\n",
                    " x=", "(", "a", "|", "b", ")", ";", "  ",
                ],
                &[
                    "Größe",
                    " Ω",
                    " ЖУК",
                    " наб",
                    " 你好世界",
                    "，",
                    "再见",
                    "。",
                    "한국어",
                    " ひらがな",
                    " ",
                    "١",
                    "٢",
                    "٣",
                    " don't",
                ],
                &[
                    "\t", "if", " x:", "\n\t\t", "return", " ", "3", ".", "1", "4", " //", " ok",
                    "?\n",
                ],
                &["a", "…", "b", " ।", " نص", "،", " 😀", " e\u{301}", "  "],
            ],
        ),
    ];
    for (name, wants) in cases {
        for (text, want) in TEXTS.iter().zip(wants) {
            let steps = PretokenizerProfile::named(Some(name))
                .unwrap()
                .pre_tokenizer()
                .unwrap()
                .steps;
            assert_eq!(pieces(steps, text), want, "{name}");
        }
    }
}
