//! Decoders of `tokenizer.json`: the bytes that each token prints.
//!
//! A decoder is a chain of rules over the list of token texts. For streaming, the output of a token
//! must depend on that token alone, but for a space at the start of the text. Every decoder of the
//! supported models is so.

use super::parts::{fields, flatten, kind_of, metaspace_decoder, replace_decoder, unsupported};
use crate::Error;
use crate::byte_alphabet;
use crate::detokenize::clean_up;
use crate::model::byte_of_text;
use crate::pretokenize::Pattern;
use crate::tokenizer::LeadingSpace;
use serde::Deserialize;
use serde_json::Value;

/// Rules that turn token texts into bytes.
#[derive(Debug)]
pub(crate) struct PieceDecoder {
    rules: Vec<DecoderRule>,
    pub(crate) leading_space: LeadingSpace,
}

#[derive(Debug)]
enum DecoderRule {
    /// Characters of the byte alphabet are bytes.
    ByteLevel,
    /// `<0x0A>` is a byte.
    ByteFallback,
    /// Every match becomes another text.
    Replace(Pattern, String),
    /// A prefix marks tokens that continue a word; others have a space in front.
    WordPiece {
        /// The prefix.
        prefix: String,
        /// Whether spaces that English does not write are dropped.
        cleanup: bool,
    },
    /// Up to this number of a character are dropped at the start of each token.
    StripStart(char, usize),
}

/// Replacements may make a token's text this many times longer.
const MAX_GROWTH: usize = 256;

const DECODERS: &str =
    "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece (alone), Sequence";

#[derive(Deserialize)]
struct DecoderStrip {
    content: char,
    start: usize,
    stop: usize,
}

#[derive(Deserialize)]
struct DecoderWordPiece {
    prefix: String,
    cleanup: bool,
}

impl PieceDecoder {
    /// The `decoder` of a file. Without one, tokens print their texts; `byte_level` ones their
    /// bytes.
    pub(crate) fn new(value: &Value, byte_level: bool) -> Result<PieceDecoder, Error> {
        let mut decoder = PieceDecoder {
            rules: Vec::new(),
            leading_space: LeadingSpace::Keep,
        };
        let parts = flatten(value, "decoders");
        if parts.is_empty() && byte_level {
            decoder.rules.push(DecoderRule::ByteLevel);
        }
        let is_alone = parts.len() == 1;
        let mut fused = false;
        let mut growth = 1usize;
        for part in parts {
            match kind_of(part) {
                Some("ByteLevel") => decoder.rules.push(DecoderRule::ByteLevel),
                Some("ByteFallback") => decoder.rules.push(DecoderRule::ByteFallback),
                Some("Fuse") => fused = true,
                Some("Replace") if !fused => {
                    let (pattern, content) = replace_decoder(part)?;
                    growth = growth.saturating_mul(content.len().max(1));
                    if growth > MAX_GROWTH {
                        return Err(Error::UnsupportedSetting {
                            part: "decoder Replace",
                            found: format!("growth by {growth} times"),
                            hint: "supported: 256 times",
                        });
                    }
                    decoder.rules.push(DecoderRule::Replace(pattern, content));
                }
                Some("Metaspace") if !fused => {
                    let (mark, drops) = metaspace_decoder(part)?;
                    let pattern = Pattern::Literal(mark.to_string());
                    decoder
                        .rules
                        .push(DecoderRule::Replace(pattern, " ".to_owned()));
                    if drops {
                        decoder.leading_space = LeadingSpace::DropInFirstToken;
                    }
                }
                // In a chain the tokens before it would decide which token is the first.
                Some("WordPiece") if is_alone => {
                    let DecoderWordPiece { prefix, cleanup } = fields(part)?;
                    decoder
                        .rules
                        .push(DecoderRule::WordPiece { prefix, cleanup });
                    decoder.leading_space = LeadingSpace::WordPiece;
                }
                Some("Strip") => decoder.strip(part, fused)?,
                _ => return Err(unsupported("decoder", part, DECODERS)),
            }
        }
        Ok(decoder)
    }

