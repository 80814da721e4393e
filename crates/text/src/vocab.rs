//! The tokens of a vocabulary: their texts, the bytes they print, their kinds, and the way back from a text to an id.

use crate::Error;
use crate::hash::Seed;

/// Kind of a token, with GGUF's distinctions (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of ordinary text.
    Normal,
    /// Replaces text that the vocabulary cannot express.
    Unknown,
    /// Steers the model and is not text: begin, end, roles.
    Control,
    /// Text that is always one token, in any surroundings.
    UserDefined,
    /// A number without a meaning.
    Unused,
    /// One byte, for text that has no other token.
    Byte,
}

impl TokenKind {
    /// The kind for a number in `tokenizer.ggml.token_type`; numbers outside the table count as unused.
    pub(crate) fn from_gguf(number: i32) -> TokenKind {
        match number {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            6 => TokenKind::Byte,
            _ => TokenKind::Unused,
        }
    }
}

/// How a model may come to a token of ordinary text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not at all: its text gives other tokens, unless the token is searched for as a whole before the model sees the text.
    Nowhere,
    /// By the text of the vocabulary: characters, merges, byte tokens.
    ByText,
    /// Also by the bytes it prints.
    ByBytes,
}

impl Reach {
    /// By its text, where the kind is one of ordinary text: a control token never comes out of a
    /// text that spells it.
    pub(crate) fn of_kind(kind: TokenKind) -> Reach {
        match kind {
            TokenKind::Control | TokenKind::Unknown => Reach::Nowhere,
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused | TokenKind::Byte => {
                Reach::ByText
            }
        }
    }
}

/// Byte strings numbered from 0, and the number of a byte string.
#[derive(Debug)]
pub(crate) struct StringTable {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Open addressing with linear probing; [`EMPTY`] marks a free slot.
    slots: Vec<Bucket>,
    n_indexed: usize,
    longest_indexed: usize,
    seed: Seed,
}

/// A string's number, and some bits of its hash so that most probes need not read the string.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tag: u32,
    id: u32,
}

const EMPTY: u32 = u32::MAX;

impl StringTable {
    /// An empty table with room for `n` strings.
    pub(crate) fn with_capacity(n: usize) -> StringTable {
        StringTable {
            bytes: Vec::with_capacity(n.saturating_mul(6)),
            ends: Vec::with_capacity(n),
            slots: Vec::new(),
            n_indexed: 0,
            longest_indexed: 0,
            seed: Seed::random(),
        }
    }

    /// Appends a string that [`StringTable::find`] will not find.
    pub(crate) fn push(&mut self, string: &[u8]) -> Result<u32, Error> {
        let too_large = |what| Error::TooLarge {
            what,
            limit: u64::from(u32::MAX),
        };
        // The last id is taken by the mark of a free slot.
        if self.ends.len() >= EMPTY as usize {
            return Err(too_large("the number of tokens"));
        }
        self.bytes.extend_from_slice(string);
        let end =
            u32::try_from(self.bytes.len()).map_err(|_| too_large("the bytes of all tokens"))?;
        self.ends.push(end);
        Ok(self.ends.len() as u32 - 1)
    }

    /// Makes a string findable. Of two equal strings, lookups find the first.
    pub(crate) fn index(&mut self, id: u32) {
        if (self.n_indexed + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.longest_indexed = self.longest_indexed.max(self.get(id).len());
        self.insert(id);
    }

    fn insert(&mut self, id: u32) {
        let hash = self.seed.hash_bytes(self.get(id));
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].id != EMPTY {
            if self.get(self.slots[at].id) == self.get(id) {
                return;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = Bucket {
            tag: (hash >> 32) as u32,
            id,
        };
        self.n_indexed += 1;
    }

    fn grow(&mut self) {
        let n_slots = (self.slots.len() * 2)
            .max((self.ends.capacity() * 2).next_power_of_two())
            .max(16);
        let old = std::mem::replace(&mut self.slots, vec![Bucket { tag: 0, id: EMPTY }; n_slots]);
        self.n_indexed = 0;
        for slot in old {
            if slot.id != EMPTY {
                self.insert(slot.id);
            }
        }
    }

    /// Number of strings.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string with a number; empty where there is none.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return &[];
        };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// The number of a string, if it was indexed.
    #[inline]
    pub(crate) fn find(&self, string: &[u8]) -> Option<u32> {
        if string.len() > self.longest_indexed || self.slots.is_empty() {
            return None;
        }
        let hash = self.seed.hash_bytes(string);
        let (tag, mask) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.id == EMPTY {
                return None;
            }
            if slot.tag == tag && self.get(slot.id) == string {
                return Some(slot.id);
            }
            at = (at + 1) & mask;
        }
    }
}

