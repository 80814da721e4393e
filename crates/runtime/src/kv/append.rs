//! Appending to sequences: whether there is room, pages to write, and the handling of full ones.

use super::pages::LayerGroup;
use super::{KvCache, KvSequence, PAGE_TOKENS};
use crate::Error;
use crate::sequences::SeqId;

impl KvCache {
    /// Tokens that each of `seqs` and of `n_new` future sequences can take, all of them in one step or
    /// in many; 0 if there are not that many sequences.
    pub(crate) fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error> {
        let mut longest = 0;
        for seq in seqs {
            longest = longest.max(self.len(*seq)?);
        }
        if n_new > self.sequences.n_free() {
            return Ok(0);
        }
        // If a number fits, every smaller one fits: search for the largest.
        let (mut low, mut high) = (0, self.sizes.n_ctx.saturating_sub(longest));
        while low < high {
            let middle = high - (high - low) / 2;
            let wanted = seqs.iter().map(|seq| (*seq, middle));
            match self.check_room(wanted, (n_new, middle)) {
                Ok(()) => low = middle,
                Err(Error::CacheFull { .. }) => high = middle - 1,
                Err(error) => return Err(error),
            }
        }
        Ok(low)
    }

    /// Whether every `(sequence, n_tokens)` fits, in however many steps, together with `new.0` new
    /// sequences of `new.1` tokens.
    pub(crate) fn check_room(
        &self,
        wanted: impl Iterator<Item = (SeqId, usize)> + Clone,
        new: (usize, usize),
    ) -> Result<(), Error> {
        for (g, group) in self.groups.iter().enumerate() {
            let of_new = self.pages_wanted(g, None, new.1);
            let mut needed = of_new.saturating_mul(new.0);
            for (seq, n_tokens) in wanted.clone() {
                let sequence = self.sequences.get(seq)?;
                needed = needed.saturating_add(self.pages_wanted(g, Some(sequence), n_tokens));
            }
            let free = group.available();
            if needed > free {
                return Err(Error::CacheFull {
                    needed,
                    free,
                    page_tokens: PAGE_TOKENS,
                });
            }
        }
        Ok(())
    }

    /// The most pages of a group that the sequence takes at a time while it grows by `n_tokens`.
    fn pages_wanted(&self, g: usize, sequence: Option<&KvSequence>, n_tokens: usize) -> usize {
        if n_tokens == 0 {
            return 0;
        }
        let group = &self.groups[g];
        let fresh = match sequence {
            Some(sequence) => self.pages_needed(sequence, g, n_tokens),
            None => n_tokens.div_ceil(PAGE_TOKENS),
        };
        let Some(window) = group.window else {
            return fresh;
        };
        // A windowed table returns pages as it grows; shared pages of a fork stay with the other sequence.
        let own = sequence.map_or(0, |sequence| {
            let pages = sequence.tables[g].pages.iter();
            pages.filter(|page| group.is_own(**page)).count()
        });
        fresh.min(self.sizes.windowed_pages(window).saturating_sub(own))
    }

    /// Makes room for `n_tokens` more and unshares the page they begin in. The caller must have
    /// called [`KvCache::check_room`].
    pub(crate) fn reserve(&mut self, seq: SeqId, n_tokens: usize) -> Result<(), Error> {
        for g in 0..self.groups.len() {
            self.extend(seq, g, n_tokens)?;
        }
        self.restore_snapshot(seq)
    }

    /// The place in the table of a page that is both shared and about to be written, and the page.
    fn shared_tail(&self, sequence: &KvSequence, g: usize) -> Option<(usize, u32)> {
        let len = sequence.tokens.len();
        if len.is_multiple_of(PAGE_TOKENS) {
            return None;
        }
        let table = &sequence.tables[g];
        let slot = (len / PAGE_TOKENS).checked_sub(table.first)?;
        let page = *table.pages.get(slot)?;
        self.groups[g].is_shared(page).then_some((slot, page))
    }

    fn pages_needed(&self, sequence: &KvSequence, g: usize, n_tokens: usize) -> usize {
        let end = sequence.tokens.len().saturating_add(n_tokens);
        let end = end.div_ceil(PAGE_TOKENS);
        let fresh = end.saturating_sub(sequence.tables[g].end());
        fresh + usize::from(self.shared_tail(sequence, g).is_some())
    }

