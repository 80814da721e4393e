//! The prefix index: which pages hold the keys and values of which beginnings of texts.
//!
//! A node represents one full page of tokens after the pages of its parent. So the path from the root
//! to a node is a beginning of some sequence, token by token. A node has at most one page in each
//! group. A layer without a window needs the pages of all nodes on the path. A layer with one needs
//! only the pages within its window, so a node on the path may have lost its page there.
//!
//! Tokens are compared, not only their hashes: a collision costs a node that is not kept, never a wrong
//! page. Scopes are compared too: every path belongs to one, and no sequence of another finds it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

use super::PAGE_TOKENS;
use super::pages::LayerGroup;

/// A node of the index; nodes are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(NonZeroU32);

impl NodeId {
    fn at(index: usize) -> Option<NodeId> {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        number.map(NodeId)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Clone, Debug)]
struct PrefixNode {
    parent: Option<NodeId>,
    /// Pages from the root to here, this one included.
    n_pages: usize,
    /// Children, and sequences that end at this node.
    uses: u32,
    hash: u64,
    scope: u64,
    tokens: [u32; PAGE_TOKENS],
}

impl PrefixNode {
    fn is(&self, scope: u64, tokens: &[u32]) -> bool {
        self.scope == scope && self.tokens[..] == *tokens
    }
}

/// Counters of the prefix index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounters {
    /// Prompts that were looked up.
    pub n_lookups: u64,
    /// Tokens that need not be computed, from the sequence's own past or from kept pages.
    pub n_hit_tokens: u64,
    /// Tokens that had to be computed.
    pub n_missed_tokens: u64,
    /// Pages given up to make room.
    pub n_evicted_pages: u64,
    /// Pages kept now that no sequence uses; of layers with one window, which share them, counted once.
    pub n_idle_pages: usize,
}

/// A beginning of a prompt whose pages exist.
#[derive(Clone, Debug)]
pub(super) struct PrefixMatch {
    /// Tokens.
    pub(super) len: usize,
    /// The nodes from the first page on, all that `len` touches.
    pub(super) nodes: Vec<NodeId>,
}

/// Checks a beginning, page by page, for the longest part that has everything its next token sees.
pub(super) struct Completeness<'a> {
    groups: &'a [LayerGroup],
    has_states: bool,
    /// Tokens that are wanted.
    most: usize,
    n_pages: usize,
    /// By group, how many pages up to this one are there without a gap.
    in_a_row: Vec<usize>,
    len: usize,
}

impl<'a> Completeness<'a> {
    pub(super) fn new(
        groups: &'a [LayerGroup],
        state_group: Option<usize>,
        most: usize,
    ) -> Completeness<'a> {
        Completeness {
            groups,
            has_states: state_group.is_some(),
            most,
            n_pages: 0,
            in_a_row: vec![0; groups.len()],
            len: 0,
        }
    }

    /// Whether enough pages were checked.
    pub(super) fn is_enough(&self) -> bool {
        self.n_pages * PAGE_TOKENS >= self.most
    }

    /// Checks the next page: `has` says whether a group has it.
    pub(super) fn push(&mut self, has: impl Fn(usize) -> bool) {
        self.n_pages += 1;
        let end = (self.n_pages * PAGE_TOKENS).min(self.most);
        // States exist at the ends of pages.
        let mut complete = !self.has_states || end.is_multiple_of(PAGE_TOKENS);
        for (g, group) in self.groups.iter().enumerate() {
            self.in_a_row[g] = match has(g) {
                true => self.in_a_row[g] + 1,
                false => 0,
            };
            let needed = self.n_pages - group.oldest_needed(end) / PAGE_TOKENS;
            complete &= self.in_a_row[g] >= needed;
        }
        if complete {
            self.len = end;
        }
    }

    /// The tokens of the longest beginning that is complete.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// The index. Its memory is allocated at the start: a step that fills a page allocates nothing.
#[derive(Debug)]
pub(super) struct PrefixIndex {
    nodes: Vec<Option<PrefixNode>>,
    free: Vec<NodeId>,
    /// By parent and hash of scope and tokens.
    children: HashMap<(Option<NodeId>, u64), NodeId>,
    hasher: RandomState,
    n_groups: usize,
    /// By node, then by group.
    pages: Vec<Option<u32>>,
    pub(super) counters: PrefixCounters,
}

impl PrefixIndex {
    /// An index of at most `capacity` nodes.
    pub(super) fn new(capacity: usize, n_groups: usize) -> PrefixIndex {
        PrefixIndex {
            nodes: vec![None; capacity],
            free: (0..capacity).rev().filter_map(NodeId::at).collect(),
            // Twice the entries: the table then cleans itself in place and never grows.
            children: HashMap::with_capacity(2 * capacity),
            hasher: RandomState::new(),
            n_groups,
            pages: vec![None; capacity * n_groups],
            counters: PrefixCounters::default(),
        }
    }

