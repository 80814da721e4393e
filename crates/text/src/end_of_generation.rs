//! Which tokens end generation.
//!
//! Files name one or two such tokens, chat models use more. The well-known ones are recognised by
//! their texts.

use crate::vocab::{TokenKind, Vocab};

/// Texts that end a turn or a text. No ordinary text is tokenized to them, whatever kind the file
/// gives them.
const MARKUP: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// Texts that end generation only as control tokens: as ordinary tokens they may be part of a text.
const IF_CONTROL: &[&str] = &["</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"];

/// In a vocabulary that has both of these, `<|end|>` ends a message, not the generation.
const HARMONY: [&str; 2] = ["<|return|>", "<|call|>"];

/// The kind of a token: a well-known text is a control token even if the file calls it an ordinary
/// one.
pub(crate) fn kind_of(text: &str, kind: TokenKind) -> TokenKind {
    match kind {
        TokenKind::Normal if text.starts_with('<') && MARKUP.contains(&text) => TokenKind::Control,
        _ => kind,
    }
}

/// The tokens that end generation: those named and the well-known ones. Sorted.
pub(crate) fn find(vocab: &Vocab, named: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let has = |text: &&str| vocab.find(text).is_some();
    let is_harmony = HARMONY.iter().all(has);
    let markup = MARKUP
        .iter()
        .filter(|text| !(is_harmony && **text == "<|end|>"));
    let is_marked =
        |id: &u32| matches!(vocab.kind(*id), TokenKind::Control | TokenKind::UserDefined);
    let known = markup
        .chain(IF_CONTROL)
        .filter_map(|text| vocab.find(text))
        .filter(is_marked);
    let mut ids: Vec<u32> = known.chain(named).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(tokens: &[(&str, TokenKind)]) -> Vocab {
        let mut vocab = Vocab::with_capacity(tokens.len());
        for (text, kind) in tokens {
            vocab.push(text, *kind, text.as_bytes(), false).unwrap();
        }
        vocab
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
        ]);
        assert_eq!(find(&v, [0]), [0, 1, 4]);
        assert_eq!(kind_of("<|endoftext|>", Normal), Control);
        assert_eq!(kind_of("<|endoftext|>", UserDefined), UserDefined);
        assert_eq!(kind_of("</s>", Normal), Normal);
    }

    #[test]
    fn harmony_ends_messages_without_ending_generation() {
        let v = vocab(&["<|end|>", "<|return|>", "<|call|>"].map(|t| (t, TokenKind::Control)));
        assert_eq!(find(&v, []), [1, 2]);
    }
}
