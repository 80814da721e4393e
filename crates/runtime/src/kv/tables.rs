//! Slabs, and where a sequence's pages are in them.

use super::{KvCache, KvSequence, LayerCache, PAGE_TOKENS, StateSlab};
use crate::sequences::{SeqId, Sequences};

/// The memory of sequences, to be read and extended.
pub(crate) struct CacheParts<'a> {
    /// Keys and values, by layer.
    pub(crate) layers: &'a mut [LayerCache],
    /// States.
    pub(crate) states: &'a mut StateSlab,
    /// Where a sequence's pages are in both.
    pub(crate) tables: PageTables<'a>,
}

impl KvCache {
    /// The slabs, and the tables that say where a sequence's pages are in them.
    pub(crate) fn parts(&mut self) -> CacheParts<'_> {
        let n_state_pages = self.n_state_pages();
        CacheParts {
            layers: &mut self.layers,
            states: &mut self.states,
            tables: PageTables {
                group_of: &self.group_of,
                state_group: self.state_group,
                n_state_pages,
                sequences: &self.sequences,
            },
        }
    }

    /// The same for reading.
    pub(crate) fn shared(&self) -> (&[LayerCache], PageTables<'_>) {
        let tables = PageTables {
            group_of: &self.group_of,
            state_group: self.state_group,
            n_state_pages: self.n_state_pages(),
            sequences: &self.sequences,
        };
        (&self.layers, tables)
    }

    /// Slots of states that pages have; those for snapshots follow.
    fn n_state_pages(&self) -> usize {
        self.state_group
            .map_or(0, |group| self.groups[group].n_pages)
    }
}

/// Where the pages of every sequence are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTables<'a> {
    group_of: &'a [usize],
    state_group: Option<usize>,
    n_state_pages: usize,
    sequences: &'a Sequences<KvSequence>,
}

impl<'a> PageTables<'a> {
    /// The pages of `seq` for one layer, and the position of the first slot of the first of them.
    pub(crate) fn pages(&self, seq: SeqId, layer: usize) -> (&'a [u32], usize) {
        let (pages, first) = self.table(seq, Some(self.group_of[layer]));
        (pages, first * PAGE_TOKENS)
    }

    /// The pages of `seq` whose slots hold its states, and the index of the first page in the sequence.
    pub(crate) fn state_pages(&self, seq: SeqId) -> (&'a [u32], usize) {
        self.table(seq, self.state_group)
    }

    /// The slot of the page of `seq` that a token at a position within it continues.
    pub(crate) fn state_slot(&self, seq: SeqId, position: usize) -> u32 {
        let (pages, first) = self.state_pages(seq);
        pages[position / PAGE_TOKENS - first]
    }

    /// The same, if the sequence has such a page.
    pub(crate) fn page_of_state(&self, seq: SeqId, position: usize) -> Option<u32> {
        let (pages, first) = self.state_pages(seq);
        let at = (position / PAGE_TOKENS).checked_sub(first)?;
        pages.get(at).copied()
    }

    /// The slot for the snapshot of `seq`.
    pub(crate) fn snapshot_slot(&self, seq: SeqId) -> u32 {
        (self.n_state_pages + seq.slot()) as u32
    }

    fn table(&self, seq: SeqId, group: Option<usize>) -> (&'a [u32], usize) {
        match (self.sequences.get(seq), group) {
            (Ok(sequence), Some(group)) => {
                let table = &sequence.tables[group];
                (&table.pages, table.first)
            }
            _ => (&[], 0),
        }
    }
}
