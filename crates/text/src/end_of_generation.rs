//! Which tokens end generation.
//!
//! Files name one or two such tokens, chat models use more. The well-known ones are recognised by
//! their texts, which are those that llama.cpp knows (`llama-vocab.cpp`).

use crate::vocab::{TokenKind, Vocab};

/// Texts that end a turn or a text. No ordinary text is tokenized to them, for any kind that the file gives them.
const MARKUP: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
];

/// Texts that show that a code model has left the gap that it fills: of padding, of a repository's
/// name, of the border of two files. The first that a vocabulary has counts.
const FILL: [&[&str]; 3] = [
    &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    &[
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
    ],
    &["<|file_sep|>"],
];

/// Texts that a vocabulary with both texts of a pair uses for another purpose: `(a, b, text)`.
const EXCEPT: [(&str, &str, &str); 3] = [
    // It ends a message, not the generation.
    ("<|return|>", "<|call|>", "<|end|>"),
    ("<|calls|>", "<|flush|>", "<|end|>"),
    // A tag of HTML.
    ("<|tool_response>", "</s>", "</s>"),
];

/// The tokens for gaps that a file names: padding, a repository's name, the border of two files.
pub(crate) type FillIds = [Option<u32>; 3];

/// The kind of a token: a well-known text is a control token even if the file calls it an ordinary
/// one. `has` says whether the vocabulary has a text.
pub(crate) fn kind_of(text: &str, kind: TokenKind, has: impl Fn(&str) -> bool) -> TokenKind {
    // Few texts reach the list.
    if kind != TokenKind::Normal || !text.starts_with(['<', '[', '_']) || !MARKUP.contains(&text) {
        return kind;
    }
    match excepted(has).any(|except| except == text && except != "<|end|>") {
        true => kind,
        false => TokenKind::Control,
    }
}

/// The well-known texts that do not end generation in a vocabulary.
fn excepted(has: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
    let holds = move |(a, b, _): &&(&str, &str, &str)| has(a) && has(b);
    EXCEPT.iter().filter(holds).map(|(_, _, text)| *text)
}

/// The tokens that end generation: those named, those that fill gaps, and the well-known ones. Sorted.
pub(crate) fn find(vocab: &Vocab, named: impl IntoIterator<Item = u32>, fill: FillIds) -> Vec<u32> {
    let has = |text: &str| vocab.find(text).is_some();
    let except: Vec<&str> = excepted(has).collect();
    let markup = MARKUP.iter().filter(|text| !except.contains(text));
    let known = markup.filter_map(|text| vocab.find(text));
    let fill = fill.into_iter().zip(FILL).filter_map(|(id, texts)| {
        let by_text = || texts.iter().find_map(|text| vocab.find(text));
        id.or_else(by_text)
    });
    let mut ids: Vec<u32> = known.chain(fill).chain(named).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::Reach;

    fn vocab(tokens: &[(&str, TokenKind)]) -> Vocab {
        let mut vocab = Vocab::with_capacity(tokens.len());
        for (text, kind) in tokens {
            vocab
                .push(text, *kind, text.as_bytes(), Reach::of_kind(*kind))
                .unwrap();
        }
        vocab
    }

    fn controls(tokens: &[&str]) -> Vocab {
        let tokens: Vec<_> = tokens.iter().map(|t| (*t, TokenKind::Control)).collect();
        vocab(&tokens)
    }

    #[test]
    fn well_known_texts_and_named_ids() {
        use TokenKind::*;
        let v = vocab(&[
            ("a", Normal),
            ("<|im_end|>", Control),
            ("<|endoftext|>", Normal),
            ("</s>", Normal),
            ("<|end|>", UserDefined),
            ("[e~[", Normal),
        ]);
        assert_eq!(find(&v, [0], [None; 3]), [0, 1, 2, 3, 4, 5]);
        let plain = |text, kind| kind_of(text, kind, |_| false);
        assert_eq!(plain("<|endoftext|>", Normal), Control);
        assert_eq!(plain("<|endoftext|>", UserDefined), UserDefined);
        assert_eq!(plain("<|endoftext|>", Unused), Unused);
        assert_eq!(plain("</s>", Normal), Control);
        assert_eq!(plain("<b>", Normal), Normal);
        assert_eq!(kind_of("</s>", Normal, |_| true), Normal);
        assert_eq!(kind_of("<|end|>", Normal, |_| true), Control);
    }

    #[test]
    fn texts_with_another_use_do_not_end_generation() {
        for (tokens, want) in [
            (&["<|end|>", "<|return|>", "<|call|>"], [1, 2]),
            (&["<|end|>", "<|calls|>", "<|flush|>"], [1, 2]),
            (&["</s>", "<|tool_response>", "<eos>"], [1, 2]),
        ] {
            assert_eq!(find(&controls(tokens), [], [None; 3]), want, "{tokens:?}");
        }
    }

    #[test]
    fn tokens_that_fill_gaps_are_named_or_known() {
        let v = controls(&["<fim_pad>", "<PAD>", "<reponame>", "<|file_sep|>", "x"]);
        assert_eq!(find(&v, [], [None; 3]), [0, 2, 3]);
        assert_eq!(find(&v, [], [Some(4), None, None]), [2, 3, 4]);
    }
}