    fn extend(&mut self, seq: SeqId, g: usize, n_tokens: usize) -> Result<(), Error> {
        let sequence = self.sequences.get(seq)?;
        let end = (sequence.tokens.len() + n_tokens).div_ceil(PAGE_TOKENS);
        if let Some((slot, shared)) = self.shared_tail(sequence, g) {
            let own = self.take(g);
            self.copy_page(g, shared, own);
            self.now += 1;
            self.groups[g].unref(shared, self.now);
            self.sequences.get_mut(seq)?.tables[g].pages[slot] = own;
        }
        while self.sequences.get(seq)?.tables[g].end() < end {
            let page = self.take(g);
            self.sequences.get_mut(seq)?.tables[g].pages.push(page);
        }
        Ok(())
    }

    /// A page to write, if need be one that was kept for a prefix.
    pub(super) fn take(&mut self, g: usize) -> u32 {
        if let Some(page) = self.groups[g].take() {
            return page;
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.evict(&mut self.groups, g);
        }
        let page = self.groups[g].take();
        page.expect("check_room() counted the available pages first")
    }

    fn copy_page(&mut self, g: usize, from: u32, to: u32) {
        if self.state_group == Some(g) {
            self.states.copy(from, to);
        }
        for &layer in &self.groups[g].layers {
            let bytes = self.layers[layer].layout.page_bytes();
            let (from, to) = (from as usize * bytes, to as usize * bytes);
            self.layers[layer].k.copy_within(from..from + bytes, to);
            self.layers[layer].v.copy_within(from..from + bytes, to);
        }
    }

    /// Counts tokens that a step has written, keeps the pages they filled for other sequences, and
    /// drops pages that have left the windows.
    pub(crate) fn commit(&mut self, seq: SeqId, tokens: &[u32]) -> Result<(), Error> {
        let sequence = self.sequences.get_mut(seq)?;
        sequence.tokens.extend_from_slice(tokens);
        sequence.state_len = sequence.tokens.len();
        self.now += 1;
        keep_full_pages(sequence, self.prefixes.as_mut(), &mut self.groups, self.now);
        let rolled_back = sequence.tokens.len();
        let rolled_back = rolled_back.saturating_sub(self.sizes.rollback_tokens);
        for (group, table) in self.groups.iter_mut().zip(&mut sequence.tables) {
            let first_needed = group.oldest_needed(rolled_back) / PAGE_TOKENS;
            let n_behind = first_needed
                .saturating_sub(table.first)
                .min(table.pages.len());
            for page in table.pages.drain(..n_behind) {
                group.unref(page, self.now);
            }
            table.first += n_behind;
        }
        Ok(())
    }
}

/// Enters the pages that became full into the index. Where the index has one of the same tokens, the
/// sequence goes on with that one: both hold the same bits.
pub(super) fn keep_full_pages(
    sequence: &mut KvSequence,
    prefixes: Option<&mut super::PrefixIndex>,
    groups: &mut [LayerGroup],
    now: u64,
) {
    let Some(prefixes) = prefixes else {
        return;
    };
    loop {
        let index = prefixes.depth(sequence.node);
        let start = index * PAGE_TOKENS;
        let Some(tokens) = sequence.tokens.get(start..start + PAGE_TOKENS) else {
            return;
        };
        let (scope, parent) = (sequence.scope, sequence.node);
        let Some(node) = prefixes.child_or_new(scope, parent, tokens, groups) else {
            return;
        };
        prefixes.enter(Some(node));
        prefixes.leave(sequence.node);
        sequence.node = Some(node);
        for (g, (group, table)) in groups.iter_mut().zip(&mut sequence.tables).enumerate() {
            let slot = index.checked_sub(table.first);
            let Some(own) = slot.and_then(|slot| table.pages.get_mut(slot)) else {
                continue;
            };
            match prefixes.page(node, g) {
                None => {
                    group.keep(*own, node);
                    prefixes.set_page(node, g, Some(*own));
                }
                Some(kept) if kept != *own => {
                    group.share(kept);
                    group.unref(*own, now);
                    *own = kept;
                }
                Some(_) => {}
            }
        }
    }
}
