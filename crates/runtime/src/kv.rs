//! The paged KV cache: pages, the references to them, and each sequence's view of them.
//!
//! Layers with the same attention window form a *group* and share page tables: page `p` of a group
//! is slot `p` in the K and V slabs of each of its layers. Pages are reference-counted, so a fork
//! shares its parent's pages until one of them writes. A windowed group drops pages that no future
//! query can see, except for a page's worth that lets a sequence be cut back a little.
//!
//! The [`prefix`] index keeps full pages after their sequences are gone, as long as nothing else needs
//! the room. The cache never changes a result: the keys and values of a token depend only on the
//! tokens before it, bit for bit.

mod append;
pub(crate) mod disk;
mod pages;
mod prefix;
mod reuse;
mod sizes;
mod states;
mod tables;

use millrace_graph::{Graph, SequenceMemory};
use millrace_kernels::{KvBuffer, KvLayout, KvType};

use crate::Error;
use crate::disk::store::PageStore;
use crate::image::is_row;
use crate::sequences::{SeqId, Sequences};
use pages::LayerGroup;
pub use prefix::PrefixCounters;
use prefix::{NodeId, PrefixIndex};
pub(crate) use sizes::KvSizes;
use states::STATE_WINDOW;
pub(crate) use states::StateSlab;
pub(crate) use tables::{CacheParts, PageTables};

/// Tokens a page holds.
pub const PAGE_TOKENS: usize = 64;

/// Tokens by which [`truncate`](crate::Engine::truncate) can always shorten a sequence: its windowed layers keep
/// that many positions more than the next token sees.
pub const ROLLBACK_TOKENS: usize = PAGE_TOKENS;

/// K and V of one layer.
pub(crate) struct LayerCache {
    pub(crate) layout: KvLayout,
    pub(crate) k: KvBuffer,
    pub(crate) v: KvBuffer,
}

/// A sequence's pages in one group.
#[derive(Clone, Debug)]
struct PageTable {
    /// Index in the sequence (position / PAGE_TOKENS) of the first page still held.
    first: usize,
    /// With capacity for the maximum ([`KvSizes::table_pages`]): a step allocates nothing when it
    /// takes a page.
    pages: Vec<u32>,
}

impl PageTable {
    fn end(&self) -> usize {
        self.first + self.pages.len()
    }
}

#[derive(Clone, Debug)]
struct KvSequence {
    /// With room for a full context.
    tokens: Vec<u32>,
    tables: Vec<PageTable>,
    /// Where its full pages are in the prefix index, as far as they are.
    node: Option<NodeId>,
    /// Scope of the kept pages that it finds, and of those it leaves.
    scope: u64,
    /// Tokens up to which its states are computed; less than all of them if a cut left no later states.
    state_len: usize,
    /// Tokens up to which its slot for snapshots has a copy of its states.
    snapshot: Option<usize>,
    /// Whether the states after `state_len` tokens are that copy, while the page's slot holds other states.
    is_rolled_back: bool,
}

/// All pages of all layers, and all sequences.
pub(crate) struct KvCache {
    layers: Vec<LayerCache>,
    group_of: Vec<usize>,
    groups: Vec<LayerGroup>,
    /// The group whose pages are slots of states, if the graph has states.
    state_group: Option<usize>,
    states: StateSlab,
    sequences: Sequences<KvSequence>,
    prefixes: Option<PrefixIndex>,
    /// Kept pages on disk.
    store: Option<PageStore>,
    sizes: KvSizes,
    /// Counts releases of pages, to order them by last use.
    now: u64,
}