    fn strip(&mut self, value: &Value, fused: bool) -> Result<(), Error> {
        let DecoderStrip {
            content,
            start,
            stop,
        } = fields(value)?;
        match (fused, content, start, stop) {
            (_, _, 0, 0) => {}
            (true, ' ', 1, 0) => self.leading_space = LeadingSpace::DropOne,
            (false, _, _, 0) => self.rules.push(DecoderRule::StripStart(content, start)),
            _ => {
                return Err(Error::UnsupportedSetting {
                    part: "decoder Strip",
                    found: format!("content {content:?}, start {start}, stop {stop}"),
                    hint: "supported: one space at the start of the text",
                });
            }
        }
        Ok(())
    }

    /// Whether words are written with spaces between them, control tokens included.
    pub(crate) fn spaces_words(&self) -> bool {
        self.leading_space == LeadingSpace::WordPiece
    }

    /// Appends the bytes that a token with this text prints.
    pub(crate) fn decode_into(&self, text: &str, out: &mut Vec<u8>) {
        let mut text = std::borrow::Cow::Borrowed(text);
        for rule in &self.rules {
            match rule {
                DecoderRule::ByteLevel => {
                    if byte_alphabet::decode_into(&text, out) {
                        return;
                    }
                }
                DecoderRule::ByteFallback => {
                    if let Some(byte) = byte_of_text(&text) {
                        return out.push(byte);
                    }
                }
                DecoderRule::Replace(pattern, content) => {
                    let mut replaced = String::with_capacity(text.len());
                    pattern.parts(&text, &mut |part, is_match| {
                        replaced.push_str(if is_match { content } else { part });
                    });
                    text = replaced.into();
                }
                DecoderRule::WordPiece { prefix, cleanup } => {
                    let word = match text.strip_prefix(prefix.as_str()) {
                        Some(rest) => rest.to_owned(),
                        None => format!(" {text}"),
                    };
                    text = if *cleanup { clean_up(&word) } else { word }.into();
                }
                DecoderRule::StripStart(c, limit) => {
                    let n = text
                        .chars()
                        .take(*limit)
                        .take_while(|found| found == c)
                        .count();
                    text = text[n * c.len_utf8()..].to_owned().into();
                }
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decoded(decoder: &PieceDecoder, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        decoder.decode_into(text, &mut out);
        out
    }

    #[test]
    fn sentencepiece_chain() {
        let chain = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let decoder = PieceDecoder::new(&chain, false).unwrap();
        assert_eq!(decoder.leading_space, LeadingSpace::DropOne);
        assert_eq!(decoded(&decoder, "▁a▁b"), b" a b");
        assert_eq!(decoded(&decoder, "<0xE2>"), [0xE2]);
    }

    #[test]
    fn bytes_and_metaspace() {
        let decoder = PieceDecoder::new(&Value::Null, true).unwrap();
        assert_eq!(decoded(&decoder, "Ġé"), [b' ', 0xE9]);
        assert_eq!(decoded(&decoder, "a b"), b"a b");
        let metaspace = json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"});
        let decoder = PieceDecoder::new(&metaspace, false).unwrap();
        assert_eq!(decoder.leading_space, LeadingSpace::DropInFirstToken);
        assert_eq!(decoded(&decoder, "_a"), b" a");
        let strip = json!({"type": "Strip", "content": "x", "start": 2, "stop": 0});
        assert_eq!(
            decoded(&PieceDecoder::new(&strip, false).unwrap(), "xxxa"),
            b"xa"
        );
    }

    #[test]
    fn word_pieces() {
        let json = |cleanup| json!({"type": "WordPiece", "prefix": "##", "cleanup": cleanup});
        for (cleanup, text, want) in [
            (true, "mill", " mill"),
            (true, "##er", "er"),
            (true, ".", "."),
            (false, ".", " ."),
            (true, "[SEP]", " [SEP]"),
        ] {
            let decoder = PieceDecoder::new(&json(cleanup), false).unwrap();
            assert_eq!(decoded(&decoder, text), want.as_bytes(), "{text}");
        }
    }

    #[test]
    fn others_are_refused_by_name() {
        for (json, name) in [
            (
                json!({"type": "Sequence", "decoders": [{"type": "Fuse"},
                    {"type": "WordPiece", "prefix": "##", "cleanup": true}]}),
                "WordPiece",
            ),
            (
                json!({"type": "Strip", "content": " ", "start": 0, "stop": 1}),
                "stop 1",
            ),
        ] {
            let error = PieceDecoder::new(&json, false).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
