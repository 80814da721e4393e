//! Slabs, and where a sequence's pages are in them.

use super::{KvCache, LayerCache, PAGE_TOKENS, Sequence};
use crate::sequences::{SeqId, Sequences};

impl KvCache {
    /// The slabs, and the tables that say where a sequence's pages are in them.
    pub(crate) fn parts(&mut self) -> (&mut [LayerCache], PageTables<'_>) {
        let tables = PageTables {
            group_of: &self.group_of,
            sequences: &self.sequences,
        };
        (&mut self.layers, tables)
    }

    /// The same for reading.
    pub(crate) fn shared(&self) -> (&[LayerCache], PageTables<'_>) {
        let tables = PageTables {
            group_of: &self.group_of,
            sequences: &self.sequences,
        };
        (&self.layers, tables)
    }
}

/// Where the pages of every sequence are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTables<'a> {
    group_of: &'a [usize],
    sequences: &'a Sequences<Sequence>,
}

impl<'a> PageTables<'a> {
    /// The pages of `seq` for one layer, and the position of the first slot of the first of them.
    pub(crate) fn pages(&self, seq: SeqId, layer: usize) -> (&'a [u32], usize) {
        match self.sequences.get(seq) {
            Ok(sequence) => {
                let table = &sequence.tables[self.group_of[layer]];
                (&table.pages, table.first * PAGE_TOKENS)
            }
            Err(_) => (&[], 0),
        }
    }
}
