//! Merging by score against a reference implementation.

use super::*;
use crate::vocab::Reach;
use proptest::prelude::*;

struct Fixture {
    vocab: Vocab,
    scores: Vec<f32>,
}

fn fixture(tokens: &[(&str, f32, TokenKind)]) -> Fixture {
    let mut vocab = Vocab::with_capacity(tokens.len());
    for (text, _, kind) in tokens {
        vocab
            .push(text, *kind, text.as_bytes(), Reach::of_kind(*kind))
            .unwrap();
    }
    Fixture {
        vocab,
        scores: tokens.iter().map(|t| t.1).collect(),
    }
}

impl Fixture {
    fn encode(&self, text: &str) -> Vec<String> {
        let model = Spm::new(&self.vocab, &self.scores, Some(0));
        let (mut out, mut scratch) = (Vec::new(), merge::MergeScratch::default());
        model.encode(&self.vocab, text, &mut scratch, &mut out);
        // Remembered answers must not change the result.
        let first = out.len();
        model.encode(&self.vocab, text, &mut scratch, &mut out);
        assert_eq!(out[..first], out[first..]);
        out[..first]
            .iter()
            .map(|id| self.vocab.text(*id).to_owned())
            .collect()
    }

    /// The reference: join the adjacent pair of highest score, leftmost first, until no join is a token.
    fn oracle(&self, text: &str) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for i in 1..parts.len() {
                let joined = format!("{}{}", parts[i - 1], parts[i]);
                if let Some(id) = self.vocab.find(&joined)
                    && self.vocab.kind(id) == TokenKind::Normal
                    && best.is_none_or(|(score, _)| self.scores[id as usize] > score)
                {
                    best = Some((self.scores[id as usize], i));
                }
            }
            let Some((_, i)) = best else { return parts };
            let right = parts.remove(i);
            parts[i - 1].push_str(&right);
        }
    }
}

const NORMAL: TokenKind = TokenKind::Normal;

#[test]
fn the_highest_score_goes_first() {
    let f = fixture(&[
        ("<unk>", 0.0, TokenKind::Unknown),
        ("a", -9.0, NORMAL),
        ("b", -9.0, NORMAL),
        ("c", -9.0, NORMAL),
        ("ab", -2.0, NORMAL),
        ("bc", -1.0, NORMAL),
        ("abc", -5.0, NORMAL),
    ]);
    assert_eq!(f.encode("abc"), ["abc"]);
    assert_eq!(f.encode("abab"), ["ab", "ab"]);
    assert_eq!(f.encode("abbc"), ["ab", "bc"]);
}

#[test]
fn bytes_and_unknown_stand_in() {
    let f = fixture(&[
        ("<unk>", 0.0, TokenKind::Unknown),
        ("a", -1.0, NORMAL),
        ("<0xC3>", 0.0, TokenKind::Byte),
        ("<0xA9>", 0.0, TokenKind::Byte),
    ]);
    assert_eq!(f.encode("aéa"), ["a", "<0xC3>", "<0xA9>", "a"]);
    // As in `tokenizers`: a character has all of its bytes or none; unknown characters form runs.
    assert_eq!(f.encode("ä"), ["<unk>"]);
    assert_eq!(
        f.encode("aääéäa"),
        ["a", "<unk>", "<0xC3>", "<0xA9>", "<unk>", "a"]
    );
}

#[test]
fn control_tokens_never_come_out_of_text() {
    let f = fixture(&[
        ("<unk>", 0.0, TokenKind::Unknown),
        ("<", -1.0, NORMAL),
        ("s", -1.0, NORMAL),
        (">", -1.0, NORMAL),
        ("<s", -1.0, NORMAL),
        ("<s>", 0.0, TokenKind::Control),
    ]);
    assert_eq!(f.encode("<s>"), ["<s", ">"]);
}

#[test]
fn scores_keep_their_order() {
    let scores = [
        f32::NEG_INFINITY,
        -1e30,
        -2.0,
        -1e-30,
        0.0,
        1e-30,
        7.0,
        f32::INFINITY,
    ];
    for pair in scores.windows(2) {
        assert!(priority(pair[0]) < priority(pair[1]), "{pair:?}");
    }
    assert_eq!(priority(-0.0), priority(0.0));
    assert_eq!(priority(f32::NAN), priority(f32::NEG_INFINITY));
    assert!(scores.iter().all(|s| priority(*s) != 0));
}

#[test]
fn merging_follows_the_definition() {
    let token = prop::collection::vec(prop::sample::select(vec!['▁', 'a', 'b', 'é']), 1..4)
        .prop_map(|chars| chars.into_iter().collect::<String>());
    let strategy = (
        prop::collection::btree_map(token, -3i32..0, 0..25),
        prop::collection::vec(prop::sample::select(vec!['▁', 'a', 'b', 'é']), 0..40)
            .prop_map(|chars| chars.into_iter().collect::<String>()),
    );
    proptest!(ProptestConfig::with_cases(1500), |((tokens, text) in strategy)| {
        let mut list = vec![("<unk>", 0.0, TokenKind::Unknown)];
        for c in ["▁", "a", "b", "é"] {
            if !tokens.contains_key(c) {
                list.push((c, -9.0, NORMAL));
            }
        }
        list.extend(tokens.iter().map(|(text, score)| (text.as_str(), *score as f32, NORMAL)));
        let f = fixture(&list);
        prop_assert_eq!(f.encode(&text), f.oracle(&text));
    });
}

#[test]
fn a_text_without_borders_takes_n_log_n() {
    let tokens: Vec<_> = (0..12).map(|i| "a".repeat(1 << i)).collect();
    let mut list = vec![("<unk>", 0.0, TokenKind::Unknown)];
    list.extend(
        tokens
            .iter()
            .enumerate()
            .map(|(i, t)| (t.as_str(), -(i as f32), NORMAL)),
    );
    let f = fixture(&list);
    assert_eq!(f.encode(&"a".repeat(1 << 16)).len(), 1 << 5);
}
