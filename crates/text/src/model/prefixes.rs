//! Which tokens a text begins with.

use crate::vocab::Vocab;

/// Tokens in the order of their texts, so that those a text begins with are found by narrowing a range
/// byte by byte: four bytes a token, and no tree to build.
#[derive(Debug)]
pub(crate) struct PrefixTable {
    ids: Vec<u32>,
    /// Where in `ids` the texts with each first byte begin; 257 places.
    starts: Vec<u32>,
}

impl PrefixTable {
    /// The table of some tokens. Of two with the same text the first stays.
    pub(crate) fn new(vocab: &Vocab, ids: impl Iterator<Item = u32>) -> PrefixTable {
        let text = |id: &u32| vocab.text(*id);
        let mut ids: Vec<u32> = ids.filter(|id| !vocab.text(*id).is_empty()).collect();
        ids.sort_by(|a, b| text(a).cmp(text(b)));
        ids.dedup_by(|a, b| text(a) == text(b));
        let start = |byte: usize| {
            ids.partition_point(|id| usize::from(vocab.text(*id).as_bytes()[0]) < byte) as u32
        };
        PrefixTable {
            starts: (0..=256).map(start).collect(),
            ids,
        }
    }

    /// Calls `found` with the length in bytes and the id of every token that a text begins with, the
    /// shortest first.
    pub(crate) fn each(&self, vocab: &Vocab, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let Some(&first) = text.first() else { return };
        let place = |byte: usize| self.starts[byte] as usize;
        let mut range = &self.ids[place(usize::from(first))..place(usize::from(first) + 1)];
        let token = |id: u32| vocab.text(id).as_bytes();
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