impl KvCache {
    /// Lays out the cache for the attention layers of `graph`. The slabs are zeroed lazily by the
    /// system, so memory is spent only on pages that were written.
    pub(crate) fn new(graph: &Graph, sizes: KvSizes) -> Result<KvCache, Error> {
        let (mut cache, slabs) = KvCache::plan(graph, sizes)?;
        let mut needed_bytes = 0usize;
        for (layout, slab_bytes) in slabs {
            needed_bytes = needed_bytes.saturating_add(slab_bytes.saturating_mul(2));
            let slab = || KvBuffer::zeroed(slab_bytes);
            let slabs = slab().and_then(|k| Ok((k, slab()?)));
            let (k, v) = slabs.map_err(|_| Error::CacheTooLarge { needed_bytes })?;
            cache.layers.push(LayerCache { layout, k, v });
        }
        if let Some(group) = cache.state_group {
            let n_slots = cache.groups[group]
                .n_pages
                .saturating_add(sizes.max_sequences);
            cache.states = StateSlab::new(graph, n_slots)?;
        }
        // Only now, when the slabs are known to fit.
        cache.groups.iter_mut().for_each(LayerGroup::lay_out);
        if sizes.keep_prefixes && !cache.groups.is_empty() {
            let n_groups = cache.groups.len();
            cache.prefixes = Some(PrefixIndex::new(sizes.full_pages(), n_groups));
        }
        Ok(cache)
    }

    /// Bytes of address space that [`KvCache::new`] would need; saturates. Allocates nothing.
    pub(crate) fn bytes_of(graph: &Graph, sizes: KvSizes) -> Result<usize, Error> {
        let (cache, slabs) = KvCache::plan(graph, sizes)?;
        let slots = cache.n_state_slots();
        let states = slots.saturating_mul(states::state_bytes(graph));
        let both = slabs
            .iter()
            .map(|(_, slab_bytes)| slab_bytes.saturating_mul(2));
        Ok(both.fold(states, usize::saturating_add))
    }

    /// Slots of states that [`KvCache::new`] would lay out, and bytes of one; zeros for a graph without states.
    pub(crate) fn slots_of(graph: &Graph, sizes: KvSizes) -> Result<(usize, usize), Error> {
        let (cache, _) = KvCache::plan(graph, sizes)?;
        Ok((cache.n_state_slots(), states::state_bytes(graph)))
    }

    /// Slots of states: those of pages, and one a sequence for its snapshot.
    fn n_state_slots(&self) -> usize {
        self.state_group.map_or(0, |group| {
            let n_pages = self.groups[group].n_pages;
            n_pages.saturating_add(self.sizes.max_sequences)
        })
    }

    /// A cache without its memory: the groups, and layout and bytes of the two slabs of each layer.
    fn plan(graph: &Graph, mut sizes: KvSizes) -> Result<(KvCache, Vec<(KvLayout, usize)>), Error> {
        let has_states = states::state_bytes(graph) > 0;
        if has_states {
            sizes.rollback_tokens += PAGE_TOKENS;
        }
        let mut cache = KvCache {
            layers: vec![],
            group_of: vec![],
            groups: vec![],
            state_group: None,
            states: StateSlab::new(&Graph::default(), 0)?,
            sequences: Sequences::new(sizes.max_sequences),
            prefixes: None,
            store: None,
            sizes,
            now: 0,
        };
        let mut slabs = vec![];
        for node in &graph.nodes {
            let SequenceMemory::KvCache(kv) = node.op.memory() else {
                continue;
            };
            let layout = KvLayout {
                dtype: sizes.dtype,
                n_kv_heads: kv.n_kv_heads,
                head_dim: kv.head_dim,
                page_tokens: PAGE_TOKENS,
            };
            layout.check()?;
            let group = cache.group_with_window(kv.window);
            let n_pages = cache.groups[group].n_pages;
            cache.groups[group].layers.push(slabs.len());
            cache.group_of.push(group);
            slabs.push((layout, n_pages.saturating_mul(layout.page_bytes())));
        }
        if has_states {
            let n_pages = sizes.state_slots();
            cache.state_group = Some(cache.groups.len());
            let mut slots = LayerGroup::new(Some(STATE_WINDOW), n_pages);
            slots.is_of_states = true;
            cache.groups.push(slots);
        }
        Ok((cache, slabs))
    }

