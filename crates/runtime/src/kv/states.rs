//! Recurrent states, in slots that are paged as keys and values are.
//!
//! A page's slot holds every state of a sequence. While the page fills it is the state behind the last token; once it
//! is full it stays as the state behind the page's end, and the next page begins with a copy. So forks share slots,
//! cuts to a page's end find their state, and the prefix index keeps slots as it keeps pages. A cut within a page finds
//! the state at the page's beginning: the tokens behind it are computed again.

use super::{KvCache, PAGE_TOKENS};
use crate::Error;
use crate::sequences::SeqId;
use bytemuck::cast_slice_mut;
use millrace_graph::{Graph, SequenceMemory, StateShape};
use millrace_kernels::{KvBuffer, StateSlots};
use std::ops::Range;

/// The window of the group of states: a token reads the state behind the last page's end at the farthest.
pub(super) const STATE_WINDOW: usize = PAGE_TOKENS + 1;

/// Slots that are kept of sequences that are gone. They are dear: a slot may take as much as thousands of keys.
pub(super) const STATE_CHECKPOINTS: usize = 16;

/// The slots of all pages.
pub(crate) struct StateSlab {
    data: KvBuffer,
    /// By state: its elements within a slot.
    ranges: Vec<Range<usize>>,
}

impl StateSlab {
    /// Slots for `n_pages` pages, zeroed lazily by the system.
    pub(super) fn new(graph: &Graph, n_pages: usize) -> Result<StateSlab, Error> {
        let ranges = ranges(graph);
        let slot_bytes = slot_bytes(&ranges);
        let needed_bytes = n_pages.saturating_mul(slot_bytes);
        let data = KvBuffer::zeroed(needed_bytes);
        Ok(StateSlab {
            data: data.map_err(|_| Error::CacheTooLarge { needed_bytes })?,
            ranges,
        })
    }

    /// Bytes of a page's slot.
    pub(super) fn slot_bytes(&self) -> usize {
        slot_bytes(&self.ranges)
    }

    /// A state in a page's slot.
    pub(crate) fn state_mut(&mut self, state: StateShape, page: u32) -> &mut [f32] {
        let at = self.at(state, page);
        &mut cast_slice_mut::<u8, f32>(&mut self.data)[at]
    }

    /// Begins a page's state: that of the page before, or zeros.
    pub(crate) fn begin(&mut self, state: StateShape, before: Option<u32>, page: u32) {
        let to = self.at(state, page);
        let from = before.map(|before| self.at(state, before));
        let data = cast_slice_mut::<u8, f32>(&mut self.data);
        match from {
            Some(from) => data.copy_within(from, to.start),
            None => data[to].fill(0.0),
        }
    }

    /// All slots, for a kernel of the op with that state.
    pub(crate) fn slots(&mut self, index: usize, page_tokens: usize) -> StateSlots<'_> {
        StateSlots {
            slot_elems: self.slot_bytes() / size_of::<f32>(),
            range: self.ranges[index].clone(),
            data: cast_slice_mut::<u8, f32>(&mut self.data),
            page_tokens,
        }
    }

    /// Copies a slot.
    pub(super) fn copy(&mut self, from: u32, to: u32) {
        let n_bytes = self.slot_bytes();
        let [from, to] = [from, to].map(|page| page as usize * n_bytes);
        self.data.copy_within(from..from + n_bytes, to);
    }

    /// The bytes of a slot.
    pub(super) fn slot_bytes_of(&self, page: u32) -> &[u8] {
        let n_bytes = self.slot_bytes();
        &self.data[page as usize * n_bytes..][..n_bytes]
    }

    /// The bytes of a slot, to be written.
    pub(super) fn slot_bytes_mut(&mut self, page: u32) -> &mut [u8] {
        let n_bytes = self.slot_bytes();
        &mut self.data[page as usize * n_bytes..][..n_bytes]
    }

    /// A slot's numbers, for tests.
    #[cfg(test)]
    pub(super) fn slot(&self, page: u32) -> &[f32] {
        let n_elems = self.slot_bytes() / size_of::<f32>();
        &bytemuck::cast_slice::<u8, f32>(&self.data)[page as usize * n_elems..][..n_elems]
    }

    fn at(&self, state: StateShape, page: u32) -> Range<usize> {
        let n_elems = self.slot_bytes() / size_of::<f32>();
        let range = &self.ranges[state.index];
        let start = page as usize * n_elems;
        start + range.start..start + range.end
    }
}

/// By state of a graph: its elements within a slot.
fn ranges(graph: &Graph) -> Vec<Range<usize>> {
    let mut end = 0;
    let states = graph
        .nodes
        .iter()
        .filter_map(|node| match node.op.memory() {
            SequenceMemory::State(state) => Some(state.n_elems),
            _ => None,
        });
    states
        .map(|n_elems| {
            let start = end;
            end += n_elems;
            start..end
        })
        .collect()
}

fn slot_bytes(ranges: &[Range<usize>]) -> usize {
    ranges.last().map_or(0, |last| last.end * size_of::<f32>())
}

/// Bytes that a sequence of this graph keeps as states.
pub(super) fn state_bytes(graph: &Graph) -> usize {
    slot_bytes(&ranges(graph))
}

impl KvCache {
    /// Where states are missing behind a sequence's last tokens, gives those tokens up and returns them, to be computed
    /// again before anything else of it is.
    pub(crate) fn take_replay(&mut self, seq: SeqId) -> Result<Option<Vec<u32>>, Error> {
        let sequence = self.sequences.get(seq)?;
        let valid = sequence.state_len;
        if self.state_group.is_none() || valid == sequence.tokens.len() {
            return Ok(None);
        }
        let tokens = sequence.tokens[valid..].to_vec();
        self.cut(seq, valid)?;
        Ok(Some(tokens))
    }

    /// The longest beginning of at most `len` tokens at whose end a sequence's states are.
    pub(super) fn with_state(&self, seq: SeqId, len: usize) -> Result<usize, Error> {
        let sequence = self.sequences.get(seq)?;
        let is_whole = self.state_group.is_none() || len == sequence.state_len;
        Ok(match is_whole {
            true => len,
            false => len / PAGE_TOKENS * PAGE_TOKENS,
        })
    }
}
