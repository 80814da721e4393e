//! The longest token that continues a text, byte by byte from the left (RWKV's World vocabularies).

use super::prefixes::PrefixTable;
use crate::vocab::{TokenKind, Vocab};

/// A vocabulary of byte strings, of which the longest that fits is taken.
#[derive(Debug)]
pub(crate) struct Longest {
    table: PrefixTable,
    /// Replaces a byte without a token.
    unknown: Option<u32>,
}

/// A longer token would make the time depend on the product of two lengths that a file and a text choose.
const MAX_TOKEN_BYTES: usize = 1024;

impl Longest {
    pub(crate) fn new(vocab: &Vocab, unknown: Option<u32>) -> Longest {
        let is_text = |id: &u32| {
            vocab.is_reached(*id)
                && vocab.kind(*id) != TokenKind::Unused
                && vocab.piece(*id).len() <= MAX_TOKEN_BYTES
        };
        let ids = (0..vocab.len() as u32).filter(is_text);
        Longest {
            table: PrefixTable::of_pieces(vocab, ids),
            unknown,
        }
    }

    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let mut longest = None;
            self.table
                .each(vocab, rest, |length, id| longest = Some((length, id)));
            let n_bytes = match longest {
                Some((length, id)) => {
                    out.push(id);
                    length
                }
                None => {
                    out.extend(self.unknown);
                    1
                }
            };
            rest = &rest[n_bytes..];
        }
    }
}