    fn group_with_window(&mut self, window: Option<usize>) -> usize {
        if let Some(found) = self.groups.iter().position(|group| group.window == window) {
            return found;
        }
        let n_pages = self.sizes.group_pages(window);
        self.groups.push(LayerGroup::new(window, n_pages));
        self.groups.len() - 1
    }

    /// Bytes of address space of all slabs.
    pub(crate) fn capacity_bytes(&self) -> usize {
        let n_snapshots = match self.state_group {
            Some(_) => self.sizes.max_sequences,
            None => 0,
        };
        self.bytes(|group| group.n_pages) + n_snapshots * self.states.slot_bytes()
    }

    /// Pages of the layers without a window, or of the layers with most pages.
    pub(crate) fn capacity_pages(&self) -> usize {
        let of_tokens = self.groups.iter().filter(|group| !group.is_of_states);
        let unbounded = of_tokens.clone().find(|group| group.window.is_none());
        let most = || of_tokens.map(|group| group.n_pages).max();
        unbounded
            .map(|group| group.n_pages)
            .or_else(most)
            .unwrap_or(0)
    }

    /// Bytes of pages some sequence refers to.
    pub(crate) fn used_bytes(&self) -> usize {
        self.bytes(LayerGroup::used)
    }

    /// Bytes of pages that are kept for prefixes alone.
    pub(crate) fn idle_bytes(&self) -> usize {
        self.bytes(LayerGroup::idle)
    }

    fn bytes(&self, n_pages: impl Fn(&LayerGroup) -> usize) -> usize {
        let layers = self.layers.iter().zip(&self.group_of);
        let bytes = |(layer, group): (&LayerCache, &usize)| {
            2 * n_pages(&self.groups[*group]) * layer.layout.page_bytes()
        };
        let slots = self
            .state_group
            .map_or(0, |group| n_pages(&self.groups[group]));
        layers.map(bytes).sum::<usize>() + slots * self.states.slot_bytes()
    }

    /// Counters of the prefix index.
    pub(crate) fn prefix_counters(&self) -> PrefixCounters {
        let counters = self.prefixes.as_ref().map(|prefixes| prefixes.counters);
        PrefixCounters {
            n_idle_pages: self.groups.iter().map(LayerGroup::idle).sum(),
            ..counters.unwrap_or_default()
        }
    }

    /// A new, empty sequence.
    pub(crate) fn create(&mut self) -> Result<SeqId, Error> {
        let sequence = KvSequence {
            tokens: self.token_list(&[])?,
            tables: self
                .groups
                .iter()
                .map(|group| PageTable {
                    first: 0,
                    pages: Vec::with_capacity(self.sizes.table_pages(group)),
                })
                .collect(),
            node: None,
            scope: 0,
            state_len: 0,
            snapshot: None,
            is_rolled_back: false,
        };
        self.sequences.insert(sequence)
    }

    /// These tokens, with room for a full context.
    fn token_list(&self, tokens: &[u32]) -> Result<Vec<u32>, Error> {
        let mut list = Vec::new();
        let reserved = list.try_reserve_exact(self.sizes.n_ctx);
        reserved.map_err(|_| Error::CacheTooLarge {
            needed_bytes: self.sizes.n_ctx.saturating_mul(size_of::<u32>()),
        })?;
        list.extend_from_slice(tokens);
        Ok(list)
    }

    /// Tokens in the sequence.
    pub(crate) fn len(&self, seq: SeqId) -> Result<usize, Error> {
        Ok(self.tokens(seq)?.len())
    }

    /// The tokens of the sequence.
    pub(crate) fn tokens(&self, seq: SeqId) -> Result<&[u32], Error> {
        Ok(&self.sequences.get(seq)?.tokens)
    }

