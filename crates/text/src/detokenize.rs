//! Token ids to text, at once or as they are generated.

use crate::Tokenizer;
use crate::tokenizer::LeadingSpace;
use std::sync::Arc;

/// How token ids become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Control tokens print nothing. Otherwise they print their texts.
    pub skip_special: bool,
    /// The ids are the start of a text, so the space that SentencePiece puts in front of it is
    /// dropped. False for ids that continue a prompt, where this space separates words.
    pub text_start: bool,
}

impl Default for DecodeOptions {
    fn default() -> DecodeOptions {
        DecodeOptions {
            skip_special: true,
            text_start: true,
        }
    }
}

/// Decodes a stream of token ids, never cutting a character.
///
/// A token may end in the middle of a character; its bytes are held back until the rest arrives.
/// Bytes that can no longer become a character turn into U+FFFD. All texts put together equal the
/// result of [`Tokenizer::decode`] for all the ids.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    decoder: Decoder,
}

impl Detokenizer {
    /// A detokenizer at the start of a stream.
    pub fn new(tokenizer: Arc<Tokenizer>, options: DecodeOptions) -> Detokenizer {
        Detokenizer {
            tokenizer,
            decoder: Decoder::new(options),
        }
    }

    /// Takes the next token and returns the text that is now complete; often a word, sometimes nothing.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.decoder.push(&self.tokenizer, id, &mut text);
        text
    }

    /// As [`push`](Detokenizer::push), but a control token prints its text.
    pub fn push_shown(&mut self, id: u32) -> String {
        let skips = std::mem::replace(&mut self.decoder.options.skip_special, false);
        let text = self.push(id);
        self.decoder.options.skip_special = skips;
        text
    }

    /// Ends the stream: bytes that were held back are not a character and become U+FFFD. Afterwards
    /// the detokenizer is at the start of a new stream.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        self.decoder.finish(&mut text);
        text
    }

    /// Whether bytes are held back because they may be the beginning of a character.
    pub fn is_mid_character(&self) -> bool {
        !self.decoder.pending.is_empty()
    }
}

/// State of decoding.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    options: DecodeOptions,
    /// No token has printed anything yet.
    at_start: bool,
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new(options: DecodeOptions) -> Decoder {
        Decoder {
            options,
            at_start: options.text_start,
            pending: Vec::new(),
        }
    }

    /// Appends the text that a token completes.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, id: u32, out: &mut String) {
        if self.options.skip_special && tokenizer.is_special(id) {
            return;
        }
        let mut piece = tokenizer.vocab.piece(id);
        if self.at_start && tokenizer.leading_space == LeadingSpace::WordPiece {
            let text = tokenizer.vocab.text(id).as_bytes();
            piece = match piece.strip_prefix(b" ") {
                Some(word) => word,
                None if text.len() > piece.len() && !text.starts_with(MARK) => text,
                None => piece,
            };
        }
        if piece.is_empty() {
            return;
        }
        if self.at_start {
            piece = match tokenizer.leading_space {
                LeadingSpace::Keep | LeadingSpace::WordPiece => piece,
                LeadingSpace::DropOne => piece.strip_prefix(b" ").unwrap_or(piece),
                LeadingSpace::DropInFirstToken => {
                    &piece[piece.iter().take_while(|byte| **byte == b' ').count()..]
                }
            };
            self.at_start = false;
        }
        self.bytes(piece, out);
    }

    fn bytes(&mut self, piece: &[u8], out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(piece);
            let bytes = std::mem::take(&mut self.pending);
            self.whole_characters(&bytes, out);
        } else {
            self.whole_characters(piece, out);
        }
    }

    /// Appends the characters of some bytes and keeps the beginning of one at their end.
    fn whole_characters(&mut self, bytes: &[u8], out: &mut String) {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return out.push_str(text),
                Err(error) => {
                    let (valid, tail) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).expect("valid up to there"));
                    let Some(wrong) = error.error_len() else {
                        return self.pending.extend_from_slice(tail);
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &tail[wrong..];
                }
            }
        }
    }

    /// Appends the rest, and starts anew.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        *self = Decoder::new(self.options);
    }
}

/// Bytes of [`crate::pretokenize::SPACE_MARK`] in a text.
const MARK: &[u8] = "▁".as_bytes();

