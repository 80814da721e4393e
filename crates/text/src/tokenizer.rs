//! The tokenizer: text to token ids and back.

use crate::detokenize::{DecodeOptions, Decoder};
use crate::model::TokenModel;
use crate::model::merge::MergeScratch;
use crate::normalize::Normalizer;
use crate::pretokenize::PreTokenizer;
use crate::special::{Control, Segment, Splitter, touches};
use crate::vocab::{TokenKind, Vocab};
use crate::warning::Warning;
use std::borrow::Cow;
use std::ops::Range;

/// Turns text into token ids and token ids into text.
///
/// Made by [`Tokenizer::from_gguf`] or [`Tokenizer::from_hf`]. It never changes while it encodes,
/// so one tokenizer serves any number of threads.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) vocab: Vocab,
    /// Special tokens looked for in the text as given.
    pub(crate) special: Splitter,
    pub(crate) normalizer: Normalizer,
    /// Special tokens looked for in the normalized text.
    pub(crate) special_normalized: Splitter,
    pub(crate) pre_tokenizer: PreTokenizer,
    pub(crate) model: TokenModel,
    pub(crate) ids: SpecialIds,
    pub(crate) leading_space: LeadingSpace,
    /// Found while the files were read.
    pub(crate) warnings: Vec<Warning>,
}

/// Ids with a role.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecialIds {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) unknown: Option<u32>,
    /// Put in front of a text.
    pub(crate) prefix: Vec<u32>,
    /// Put in front of a conversation whose template does not write it.
    pub(crate) chat_prefix: Vec<u32>,
    /// Put behind a text.
    pub(crate) suffix: Vec<u32>,
    /// Sorted.
    pub(crate) end_of_generation: Vec<u32>,
}

/// Treatment of a space at the start of decoded text, where encoding put one in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeadingSpace {
    /// Nothing.
    Keep,
    /// One is dropped.
    DropOne,
    /// All spaces of the first token are dropped.
    DropInFirstToken,
    /// The first token prints no space, and keeps its mark as a continuation of a word.
    WordPiece,
}

/// Options of [`Tokenizer::encode`] besides cutting text into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds the tokens that the model expects around a text: most often a begin-of-sequence token in front.
    pub add_special: bool,
    /// Recognises control tokens such as `<|eot_id|>` in the text. Without it they are ordinary
    /// text, as a user's text should be. User-defined tokens are recognised either way.
    pub parse_special: bool,
}

