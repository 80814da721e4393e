//! Which tokens a text begins with, by their texts or by the bytes they print.

use crate::vocab::Vocab;

/// Tokens in the order of their texts. Those that a text begins with are found by narrowing a range
/// byte by byte: four bytes a token, and no tree to build.
#[derive(Debug)]
pub(crate) struct PrefixTable {
    ids: Vec<u32>,
    /// The bytes of a token that the table is sorted by.
    of: fn(&Vocab, u32) -> &[u8],
    /// Where in `ids` the texts with each first byte begin; 257 places.
    starts: Vec<u32>,
}

impl PrefixTable {
    /// The table of some tokens. Of two with the same text the first stays.
    pub(crate) fn new(vocab: &Vocab, ids: impl Iterator<Item = u32>) -> PrefixTable {
        PrefixTable::of(vocab, |vocab, id| vocab.text(id).as_bytes(), ids)
    }

    /// The same by the bytes that tokens print.
    pub(crate) fn of_pieces(vocab: &Vocab, ids: impl Iterator<Item = u32>) -> PrefixTable {
        PrefixTable::of(vocab, Vocab::piece, ids)
    }

    fn of(
        vocab: &Vocab,
        of: fn(&Vocab, u32) -> &[u8],
        ids: impl Iterator<Item = u32>,
    ) -> PrefixTable {
        let mut ids: Vec<u32> = ids.filter(|id| !of(vocab, *id).is_empty()).collect();
        ids.sort_by(|a, b| of(vocab, *a).cmp(of(vocab, *b)));
        ids.dedup_by(|a, b| of(vocab, *a) == of(vocab, *b));
        let start =
            |byte: usize| ids.partition_point(|id| usize::from(of(vocab, *id)[0]) < byte) as u32;
        PrefixTable {
            starts: (0..=256).map(start).collect(),
            ids,
            of,
        }
    }

    /// Calls `found` with the length in bytes and the id of every token that a text begins with, the
    /// shortest first.
    pub(crate) fn each(&self, vocab: &Vocab, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let Some(&first) = text.first() else { return };
        let place = |byte: usize| self.starts[byte] as usize;
        let mut range = &self.ids[place(usize::from(first))..place(usize::from(first) + 1)];
        let token = |id: u32| (self.of)(vocab, id);
        // Every token of the range begins with the first `depth` bytes of the text.
        let mut depth = 1;
        loop {
            match range {
                [] => return,
                [id] => {
                    if text.starts_with(token(*id)) {
                        found(token(*id).len(), *id);
                    }
                    return;
                }
                [id, rest @ ..] if token(*id).len() == depth => {
                    found(depth, *id);
                    range = rest;
                }
                _ => {}
            }
            let Some(&byte) = text.get(depth) else { return };
            let from = range.partition_point(|id| token(*id)[depth] < byte);
            let to = range.partition_point(|id| token(*id)[depth] <= byte);
            range = &range[from..to];
            depth += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{Reach, TokenKind};
    use proptest::prelude::*;

    #[test]
    fn every_prefix_is_found_once_and_the_shortest_first() {
        let strategy = (prop::collection::vec("[abé▁]{0,4}", 0..40), "[abé▁]{0,8}");
        proptest!(ProptestConfig::with_cases(2000), |((texts, text) in strategy)| {
            let mut vocab = Vocab::with_capacity(texts.len());
            for text in &texts {
                vocab.push(text, TokenKind::Normal, b"", Reach::ByText).unwrap();
            }
            let table = PrefixTable::new(&vocab, 0..texts.len() as u32);
            let mut got = Vec::new();
            table.each(&vocab, text.as_bytes(), |length, id| got.push((length, id)));
            let ends = (1..=text.len()).filter(|end| text.is_char_boundary(*end));
            let want: Vec<_> = ends
                .filter_map(|end| Some((end, vocab.find(&text[..end])?)))
                .collect();
            prop_assert_eq!(got, want);
        });
    }
}
