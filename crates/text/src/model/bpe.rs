//! Byte-pair encoding, over bytes and over characters.

use super::merge::{MergeScratch, Merges, NO_TOKEN};
use super::{ByteTokens, WholeWords, has_inner_mark, words};
use crate::pretokenize::SPACE_MARK;
use crate::vocab::{TokenKind, Vocab};

/// BPE whose symbols are bytes.
#[derive(Debug)]
pub(crate) struct ByteBpe {
    merges: Merges,
    /// Whether a piece that is a token becomes that token, without regard to its merges.
    ignore_merges: bool,
    /// The token of each byte.
    symbols: Box<[u32; 256]>,
    /// Replaces a byte without a token; if absent, such a byte is dropped.
    unknown: Unknown,
    whole: WholeWords,
}

/// Replacement of a symbol that has no token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unknown {
    /// The token, if there is one.
    pub(crate) id: Option<u32>,
    /// Whether a run of such symbols is one token.
    pub(crate) fuse: bool,
}

/// Settings that a model may have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BpeOptions {
    pub(crate) ignore_merges: bool,
    pub(crate) unknown: Unknown,
    /// Whether characters without a token are written as bytes.
    pub(crate) byte_fallback: bool,
    /// Whether a piece of line ends that is a token becomes that token, without regard to its merges.
    pub(crate) whole_line_ends: bool,
}

impl ByteBpe {
    pub(crate) fn new(vocab: &Vocab, merges: Merges, options: BpeOptions) -> ByteBpe {
        let mut symbols = Box::new([NO_TOKEN; 256]);
        for (byte, symbol) in (0..=255u8).zip(symbols.iter_mut()) {
            *symbol = vocab.word(&[byte]).unwrap_or(NO_TOKEN);
        }
        ByteBpe {
            merges,
            ignore_merges: options.ignore_merges,
            symbols,
            unknown: options.unknown,
            whole: WholeWords::new(vocab.len()),
        }
    }

    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        piece: &str,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        let whole = vocab.word(piece.as_bytes());
        if let Some(id) = whole
            && (self.ignore_merges || self.whole.is_itself(id) == Some(true))
        {
            out.push(id);
            return;
        }
        scratch.symbols.clear();
        let mut pending = UnknownRun::new(self.unknown);
        for byte in piece.bytes() {
            match self.symbols[usize::from(byte)] {
                NO_TOKEN => pending.unknown(&mut scratch.symbols),
                id => pending.known(id, &mut scratch.symbols),
            }
        }
        pending.end(&mut scratch.symbols);
        self.merges.apply(scratch);
        if let Some(id) = whole {
            self.whole.learn(id, &scratch.symbols);
        }
        out.extend_from_slice(&scratch.symbols);
    }
}

/// BPE whose symbols are characters.
#[derive(Debug)]
pub(crate) struct CharBpe {
    merges: Merges,
    ignore_merges: bool,
    whole_line_ends: bool,
    unknown: Unknown,
    /// For characters without a token, where the model falls back to bytes.
    bytes: Option<ByteTokens>,
    /// The token of each ASCII character.
    ascii: Box<[u32; 128]>,
    /// Whether words can be encoded one by one (see [`words`]).
    by_words: bool,
    whole: WholeWords,
}

impl CharBpe {
    pub(crate) fn new(vocab: &Vocab, merges: Merges, options: BpeOptions) -> CharBpe {
        let mut ascii = Box::new([NO_TOKEN; 128]);
        let mut buffer = [0; 4];
        for (byte, symbol) in (0..128u8).zip(ascii.iter_mut()) {
            *symbol = vocab
                .find_in_text(char::from(byte).encode_utf8(&mut buffer))
                .unwrap_or(NO_TOKEN);
        }
        // The mark must be a token, or else a run of unknown characters could be fused across a border.
        let mark_is_known = vocab
            .find_in_text(SPACE_MARK.encode_utf8(&mut buffer))
            .is_some();
        let by_words = mark_is_known && merges.products().all(|id| !has_inner_mark(vocab.text(id)));
        CharBpe {
            merges,
            ignore_merges: options.ignore_merges,
            whole_line_ends: options.whole_line_ends,
            unknown: options.unknown,
            bytes: options.byte_fallback.then(|| ByteTokens::find(vocab)),
            ascii,
            by_words,
            whole: WholeWords::new(vocab.len()),
        }
    }

    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        piece: &str,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        if self.by_words && !self.ignore_merges {
            words(piece).for_each(|word| self.encode_word(vocab, word, scratch, out));
        } else {
            self.encode_word(vocab, piece, scratch, out);
        }
    }

    fn encode_word(
        &self,
        vocab: &Vocab,
        word: &str,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        let ordinary =
            |id: &u32| matches!(vocab.kind(*id), TokenKind::Normal | TokenKind::UserDefined);
        let whole = vocab.find_in_text(word).filter(ordinary);
        let ignores_merges =
            self.ignore_merges || (self.whole_line_ends && word.bytes().all(|byte| byte == b'\n'));
        if let Some(id) = whole
            && (ignores_merges || self.whole.is_itself(id) == Some(true))
        {
            out.push(id);
            return;
        }
        self.symbols(vocab, word, &mut scratch.symbols);
        self.merges.apply(scratch);
        if let Some(id) = whole {
            self.whole.learn(id, &scratch.symbols);
        }
        out.extend_from_slice(&scratch.symbols);
    }

    /// The characters of a word as tokens.
    fn symbols(&self, vocab: &Vocab, word: &str, symbols: &mut Vec<u32>) {
        symbols.clear();
        let mut pending = UnknownRun::new(self.unknown);
        let mut buffer = [0; 4];
        for c in word.chars() {
            let known = match self.ascii.get(c as usize) {
                Some(&id) => (id != NO_TOKEN).then_some(id),
                None => vocab.find_in_text(c.encode_utf8(&mut buffer)),
            };
            if let Some(id) = known {
                pending.known(id, symbols);
            } else if !self.as_bytes(c, symbols) {
                pending.unknown(symbols);
            }
        }
        pending.end(symbols);
    }

    /// Appends the byte tokens of a character, if the model has all of them.
    fn as_bytes(&self, c: char, symbols: &mut Vec<u32>) -> bool {
        let Some(tokens) = &self.bytes else {
            return false;
        };
        let (mut buffer, start) = ([0; 4], symbols.len());
        for byte in c.encode_utf8(&mut buffer).bytes() {
            let Some(id) = tokens.get(byte) else {
                symbols.truncate(start);
                return false;
            };
            symbols.push(id);
        }
        true
    }
}

/// Unknown symbols that wait for the next known one, so that a run of them can be one token.
struct UnknownRun {
    unknown: Unknown,
    waiting: Option<u32>,
}

impl UnknownRun {
    fn new(unknown: Unknown) -> UnknownRun {
        UnknownRun {
            unknown,
            waiting: None,
        }
    }

    #[inline]
    fn known(&mut self, id: u32, symbols: &mut Vec<u32>) {
        symbols.extend(self.waiting.take());
        symbols.push(id);
    }

    fn unknown(&mut self, symbols: &mut Vec<u32>) {
        if !self.unknown.fuse {
            symbols.extend(self.waiting.take());
        }
        self.waiting = self.unknown.id;
    }

    fn end(&mut self, symbols: &mut Vec<u32>) {
        symbols.extend(self.waiting.take());
    }
}

#[cfg(test)]
mod tests;
