//! BPE over bytes and over characters, on vocabularies small enough to follow by hand.

use super::*;
use crate::model::merge::resolve;
use crate::vocab::Reach;

fn vocab(tokens: &[&str], words: bool) -> Vocab {
    let by = |kind| match Reach::of_kind(kind) {
        Reach::ByText if words => Reach::ByBytes,
        reach => reach,
    };
    let mut vocab = Vocab::with_capacity(tokens.len());
    for token in tokens {
        let is_byte = crate::model::byte_of_text(token).is_some();
        let kind = match *token {
            "<unk>" => TokenKind::Unknown,
            _ if is_byte => TokenKind::Byte,
            _ => TokenKind::Normal,
        };
        vocab.push(token, kind, token.as_bytes(), by(kind)).unwrap();
    }
    vocab
}

fn merges(vocab: &Vocab, pairs: &[(&str, &str)]) -> Merges {
    let mut table = Merges::with_capacity(pairs.len());
    let mut joined = String::new();
    for (rank, (left, right)) in pairs.iter().enumerate() {
        table.insert(
            rank as u32,
            resolve(vocab, left, right, &mut joined).unwrap(),
            false,
        );
    }
    table
}

fn texts(vocab: &Vocab, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|id| vocab.text(*id).to_owned()).collect()
}

#[test]
fn a_token_that_merges_do_not_reach_needs_ignore_merges() {
    let vocab = vocab(&["a", "b", "c", "ab", "bc", "abc"], true);
    let pairs = [("b", "c"), ("a", "b")];
    for (ignore_merges, want) in [(false, vec!["a", "bc"]), (true, vec!["abc"])] {
        let options = BpeOptions {
            ignore_merges,
            ..Default::default()
        };
        let model = ByteBpe::new(&vocab, merges(&vocab, &pairs), options);
        // Twice: the second time the answer is remembered.
        for _ in 0..2 {
            let mut out = Vec::new();
            model.encode(&vocab, "abc", &mut MergeScratch::default(), &mut out);
            assert_eq!(texts(&vocab, &out), want);
        }
    }
}

#[test]
fn bytes_without_a_token_become_unknown_or_nothing() {
    let vocab = vocab(&["a", "b", "<unk>"], true);
    for (id, fuse, want) in [
        (None, false, vec!["a", "b"]),
        (Some(2), false, vec!["a", "<unk>", "<unk>", "b", "<unk>"]),
        (Some(2), true, vec!["a", "<unk>", "b", "<unk>"]),
    ] {
        let options = BpeOptions {
            unknown: Unknown { id, fuse },
            ..Default::default()
        };
        let model = ByteBpe::new(&vocab, merges(&vocab, &[]), options);
        let mut out = Vec::new();
        model.encode(&vocab, "axxbx", &mut MergeScratch::default(), &mut out);
        assert_eq!(texts(&vocab, &out), want);
    }
}

#[test]
fn characters_fall_back_to_bytes() {
    let vocab = vocab(&["<unk>", "<0xC3>", "<0xA9>", "▁", "a", "▁a", "é́"], false);
    let options = BpeOptions {
        unknown: Unknown {
            id: Some(0),
            fuse: true,
        },
        byte_fallback: true,
        ..Default::default()
    };
    let model = CharBpe::new(&vocab, merges(&vocab, &[("▁", "a")]), options);
    assert!(model.by_words);
    let mut out = Vec::new();
    model.encode(&vocab, "▁aé▁我们a", &mut MergeScratch::default(), &mut out);
    assert_eq!(
        texts(&vocab, &out),
        ["▁a", "<0xC3>", "<0xA9>", "▁", "<unk>", "a"]
    );
}

#[test]
fn a_token_across_words_keeps_the_text_whole() {
    let tokens = ["▁", "a", "b", "a▁", "a▁b"];
    let vocab = vocab(&tokens, false);
    let model = CharBpe::new(
        &vocab,
        merges(&vocab, &[("a", "▁"), ("a▁", "b")]),
        BpeOptions::default(),
    );
    assert!(!model.by_words);
    let mut out = Vec::new();
    model.encode(&vocab, "a▁b", &mut MergeScratch::default(), &mut out);
    assert_eq!(texts(&vocab, &out), ["a▁b"]);
}