impl Tokenizer {
    /// The token ids of a text.
    ///
    /// Every text has an encoding. Bytes that no token can express are left out (byte-level
    /// vocabularies have a token for each) or become the unknown token.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 4);
        self.encode_into(text, options, &mut out);
        out
    }

    /// Appends the token ids of a text to a list.
    pub fn encode_into(&self, text: &str, options: EncodeOptions, out: &mut Vec<u32>) {
        if options.add_special {
            out.extend_from_slice(&self.ids.prefix);
        }
        let control = match options.parse_special {
            true => Control::TokenExcept(&[]),
            false => Control::Text,
        };
        self.encode_text(text, control, out);
        if options.add_special {
            out.extend_from_slice(&self.ids.suffix);
        }
    }

    pub(crate) fn encode_text(&self, text: &str, control: Control<'_>, out: &mut Vec<u32>) {
        let mut scratch = MergeScratch::default();
        let mut first = true;
        self.special.split(text, control, &mut |segment| {
            match segment {
                Segment::Token(id) => out.push(id),
                Segment::Text(part) => {
                    let start = part.as_ptr().addr() - text.as_ptr().addr();
                    let control = within(control, start..start + part.len());
                    self.encode_segment(part, control, first, &mut scratch, out);
                }
            }
            first = false;
        });
    }

    fn encode_segment(
        &self,
        text: &str,
        control: Control<'_>,
        mut first: bool,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        first &= !self.pre_tokenizer.asks_for_first() || !self.normalizer.drops_start(text);
        let text = self.normalizer.apply(text);
        self.special_normalized
            .split(&text, control, &mut |segment| {
                match segment {
                    Segment::Token(id) => out.push(id),
                    Segment::Text(text) => self.pre_tokenizer.split(text, first, &mut |piece| {
                        self.model.encode(&self.vocab, piece, scratch, out);
                    }),
                }
                first = false;
            });
    }

    /// The text of token ids, as the start of a text. Bytes that are not UTF-8 become U+FFFD; ids
    /// outside the vocabulary print nothing. With `skip_special`, control tokens print nothing
    /// either.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let options = DecodeOptions {
            skip_special,
            ..DecodeOptions::default()
        };
        let mut decoder = Decoder::new(options);
        let mut text = String::with_capacity(ids.len() * 4);
        ids.iter().for_each(|id| decoder.push(self, *id, &mut text));
        decoder.finish(&mut text);
        text
    }

    /// The bytes a token prints. A control token prints its text; an id outside the vocabulary
    /// nothing.
    pub fn token_bytes(&self, id: u32) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.vocab.piece(id))
    }

    /// The text of a token as the vocabulary spells it: `Ġthe`, `▁the`, `<0x0A>`. Empty outside
    /// the vocabulary.
    pub fn token_text(&self, id: u32) -> &str {
        self.vocab.text(id)
    }

    /// The kind of a token.
    pub fn token_kind(&self, id: u32) -> TokenKind {
        self.vocab.kind(id)
    }

    /// The token with a text, spelled as the vocabulary spells it.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.vocab.find(text)
    }

    /// Number of token ids, holes included. A model's embedding table may have more rows.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The begin-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.ids.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.ids.eos
    }

    /// The text of the begin-of-sequence token, as chat templates write it.
    pub fn bos_text(&self) -> Option<&str> {
        self.ids.bos.map(|id| self.vocab.text(id))
    }

    /// The text of the end-of-sequence token, as chat templates write it.
    pub fn eos_text(&self) -> Option<&str> {
        self.ids.eos.map(|id| self.vocab.text(id))
    }

    /// The token for text that the vocabulary cannot express.
    pub fn unknown(&self) -> Option<u32> {
        self.ids.unknown
    }

    /// The tokens that `add_special` puts in front of a text.
    pub fn prefix(&self) -> &[u32] {
        &self.ids.prefix
    }

    /// The tokens that `add_special` puts behind a text.
    pub fn suffix(&self) -> &[u32] {
        &self.ids.suffix
    }

    /// Whether `add_special` puts the begin-of-sequence token in front of a text.
    pub fn add_bos(&self) -> bool {
        self.ids
            .bos
            .is_some_and(|bos| self.ids.prefix.contains(&bos))
    }

    /// Whether `add_special` puts the end-of-sequence token behind a text.
    pub fn add_eos(&self) -> bool {
        self.ids
            .eos
            .is_some_and(|eos| self.ids.suffix.contains(&eos))
    }

    /// Whether a token ends generation.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.ids.end_of_generation.binary_search(&id).is_ok()
    }

    /// The tokens that end generation, in ascending order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.ids.end_of_generation
    }

    /// Adds tokens that end generation, such as those a `generation_config.json` names. Ids
    /// outside the vocabulary are ignored.
    pub fn add_end_of_generation(&mut self, ids: &[u32]) {
        let n_vocab = self.vocab.len();
        let list = &mut self.ids.end_of_generation;
        list.extend(ids.iter().filter(|id| (**id as usize) < n_vocab));
        list.sort_unstable();
        list.dedup();
    }

    /// Whether a token is a control token or the unknown token: not text.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.vocab.kind(id), TokenKind::Control | TokenKind::Unknown)
    }
}

/// Treatment of control tokens in a part of a text after normalization, which moves everything. A
/// part that has literal text in it is literal as a whole.
fn within(control: Control<'_>, part: Range<usize>) -> Control<'_> {
    match control {
        Control::TokenExcept(literal) if !touches(literal, &part) => Control::TokenExcept(&[]),
        _ => Control::Text,
    }
}