    /// A second sequence with the same past, sharing its pages.
    pub(crate) fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let parent = self.sequences.get(seq)?;
        self.sequences.check_free()?;
        let mut copy = KvSequence {
            tokens: self.token_list(&parent.tokens)?,
            tables: parent.tables.clone(),
            node: parent.node,
            scope: parent.scope,
            // A snapshot is its sequence's own.
            state_len: match parent.is_rolled_back {
                true => parent.state_len / PAGE_TOKENS * PAGE_TOKENS,
                false => parent.state_len,
            },
            snapshot: None,
            is_rolled_back: false,
        };
        for (group, table) in self.groups.iter_mut().zip(&mut copy.tables) {
            let most = self.sizes.table_pages(group);
            table
                .pages
                .reserve_exact(most.saturating_sub(table.pages.len()));
            table.pages.iter().for_each(|page| group.share(*page));
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.enter(copy.node);
        }
        self.sequences.insert(copy)
    }

    /// Puts the sequence into a scope; its tokens are given up if it was in another.
    pub(crate) fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error> {
        if self.sequences.get(seq)?.scope != scope {
            self.cut(seq, 0)?;
            self.sequences.get_mut(seq)?.scope = scope;
        }
        Ok(())
    }

    /// Forgets the sequence; pages that only it referred to become free, or idle if they are kept.
    pub(crate) fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        let sequence = self.sequences.remove(seq)?;
        self.store_way(sequence.node, sequence.scope);
        self.now += 1;
        for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
            let pages = table.pages.iter();
            pages.for_each(|page| group.unref(*page, self.now));
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.leave(sequence.node);
        }
        Ok(())
    }

    /// Cuts the sequence back to its first `len` tokens.
    pub(crate) fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        let sequence = self.sequences.get(seq)?;
        if len >= sequence.tokens.len() {
            return Ok(());
        }
        let whole = self.with_state(seq, len)?;
        for (group, table) in self.groups.iter().zip(&sequence.tables) {
            let oldest = table.first * PAGE_TOKENS;
            if len > 0 && group.oldest_needed(whole) < oldest {
                return Err(Error::WindowGone { len, oldest });
            }
        }
        // Rows of an image cannot be computed again from tokens.
        if sequence.tokens[whole..len]
            .iter()
            .any(|token| is_row(*token))
        {
            return Err(Error::WindowGone { len, oldest: whole });
        }
        self.cut(seq, len)
    }

    /// Gives back pages that were reserved for a pass that failed: a fork would share them, and both
    /// sequences would write them.
    pub(crate) fn unreserve(&mut self, seq: SeqId) -> Result<(), Error> {
        let len = self.len(seq)?;
        // The pass may have begun to write states of the last page.
        let sequence = self.sequences.get_mut(seq)?;
        sequence.state_len = sequence.state_len.min(len / PAGE_TOKENS * PAGE_TOKENS);
        sequence.is_rolled_back = false;
        self.cut(seq, len)
    }

    /// Drops everything after `len` tokens without checking whether the window is still there.
    fn cut(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        let sequence = self.sequences.get_mut(seq)?;
        self.now += 1;
        sequence.cut_states(len);
        sequence.tokens.truncate(len);
        let keep = len.div_ceil(PAGE_TOKENS);
        for (group, table) in self.groups.iter_mut().zip(&mut sequence.tables) {
            while table.end() > keep
                && let Some(page) = table.pages.pop()
            {
                group.unref(page, self.now);
            }
            if len == 0 {
                table.first = 0;
            }
        }
        if let Some(prefixes) = &mut self.prefixes {
            sequence.node = prefixes.go_back(sequence.node, len / PAGE_TOKENS);
        }
        Ok(())
    }

    /// The format of keys and values.
    pub(crate) fn kv_type(&self) -> KvType {
        self.sizes.dtype
    }

    /// Whether pages are kept for other sequences.
    pub(crate) fn keeps_prefixes(&self) -> bool {
        self.prefixes.is_some()
    }
}

#[cfg(test)]
mod tests;
