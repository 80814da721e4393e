//! The pages of the layers that share a window: which are free, and the references to the others.

use crate::kv::prefix::NodeId;

/// One of this many consecutive pages keeps its states longest.
pub(super) const CHECKPOINT_PAGES: usize = 16;

/// Layers that share a window, and their page allocator.
#[derive(Debug)]
pub(super) struct LayerGroup {
    pub(super) window: Option<usize>,
    pub(super) layers: Vec<usize>,
    pub(super) n_pages: usize,
    /// Whether its pages are slots of states, each of which is useful without the ones before it.
    pub(super) is_of_states: bool,
    pages: Vec<Page>,
    free: Vec<u32>,
    /// Pages that the prefix index alone refers to.
    n_idle: usize,
}

/// One page.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Sequences that list it, and the prefix index if it does; 0 means free.
    references: u32,
    /// Its node in the prefix index.
    node: Option<NodeId>,
    /// When the last sequence released it.
    stamp: u64,
}

impl LayerGroup {
    /// A group without allocated pages.
    pub(super) fn new(window: Option<usize>, n_pages: usize) -> LayerGroup {
        LayerGroup {
            window,
            layers: vec![],
            n_pages,
            is_of_states: false,
            pages: vec![],
            free: vec![],
            n_idle: 0,
        }
    }

    /// Makes all pages free.
    pub(super) fn lay_out(&mut self) {
        self.pages = vec![Page::default(); self.n_pages];
        self.free = (0..self.n_pages as u32).rev().collect();
    }

    /// Pages that [`LayerGroup::take`] can return once the prefix index has released the idle ones.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.n_idle
    }

    /// Pages that some sequence lists.
    pub(super) fn used(&self) -> usize {
        self.n_pages - self.available()
    }

    /// Pages kept for prefixes alone.
    pub(super) fn idle(&self) -> usize {
        self.n_idle
    }

    /// A free page, now with one reference; `None` if none is free.
    pub(super) fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.pages[page as usize].references = 1;
        Some(page)
    }

    /// One more sequence lists the page.
    pub(super) fn share(&mut self, page: u32) {
        let page = &mut self.pages[page as usize];
        self.n_idle -= usize::from(page.is_idle());
        page.references += 1;
    }

    /// A sequence lets go of the page at time `now`.
    pub(super) fn unref(&mut self, id: u32, now: u64) {
        let page = &mut self.pages[id as usize];
        page.references -= 1;
        page.stamp = now;
        self.n_idle += usize::from(page.is_idle());
        if page.references == 0 {
            self.free.push(id);
        }
    }

    /// Whether something besides one sequence refers to the page.
    pub(super) fn is_shared(&self, page: u32) -> bool {
        self.pages[page as usize].references > 1
    }

    /// Whether no sequence but one lists the page, so that it becomes available when that one lets go.
    pub(super) fn is_own(&self, page: u32) -> bool {
        let page = self.pages[page as usize];
        page.references - u32::from(page.node.is_some()) == 1
    }

    /// The prefix index takes a reference to a page of a sequence.
    pub(super) fn keep(&mut self, page: u32, node: NodeId) {
        let page = &mut self.pages[page as usize];
        page.node = Some(node);
        page.references += 1;
    }

    /// The prefix index releases its reference.
    pub(super) fn forget(&mut self, id: u32) {
        let page = &mut self.pages[id as usize];
        self.n_idle -= usize::from(page.is_idle());
        page.node = None;
        page.references -= 1;
        if page.references == 0 {
            self.free.push(id);
        }
    }

    /// The idle page that was released longest ago, and its node. Among pages released together the
    /// deepest comes first, since pages after it are useless without it.
    pub(super) fn least_recent(&self, depth: impl Fn(NodeId) -> usize) -> Option<(u32, NodeId)> {
        if self.is_of_states {
            return self.least_useful_state(depth);
        }
        let idle = self.pages.iter().enumerate();
        let idle = idle.filter(|(_, page)| page.is_idle());
        let nodes = idle.filter_map(|(id, page)| Some((page.stamp, page.node?, id as u32)));
        nodes
            .min_by_key(|(stamp, node, _)| (*stamp, std::cmp::Reverse(depth(*node))))
            .map(|(_, node, id)| (id, node))
    }

    /// The idle slot of states to give up: the oldest, where one of every [`CHECKPOINT_PAGES`] ages that much slower. The
    /// slots kept of a long text are thus dense at its end, where its next turn goes on, and sparse before it. Among slots
    /// of one age the shallowest comes first: later states contain all that it does.
    fn least_useful_state(&self, depth: impl Fn(NodeId) -> usize) -> Option<(u32, NodeId)> {
        let now = self.pages.iter().map(|page| page.stamp).max()? + 1;
        let idle = self.pages.iter().enumerate();
        let idle = idle.filter(|(_, page)| page.is_idle());
        let slots = idle.filter_map(|(id, page)| {
            let node = page.node?;
            let depth = depth(node);
            let slower = match depth.is_multiple_of(CHECKPOINT_PAGES) {
                true => CHECKPOINT_PAGES as u64,
                false => 1,
            };
            let age = (now - page.stamp) * CHECKPOINT_PAGES as u64 / slower;
            Some(((std::cmp::Reverse(age), depth), id as u32, node))
        });
        let least = slots.min_by_key(|(key, ..)| *key);
        least.map(|(_, id, node)| (id, node))
    }

    /// The oldest position that a token at position `len` or later can see.
    pub(super) fn oldest_needed(&self, len: usize) -> usize {
        self.window
            .map_or(0, |window| (len + 1).saturating_sub(window))
    }

    /// References of each page, for tests that count them.
    #[cfg(test)]
    pub(super) fn references(&self) -> Vec<u32> {
        self.pages.iter().map(|page| page.references).collect()
    }

    /// Pages on the free list, for tests.
    #[cfg(test)]
    pub(super) fn n_free(&self) -> usize {
        self.free.len()
    }
}

impl Page {
    fn is_idle(&self) -> bool {
        self.node.is_some() && self.references == 1
    }
}