/// Drops the spaces that English does not write, as WordPiece's decoders do token by token.
pub(crate) fn clean_up(text: &str) -> String {
    const PAIRS: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    PAIRS
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GgufVocab;
    use proptest::prelude::*;

    /// Every byte as a token, some multi-byte tokens that cut characters, control tokens, words.
    fn tokenizer() -> Arc<Tokenizer> {
        let mut texts: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
        texts.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
        texts.extend(["▁Hello", "▁", "▁▁▁", "é", "🦙", "llo", "我"].map(String::from));
        let mut token_types = vec![2, 3, 3];
        token_types.extend([6; 256]);
        token_types.extend([1; 7]);
        let tokens: Vec<&str> = texts.iter().map(String::as_str).collect();
        let scores = vec![0.0; tokens.len()];
        let vocab = GgufVocab {
            model: "llama",
            tokens,
            scores,
            token_types,
            ..GgufVocab::default()
        };
        Arc::new(Tokenizer::from_gguf(vocab).unwrap())
    }

    fn id(byte: u8) -> u32 {
        3 + u32::from(byte)
    }

    #[test]
    fn characters_come_whole() {
        let mut stream = Detokenizer::new(tokenizer(), DecodeOptions::default());
        for (byte, want) in "é🦙".bytes().zip(["", "é", "", "", "", "🦙"]) {
            assert_eq!(stream.push(id(byte)), want);
        }
        assert!(!stream.is_mid_character());
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn wrong_bytes_turn_into_replacements_when_certain() {
        let mut stream = Detokenizer::new(tokenizer(), DecodeOptions::default());
        assert_eq!(stream.push(id(0xF0)), "");
        assert_eq!(stream.push(id(0x9F)), "");
        assert!(stream.is_mid_character());
        // This cannot continue the character: one replacement for its two bytes.
        assert_eq!(stream.push(id(b'a')), "\u{FFFD}a");
        assert_eq!(stream.push(id(0xFF)), "\u{FFFD}");
        assert_eq!(stream.push(id(0xE2)), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
    }

    #[test]
    fn the_leading_space_goes_only_at_the_start_of_a_text() {
        let t = tokenizer();
        let hello = t.id_of("▁Hello").unwrap();
        assert_eq!(t.decode(&[1, hello, hello], true), "Hello Hello");
        assert_eq!(t.decode(&[1, hello], false), "<s> Hello");
        let options = DecodeOptions {
            text_start: false,
            ..DecodeOptions::default()
        };
        let mut stream = Detokenizer::new(t, options);
        assert_eq!(stream.push(hello), " Hello");
    }

    #[test]
    fn one_control_token_may_be_shown_among_others_that_are_not() {
        let mut stream = Detokenizer::new(tokenizer(), DecodeOptions::default());
        let shown = [stream.push(1), stream.push_shown(1), stream.push(1)];
        assert_eq!(shown, ["", "<s>", ""]);
        // Bytes that were held back come before it.
        assert_eq!(stream.push(id(0xE2)), "");
        assert_eq!(stream.push_shown(2), "\u{FFFD}</s>");
    }

    #[test]
    fn ids_outside_the_vocabulary_print_nothing() {
        assert_eq!(tokenizer().decode(&[u32::MAX, 5000], false), "");
    }

    #[test]
    fn pieces_put_together_are_the_whole() {
        let t = tokenizer();
        let n = t.n_vocab() as u32;
        let ids = prop::collection::vec(prop_oneof![0..n, 3 + 0x80..3 + 0x100u32, n - 7..n], 0..40);
        proptest!(ProptestConfig::with_cases(3000), |(ids in ids, skip_special: bool)| {
            let options = DecodeOptions { skip_special, text_start: true };
            let mut stream = Detokenizer::new(t.clone(), options);
            let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
            text.push_str(&stream.finish());
            prop_assert_eq!(&text, &t.decode(&ids, skip_special));
            let shown = ids.iter().filter(|id| !skip_special || !t.is_special(**id));
            let bytes: Vec<u8> = shown.flat_map(|id| t.token_bytes(*id).into_owned()).collect();
            let bytes = bytes.strip_prefix(b" ").unwrap_or(&bytes);
            prop_assert_eq!(text, String::from_utf8_lossy(bytes));
        });
    }
}
