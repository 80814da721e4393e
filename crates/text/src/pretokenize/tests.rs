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
fn anchors_are_those_of_lines() {
    let step = Split::isolated("^ +| +$").unwrap();
    assert_eq!(
        pieces(vec![PretokenizeStep::Split(step)], " a  \n  b "),
        [" ", "a", "  ", "\n", "  ", "b", " "]
    );
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
        let kept: String = match profile.spelling {
            profile::Spelling::Plain => text.split_whitespace().collect(),
            _ => text.to_owned(),
        };
        assert_eq!(pieces(steps, text).concat(), kept, "{name}");
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

#[derive(serde::Deserialize)]
struct PieceCut {
    texts: Vec<String>,
    /// By name, the pieces of each text.
    pieces: std::collections::BTreeMap<String, Vec<Vec<String>>>,
}

/// Results of `pre_tokenizers.Sequence` of `Split`s with the models' expressions, from the package
/// `tokenizers` (`tools/make_tokenizer_fixtures.py`).
#[test]
fn profiles_cut_as_tokenizers_does() {
    let fixture = include_str!("../../tests/fixtures/pretokenizers.json");
    let cut: PieceCut = serde_json::from_str(fixture).expect("the fixture fits");
    assert!(cut.pieces.len() > 25 && cut.texts.len() > 15);
    for (name, wants) in cut.pieces {
        assert_eq!(wants.len(), cut.texts.len());
        for (text, want) in cut.texts.iter().zip(wants) {
            let profile = PretokenizerProfile::named(Some(&name)).unwrap();
            let steps = profile.pre_tokenizer().unwrap().steps;
            assert_eq!(pieces(steps, text), want, "{name}: {text:?}");
        }
    }
}

/// Flags that llama.cpp's `llama-vocab.cpp` sets beside the expressions.
#[test]
fn names_have_their_flags() {
    let named = |name| PretokenizerProfile::named(Some(name)).unwrap();
    for (name, ignore_merges, add_bos) in [
        ("gpt-2", false, false),
        ("llama-bpe", true, true),
        ("jina-v5-nano", true, true),
        ("chatglm-bpe", false, false),
        ("glm4", true, false),
        ("glm5", true, false),
        ("minicpm5", true, false),
        ("youtu", true, false),
        ("gpt-4o", false, false),
        ("granite-embed-multi-97m", true, false),
        ("chameleon", false, true),
        ("gemma4", false, true),
        ("sarvam-moe", false, false),
    ] {
        let profile = named(name);
        let flags = (profile.ignore_merges, profile.add_bos);
        assert_eq!(flags, (ignore_merges, add_bos), "{name}");
    }
    for (name, spelling) in [
        ("kimi-k2", profile::Spelling::Bytes),
        ("gemma4", profile::Spelling::Marked),
        ("sarvam-moe", profile::Spelling::Marked),
        ("whitespace", profile::Spelling::Plain),
    ] {
        assert_eq!(named(name).spelling, spelling, "{name}");
    }
    assert_eq!(known_names().len(), 91);
}

/// A search by the expressions themselves would look at the rest of the run for every digit.
#[test]
fn long_runs_of_digits_are_cut_in_one_pass() {
    let text = "7".repeat(3_000_001);
    for name in ["tiny_aya", "superbpe", "afmoe"] {
        let profile = PretokenizerProfile::named(Some(name)).unwrap();
        let steps = profile.pre_tokenizer().unwrap().steps;
        let cut = pieces(steps, &text);
        assert_eq!((cut.len(), cut[0].len()), (1_000_001, 1), "{name}");
    }
}
