//! RWKV's World vocabularies (`rwkv`): byte strings, written as Python writes the bytes of a literal.

use super::{Defaults, GgufVocab, plain, splitter};
use crate::model::TokenModel;
use crate::model::longest::Longest;
use crate::normalize::Normalizer;
use crate::pretokenize::PreTokenizer;
use crate::special::Splitter;
use crate::tokenizer::LeadingSpace;
use crate::vocab::{Reach, TokenKind, Vocab};
use crate::{Error, Tokenizer};

pub(super) fn build(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    for ((text, kind), id) in gguf.tokens.iter().zip(gguf.kinds()).zip(0u64..) {
        let printed = match kind {
            TokenKind::Normal | TokenKind::Byte => {
                bytes_of(text).map_err(|reason| Error::TokenId {
                    id,
                    text: (*text).to_owned(),
                    reason,
                })?
            }
            _ => text.as_bytes().to_vec(),
        };
        vocab.push(text, kind, &printed, Reach::of_kind(kind))?;
    }
    let ids = gguf.special_ids(&vocab, Defaults::default())?;
    Ok(Tokenizer {
        special: splitter(&vocab)?,
        normalizer: Normalizer { rules: Vec::new() },
        special_normalized: Splitter::default(),
        pre_tokenizer: PreTokenizer::default(),
        model: TokenModel::Longest(Longest::new(&vocab, plain(ids.unknown, &vocab))),
        ids,
        leading_space: LeadingSpace::Keep,
        warnings: Vec::new(),
        vocab,
    })
}

/// The bytes that a text represents: `\t`, `\n`, `\r`, `\x` with two digits, and any other character behind `\` itself.
fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let [escaped, behind @ ..] = rest else {
            return Err("it ends with a \\, behind which a character must stand".to_owned());
        };
        rest = behind;
        out.push(match escaped {
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'x' => {
                let digits = rest.split_at_checked(2).map(|(digits, _)| digits);
                let byte = digits
                    .and_then(byte_of)
                    .ok_or_else(|| "behind \\x two digits from 0 to f must stand".to_owned())?;
                rest = &rest[2..];
                byte
            }
            other => *other,
        });
    }
    Ok(out)
}

fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let &[high, low] = digits else {
        return None;
    };
    u8::try_from(16 * digit(high)? + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EncodeOptions;

    fn world<'a>(tokens: &[&'a str]) -> GgufVocab<'a> {
        let mut all = vec!["<s>"];
        all.extend_from_slice(tokens);
        GgufVocab {
            model: "rwkv",
            token_types: [vec![3], vec![1; tokens.len()]].concat(),
            tokens: all,
            bos: Some(0),
            eos: Some(0),
            ..GgufVocab::default()
        }
    }

    #[test]
    fn the_longest_byte_string_is_taken() {
        let tokens = [
            "\\x00", "\\n", "\\n\\n", "a", "ab", "abcd", "\\xc3", "\\xa9", "b\\xc3", "\\\\", "\\'",
            "c",
        ];
        let t = Tokenizer::from_gguf(world(&tokens)).unwrap();
        let options = EncodeOptions::default();
        for (text, ids) in [
            ("a", &[4][..]),
            ("abcd", &[6]),
            // `ab` and not the longer token that the text does not finish.
            ("abc", &[5, 12]),
            // A token may end within a character, and longer ones come first even so.
            ("bé", &[9, 8]),
            ("é", &[7, 8]),
            ("\n\n\n", &[3, 2]),
            ("\\'\0", &[10, 11, 1]),
            // `z` has no token, and a text never becomes control tokens.
            ("az<s>", &[4]),
            ("", &[]),
        ] {
            assert_eq!(t.encode(text, options), ids, "{text:?}");
        }
        assert_eq!(t.decode(&[9, 8, 3, 6], false), "bé\n\nabcd");
        assert_eq!(t.token_bytes(7).as_ref(), [0xc3]);
        assert_eq!(t.decode(&[7], false), "\u{fffd}");
        let special = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        assert_eq!(t.encode("a<s>", special), [4, 0]);
    }

    #[test]
    fn texts_that_are_no_literals_are_named() {
        for (text, words) in [
            ("a\\", ["token id 1", "ends with"]),
            ("\\x", ["token id 1", "two digits"]),
            ("\\x1", ["token id 1", "two digits"]),
            ("\\xg1", ["token id 1", "two digits"]),
            ("\\x+1", ["token id 1", "two digits"]),
            ("\\xé", ["token id 1", "two digits"]),
        ] {
            let error = Tokenizer::from_gguf(world(&[text]))
                .unwrap_err()
                .to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn long_tokens_do_not_make_long_texts_slow() {
        let long = "a".repeat(100_000);
        let t = Tokenizer::from_gguf(world(&[&long, "a"])).unwrap();
        let text = "a".repeat(90_000);
        assert_eq!(t.encode(&text, EncodeOptions::default()).len(), 90_000);
    }
}
