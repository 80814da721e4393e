//! Beginnings of prompts that need not be computed again: a sequence's own past, and kept pages of others.

use super::prefix::NodeId;
use super::{KvCache, PAGE_TOKENS};
use crate::Error;
use crate::sequences::SeqId;

impl KvCache {
    /// Makes the sequence hold the longest beginning of `prompt` whose keys and values exist, its
    /// own or kept, and leaves at least the last token to compute. Returns its length.
    pub(crate) fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error> {
        let tokens = self.tokens(seq)?;
        let most = prompt.len().saturating_sub(1);
        let same = tokens.iter().zip(prompt).take_while(|(a, b)| a == b);
        let own = self.with_state(seq, same.count().min(most))?;
        let own = match self.truncate(seq, own) {
            Ok(()) => own,
            Err(Error::WindowGone { .. }) => 0,
            Err(error) => return Err(error),
        };
        let scope = self.sequences.get(seq)?.scope;
        let find = |cache: &KvCache| {
            let prefixes = cache.prefixes.as_ref()?;
            Some(prefixes.longest(scope, prompt, most, (&cache.groups, cache.state_group)))
        };
        let kept = find(self).map_or(0, |found| found.len).max(own);
        let on_disk = self.find_on_disk(scope, prompt, most);
        let len = match on_disk.filter(|found| found.len > kept) {
            Some(found) if self.adopt_from_disk(seq, prompt, &found)? => found.len,
            // The attempt may have left the sequence empty, and taken pages from the index.
            _ => {
                let own = own.min(self.len(seq)?);
                match find(self) {
                    Some(found) if found.len > own => {
                        self.adopt(seq, &prompt[..found.len], &found.nodes)?;
                        found.len
                    }
                    _ => {
                        self.cut(seq, own)?;
                        own
                    }
                }
            }
        };
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.counters.n_lookups += 1;
            prefixes.counters.n_hit_tokens += len as u64;
            prefixes.counters.n_missed_tokens += (prompt.len() - len) as u64;
        }
        Ok(len)
    }

    /// Replaces a sequence's past by kept pages.
    fn adopt(&mut self, seq: SeqId, tokens: &[u32], nodes: &[NodeId]) -> Result<(), Error> {
        let sequence = self.sequences.get_mut(seq)?;
        let Some(prefixes) = &mut self.prefixes else {
            return Ok(());
        };
        self.now += 1;
        // The node of the last page, unless only part of that page is taken.
        let node = (tokens.len() / PAGE_TOKENS)
            .checked_sub(1)
            .map(|i| nodes[i]);
        prefixes.enter(node);
        prefixes.leave(std::mem::replace(&mut sequence.node, node));
        let tables = self.groups.iter_mut().zip(&mut sequence.tables);
        for (g, (group, table)) in tables.enumerate() {
            let page = |i: &usize| prefixes.page(nodes[*i], g);
            let needed = group.oldest_needed(tokens.len()) / PAGE_TOKENS;
            let rolled_back = tokens.len().saturating_sub(self.sizes.rollback_tokens);
            let spare = group.oldest_needed(rolled_back);
            let spare = (spare / PAGE_TOKENS..needed).rev();
            let n_spare = spare.take_while(|i| page(i).is_some()).count();
            let first = needed - n_spare;
            // The new ones first: some may be among the old.
            let n_old = table.pages.len();
            table
                .pages
                .extend((first..nodes.len()).filter_map(|i| page(&i)));
            table.pages[n_old..]
                .iter()
                .for_each(|page| group.share(*page));
            for page in table.pages.drain(..n_old) {
                group.unref(page, self.now);
            }
            table.first = first;
        }
        sequence.tokens.clear();
        sequence.tokens.extend_from_slice(tokens);
        sequence.replace_states(tokens.len());
        Ok(())
    }
}