/// The tokens of a model.
#[derive(Debug)]
pub(crate) struct Vocab {
    /// As the file spells them; every one findable.
    texts: StringTable,
    /// The bytes that each prints. Findable only where a tokenizer looks words up by their bytes.
    pieces: StringTable,
    kinds: Vec<TokenKind>,
    reach: Vec<Reach>,
}

impl Vocab {
    /// An empty vocabulary with room for `n` tokens.
    pub(crate) fn with_capacity(n: usize) -> Vocab {
        Vocab {
            texts: StringTable::with_capacity(n),
            pieces: StringTable::with_capacity(n),
            kinds: Vec::with_capacity(n),
            reach: Vec::with_capacity(n),
        }
    }

    /// Appends a token that prints `piece`. [`Vocab::word`] finds it if it is reached by bytes.
    pub(crate) fn push(
        &mut self,
        text: &str,
        kind: TokenKind,
        piece: &[u8],
        reach: Reach,
    ) -> Result<u32, Error> {
        let id = self.texts.push(text.as_bytes())?;
        if !text.is_empty() {
            self.texts.index(id);
        }
        self.pieces.push(piece)?;
        if reach == Reach::ByBytes && !piece.is_empty() {
            self.pieces.index(id);
        }
        self.kinds.push(kind);
        self.reach.push(reach);
        Ok(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(crate) fn text(&self, id: u32) -> &str {
        std::str::from_utf8(self.texts.get(id)).expect("texts are pushed as str")
    }

    pub(crate) fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    /// The token with exactly this text.
    #[inline]
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.texts.find(text.as_bytes())
    }

    /// The token with exactly this text, if ordinary text may become it.
    #[inline]
    pub(crate) fn find_in_text(&self, text: &str) -> Option<u32> {
        self.find(text).filter(|id| self.is_reached(*id))
    }

    /// Whether ordinary text may become a token.
    #[inline]
    pub(crate) fn is_reached(&self, id: u32) -> bool {
        self.reach
            .get(id as usize)
            .is_some_and(|reach| *reach != Reach::Nowhere)
    }

    /// The ordinary token that prints exactly these bytes.
    #[inline]
    pub(crate) fn word(&self, bytes: &[u8]) -> Option<u32> {
        self.pieces.find(bytes)
    }

    /// The kind of a token; [`TokenKind::Unused`] for an id outside the vocabulary.
    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds
            .get(id as usize)
            .copied()
            .unwrap_or(TokenKind::Unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_indexed_and_nothing_else() {
        let mut table = StringTable::with_capacity(0);
        for i in 0..5000u32 {
            let id = table.push(format!("token {i}").as_bytes()).unwrap();
            if i % 3 != 0 {
                table.index(id);
            }
        }
        for i in 0..5000u32 {
            let found = table.find(format!("token {i}").as_bytes());
            assert_eq!(found, (i % 3 != 0).then_some(i));
            assert_eq!(table.get(i), format!("token {i}").as_bytes());
        }
        assert_eq!(table.find(b"token"), None);
        assert_eq!(table.find(&[b'x'; 100]), None);
        assert_eq!(table.get(5000), b"");
    }

    #[test]
    fn the_first_of_two_equal_texts_wins() {
        let mut vocab = Vocab::with_capacity(4);
        for _ in 0..2 {
            vocab
                .push("same", TokenKind::Normal, b"same", Reach::ByBytes)
                .unwrap();
        }
        vocab
            .push("", TokenKind::Unused, b"", Reach::Nowhere)
            .unwrap();
        assert_eq!(vocab.find("same"), Some(0));
        assert_eq!(vocab.word(b"same"), Some(0));
        assert_eq!(vocab.find(""), None);
        assert_eq!(vocab.kind(99), TokenKind::Unused);
    }
}
