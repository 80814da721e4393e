//! How many pages and slots a cache has.

use super::PAGE_TOKENS;
use super::pages::LayerGroup;
use super::states::{STATE_CHECKPOINTS, STATE_WINDOW};
use millrace_kernels::KvType;

/// Sizes of a KV cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvSizes {
    pub(crate) dtype: KvType,
    /// Tokens one sequence may hold.
    pub(crate) n_ctx: usize,
    /// Tokens all sequences together may hold.
    pub(crate) kv_tokens: usize,
    /// Sequences the windowed groups must have room for.
    pub(crate) max_sequences: usize,
    /// Tokens a step may add to a sequence.
    pub(crate) max_chunk: usize,
    /// Whether full pages outlive their sequences.
    pub(crate) keep_prefixes: bool,
    /// Tokens that a sequence can be cut back by, whatever its windows. For a graph with states it is a page
    /// more than a caller may cut: recomputation begins with a page.
    pub(crate) rollback_tokens: usize,
}

impl KvSizes {
    /// The most pages one sequence holds at a time in a group of that window, and one to unshare.
    pub(super) fn windowed_pages(&self, window: usize) -> usize {
        let seen = window.saturating_add(self.rollback_tokens);
        seen.saturating_add(self.max_chunk).div_ceil(PAGE_TOKENS) + 2
    }

    /// The most pages a sequence's table in `group` lists at a time.
    pub(super) fn table_pages(&self, group: &LayerGroup) -> usize {
        let all = self.n_ctx.div_ceil(PAGE_TOKENS).min(group.n_pages);
        group
            .window
            .map_or(all, |window| all.min(self.windowed_pages(window)))
    }

    /// Pages of a group that sees everything; nodes of the prefix index.
    pub(super) fn full_pages(&self) -> usize {
        let pages = self.kv_tokens.div_ceil(PAGE_TOKENS);
        pages.saturating_add(self.max_sequences)
    }

    /// Slots of states: those that sequences see, and if prefixes are kept, some of released sequences.
    pub(super) fn state_slots(&self) -> usize {
        let seen = self.windowed_pages(STATE_WINDOW);
        let seen = seen.saturating_mul(self.max_sequences);
        let kept = match self.keep_prefixes {
            true => STATE_CHECKPOINTS,
            false => 0,
        };
        self.full_pages().min(seen.saturating_add(kept))
    }

    /// Pages of a group. A windowed group has room for the pages that its sequences see. If prefixes
    /// are kept, it has as much again for the windows at the ends of kept prefixes.
    pub(super) fn group_pages(&self, window: Option<usize>) -> usize {
        let all = self.full_pages();
        window.map_or(all, |window| {
            let seen = self
                .windowed_pages(window)
                .saturating_mul(self.max_sequences);
            all.min(seen.saturating_mul(1 + usize::from(self.keep_prefixes)))
        })
    }
}
