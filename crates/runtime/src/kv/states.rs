//! Recurrent states, in slots that are paged like keys and values.
//!
//! A page's slot holds every state of a sequence. While the page fills, it is the state after the last token. Once the
//! page is full it stays as the state after the page's end, and the next page begins with a copy. So forks share slots,
//! cuts to a page's end find their state, and the prefix index keeps slots as it keeps pages. A cut within a page finds
//! the state at the page's beginning: the tokens after it are computed again.
//!
//! Drafts are cut off at nearly every step. A sequence therefore has a separate slot for a snapshot. A step that checks drafts
//! stores its initial states there, op by op as it computes, and a later cut goes back to them.

use super::pages::LayerGroup;
use super::{KvCache, KvSequence, PAGE_TOKENS, PageTable};
use crate::Error;
use crate::sequences::SeqId;
use bytemuck::{cast_slice, cast_slice_mut};
use millrace_graph::{Graph, SequenceMemory, StateShape};
use millrace_kernels::{KvBuffer, StateSlots};
use std::ops::Range;

/// The window of the group of states: a token reads at most as far back as the state after the last page's end.
pub(super) const STATE_WINDOW: usize = PAGE_TOKENS + 1;

/// Slots kept for released sequences. They are expensive: a slot may take as much as thousands of keys.
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
        let at = self.at(state.index, page);
        &mut cast_slice_mut::<u8, f32>(&mut self.data)[at]
    }

    /// The state of that index in a page's slot; `None` if there is no such state.
    pub(crate) fn of_page(&self, index: usize, page: u32) -> Option<&[f32]> {
        self.ranges.get(index)?;
        cast_slice::<u8, f32>(&self.data).get(self.at(index, page))
    }

    /// The same, mutable.
    fn of_page_mut(&mut self, index: usize, page: u32) -> Option<&mut [f32]> {
        self.ranges.get(index)?;
        let at = self.at(index, page);
        cast_slice_mut::<u8, f32>(&mut self.data).get_mut(at)
    }

    /// Begins a page's state: that of the page before, or zeros.
    pub(crate) fn begin(&mut self, state: StateShape, before: Option<u32>, page: u32) {
        let to = self.at(state.index, page);
        let from = before.map(|before| self.at(state.index, before));
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
        &cast_slice::<u8, f32>(&self.data)[page as usize * n_elems..][..n_elems]
    }

    fn at(&self, index: usize, page: u32) -> Range<usize> {
        let n_elems = self.slot_bytes() / size_of::<f32>();
        let range = &self.ranges[index];
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

impl KvSequence {
    /// The longest beginning of at most `len` tokens, before the present states, for which states exist: at a page's end or in
    /// the snapshot. The flag says whether they are in the snapshot.
    fn states_within(&self, len: usize) -> (usize, bool) {
        let page_end = len / PAGE_TOKENS * PAGE_TOKENS;
        match self.snapshot.filter(|at| *at > page_end && *at <= len) {
            Some(at) => (at, true),
            None => (page_end, false),
        }
    }

    /// Only `len` tokens are left.
    pub(super) fn cut_states(&mut self, len: usize) {
        if len < self.state_len {
            (self.state_len, self.is_rolled_back) = self.states_within(len);
        }
        self.snapshot = self.snapshot.filter(|at| *at <= len);
    }

    /// Its tokens were replaced, and the states after all `len` of them are in their page's slot.
    pub(super) fn replace_states(&mut self, len: usize) {
        self.state_len = len;
        self.snapshot = None;
        self.is_rolled_back = false;
    }
}

impl KvCache {
    /// Whether sequences keep states.
    pub(crate) fn has_states(&self) -> bool {
        self.state_group.is_some()
    }

    /// The state before a sequence's token at `position`, for which there is room; `None` before its first token, where every
    /// state is zeros.
    pub(crate) fn state_before(
        &self,
        seq: SeqId,
        index: usize,
        position: usize,
    ) -> Result<Option<&[f32]>, String> {
        let Some(before) = position.checked_sub(1) else {
            return Ok(None);
        };
        let page = self.shared().1.page_of_state(seq, before);
        let state = page.and_then(|page| self.states.of_page(index, page));
        let missing = || format!("no state {index} before position {position}");
        state.map(Some).ok_or_else(missing)
    }

    /// The state after the token at `position`.
    pub(crate) fn state_behind(&self, seq: SeqId, index: usize, position: usize) -> Option<&[f32]> {
        let page = self.shared().1.page_of_state(seq, position)?;
        self.states.of_page(index, page)
    }

    /// The same, mutable: after the last token of a page it stays in that page's slot, and the next page has another.
    pub(crate) fn state_behind_mut(
        &mut self,
        seq: SeqId,
        index: usize,
        position: usize,
    ) -> Result<&mut [f32], String> {
        let page = self.shared().1.page_of_state(seq, position);
        let state = page.and_then(|page| self.states.of_page_mut(index, page));
        state.ok_or_else(|| format!("no state {index} behind position {position}"))
    }

    /// A sequence's snapshot is about to be written over.
    pub(crate) fn drop_snapshot(&mut self, seq: SeqId) -> Result<(), Error> {
        self.sequences.get_mut(seq)?.snapshot = None;
        Ok(())
    }

    /// Records that a sequence's slot for snapshots has its states after `len` tokens.
    pub(crate) fn set_snapshot(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        self.sequences.get_mut(seq)?.snapshot = Some(len);
        Ok(())
    }

    /// Puts the states of a snapshot, if a cut went back to it, where the next token reads them. The page is the sequence's own.
    pub(super) fn restore_snapshot(&mut self, seq: SeqId) -> Result<(), Error> {
        let sequence = self.sequences.get_mut(seq)?;
        if !std::mem::take(&mut sequence.is_rolled_back) {
            return Ok(());
        }
        let (_, tables) = self.shared();
        let to = tables.state_slot(seq, self.len(seq)?);
        let from = tables.snapshot_slot(seq);
        self.states.copy(from, to);
        Ok(())
    }

    /// If states are missing after a sequence's last tokens, removes those tokens and returns them. They must be
    /// computed again before anything else of the sequence.
    pub(crate) fn take_replay(&mut self, seq: SeqId) -> Result<Option<Vec<u32>>, Error> {
        let sequence = self.sequences.get(seq)?;
        if self.state_group.is_none() || sequence.state_len == sequence.tokens.len() {
            return Ok(None);
        }
        // A snapshot goes into the page that it was copied from. If other sequences see that page too, a fresh one is begun
        // instead, for which there is room.
        let is_of_others = |(group, table): (&LayerGroup, &PageTable)| {
            let at = (sequence.state_len / PAGE_TOKENS).checked_sub(table.first);
            let page = at.and_then(|at| table.pages.get(at));
            page.is_some_and(|page| group.is_shared(*page))
        };
        let mut groups = self.groups.iter().zip(&sequence.tables);
        let begins_page = sequence.is_rolled_back && groups.any(is_of_others);
        let sequence = self.sequences.get_mut(seq)?;
        if begins_page {
            sequence.replace_states(sequence.state_len / PAGE_TOKENS * PAGE_TOKENS);
        }
        let valid = sequence.state_len;
        let tokens = sequence.tokens[valid..].to_vec();
        self.cut(seq, valid)?;
        Ok(Some(tokens))
    }

    /// The longest beginning of at most `len` tokens at whose end a sequence's states exist.
    pub(super) fn with_state(&self, seq: SeqId, len: usize) -> Result<usize, Error> {
        let sequence = self.sequences.get(seq)?;
        Ok(match self.state_group {
            None => len,
            Some(_) if len >= sequence.state_len => sequence.state_len,
            Some(_) => sequence.states_within(len).0,
        })
    }
}