    fn node(&self, id: NodeId) -> &PrefixNode {
        let node = self.nodes[id.index()].as_ref();
        node.expect("whoever names a node holds a use or a page of it")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut PrefixNode {
        let node = self.nodes[id.index()].as_mut();
        node.expect("whoever names a node holds a use or a page of it")
    }

    /// Pages on the path to `node`; none for the root.
    pub(super) fn depth(&self, node: Option<NodeId>) -> usize {
        node.map_or(0, |node| self.node(node).n_pages)
    }

    /// The page of a node in a group.
    pub(super) fn page(&self, node: NodeId, group: usize) -> Option<u32> {
        self.pages[node.index() * self.n_groups + group]
    }

    /// Records that the page of `node` in `group` is `page`, to which the index holds a reference.
    pub(super) fn set_page(&mut self, node: NodeId, group: usize, page: Option<u32>) {
        self.pages[node.index() * self.n_groups + group] = page;
    }

    /// The node of `scope` after `parent` for exactly these tokens.
    pub(super) fn child(
        &self,
        scope: u64,
        parent: Option<NodeId>,
        tokens: &[u32],
    ) -> Option<NodeId> {
        let key = (parent, self.hasher.hash_one((scope, tokens)));
        let node = *self.children.get(&key)?;
        self.node(node).is(scope, tokens).then_some(node)
    }

    /// As [`PrefixIndex::child`], creating the node if necessary; gives up kept pages when nodes run
    /// out. `None` if there is no room, or if other tokens have the same hash.
    pub(super) fn child_or_new(
        &mut self,
        scope: u64,
        parent: Option<NodeId>,
        tokens: &[u32],
        groups: &mut [LayerGroup],
    ) -> Option<NodeId> {
        let hash = self.hasher.hash_one((scope, tokens));
        if let Some(&node) = self.children.get(&(parent, hash)) {
            return self.node(node).is(scope, tokens).then_some(node);
        }
        let tokens = tokens.try_into().ok()?;
        while self.free.is_empty() {
            let mut all = 0..self.n_groups;
            all.find(|&group| self.evict(groups, group))?;
        }
        let id = self.free.pop()?;
        self.nodes[id.index()] = Some(PrefixNode {
            parent,
            n_pages: self.depth(parent) + 1,
            uses: 0,
            hash,
            scope,
            tokens,
        });
        self.children.insert((parent, hash), id);
        self.enter(parent);
        Some(id)
    }

    /// Counts one more sequence or child at the node.
    pub(super) fn enter(&mut self, node: Option<NodeId>) {
        if let Some(node) = node {
            self.node_mut(node).uses += 1;
        }
    }

    /// A sequence or child leaves the node, which is removed when it has no uses and no pages left.
    pub(super) fn leave(&mut self, node: Option<NodeId>) {
        if let Some(node) = node {
            self.node_mut(node).uses -= 1;
            self.drop_if_empty(node);
        }
    }

    /// The node on the path to `node` that has `n_pages` pages; moves a sequence's use there.
    pub(super) fn go_back(&mut self, node: Option<NodeId>, n_pages: usize) -> Option<NodeId> {
        let mut target = node;
        while let Some(id) = target
            && self.node(id).n_pages > n_pages
        {
            target = self.node(id).parent;
        }
        self.enter(target);
        self.leave(node);
        target
    }

    fn drop_if_empty(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let pages = &self.pages[id.index() * self.n_groups..][..self.n_groups];
            if self.node(id).uses > 0 || pages.iter().any(Option::is_some) {
                return;
            }
            let Some(node) = self.nodes[id.index()].take() else {
                return;
            };
            self.children.remove(&(node.parent, node.hash));
            self.free.push(id);
            next = node.parent;
            if let Some(parent) = next {
                self.node_mut(parent).uses -= 1;
            }
        }
    }

    /// Gives up the least recently used kept page of `group`; false if there is none.
    pub(super) fn evict(&mut self, groups: &mut [LayerGroup], group: usize) -> bool {
        let depth = |node| self.depth(Some(node));
        let Some((page, node)) = groups[group].least_recent(depth) else {
            return false;
        };
        self.forget(groups, group, node, page);
        if groups[group].window.is_none() {
            // Every beginning of that length needed the page: the other groups' pages are useless.
            for other in 0..self.n_groups {
                if let Some(page) = self.page(node, other) {
                    self.forget(groups, other, node, page);
                }
            }
        }
        self.drop_if_empty(node);
        true
    }

    fn forget(&mut self, groups: &mut [LayerGroup], group: usize, node: NodeId, page: u32) {
        groups[group].forget(page);
        self.set_page(node, group, None);
        self.counters.n_evicted_pages += 1;
    }

    /// The longest beginning of `prompt` in `scope`, of at most `most` tokens, whose every visible page exists.
    pub(super) fn longest(
        &self,
        scope: u64,
        prompt: &[u32],
        most: usize,
        (groups, state_group): (&[LayerGroup], Option<usize>),
    ) -> PrefixMatch {
        let mut nodes = Vec::new();
        let mut complete = Completeness::new(groups, state_group, most);
        for tokens in prompt.chunks_exact(PAGE_TOKENS) {
            if complete.is_enough() {
                break;
            }
            let Some(node) = self.child(scope, nodes.last().copied(), tokens) else {
                break;
            };
            nodes.push(node);
            complete.push(|group| self.page(node, group).is_some());
        }
        let len = complete.len();
        nodes.truncate(len.div_ceil(PAGE_TOKENS));
        PrefixMatch { len, nodes }
    }

    /// The nodes from the first page to `node`.
    pub(super) fn way(&self, node: Option<NodeId>) -> Vec<NodeId> {
        let mut way: Vec<NodeId> =
            std::iter::successors(node, |node| self.node(*node).parent).collect();
        way.reverse();
        way
    }

    /// The tokens of a node's page.
    pub(super) fn tokens(&self, node: NodeId) -> &[u32] {
        &self.node(node).tokens
    }

    /// The pages of each node, by group, for tests that look for useless ones.
    #[cfg(test)]
    pub(super) fn pages_of_nodes(&self) -> impl Iterator<Item = &[Option<u32>]> {
        self.pages.chunks_exact(self.n_groups)
    }

    /// References the index holds to each page of a group, for tests that count them.
    #[cfg(test)]
    pub(super) fn references(&self, group: usize) -> impl Iterator<Item = u32> + '_ {
        let pages = self.pages.chunks(self.n_groups);
        pages.filter_map(move |pages| pages[group])
    }

    /// Nodes in use, for tests.
    #[cfg(test)]
    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}
