//! The paged KV cache: pages, who refers to them, and each sequence's view of them.
//!
//! Layers with the same attention window form a *group* and share page tables: page `p` of a group
//! is slot `p` in the K and V slabs of each of its layers. Pages are reference-counted, so a fork
//! shares its parent's pages until one of them writes; a windowed group drops pages that no future
//! query can see.

use millrace_kernels::{KvBuffer, KvLayout, KvType};
use millrace_model::graph::{Graph, Op};

use crate::Error;

/// Tokens a page holds.
pub const PAGE_TOKENS: usize = 64;

/// Names a sequence of an [`crate::Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub(crate) u32);

/// K and V of one layer.
pub(crate) struct LayerCache {
    pub(crate) layout: KvLayout,
    pub(crate) k: KvBuffer,
    pub(crate) v: KvBuffer,
}

/// Layers that share a window, and their page allocator.
#[derive(Debug)]
struct Group {
    window: Option<usize>,
    layers: Vec<usize>,
    n_pages: usize,
    /// References to each page; 0 means free.
    references: Vec<u32>,
    free: Vec<u32>,
}

/// A sequence's pages in one group.
#[derive(Clone, Debug)]
struct PageTable {
    /// Index in the sequence (position / PAGE_TOKENS) of the first page still held.
    first: usize,
    /// With room for the most there can be ([`KvSizes::table_pages`]): a step allocates nothing when
    /// it takes a page.
    pages: Vec<u32>,
}

impl PageTable {
    fn end(&self) -> usize {
        self.first + self.pages.len()
    }
}

#[derive(Clone, Debug)]
struct Sequence {
    len: usize,
    tables: Vec<PageTable>,
}

/// All pages of all layers, and all sequences.
pub(crate) struct KvCache {
    layers: Vec<LayerCache>,
    group_of: Vec<usize>,
    groups: Vec<Group>,
    sequences: Vec<Option<Sequence>>,
    sizes: KvSizes,
}

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
}

impl KvSizes {
    /// The most pages one sequence holds at a time in a group of that window, and one to unshare.
    fn windowed_pages(&self, window: usize) -> usize {
        window.saturating_add(self.max_chunk).div_ceil(PAGE_TOKENS) + 2
    }

    /// The most pages a sequence's table in `group` lists at a time.
    fn table_pages(&self, group: &Group) -> usize {
        let all = self.n_ctx.div_ceil(PAGE_TOKENS).min(group.n_pages);
        group
            .window
            .map_or(all, |window| all.min(self.windowed_pages(window)))
    }
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
            let (k, v) = slab()
                .and_then(|k| Ok((k, slab()?)))
                .map_err(|_| Error::CacheTooLarge { needed_bytes })?;
            cache.layers.push(LayerCache { layout, k, v });
        }
        // Only now, when the slabs are known to fit.
        for group in &mut cache.groups {
            group.references = vec![0; group.n_pages];
            group.free = (0..group.n_pages as u32).rev().collect();
        }
        Ok(cache)
    }

    /// Bytes of address space that [`KvCache::new`] would take; saturates. Allocates nothing.
    pub(crate) fn bytes_of(graph: &Graph, sizes: KvSizes) -> Result<usize, Error> {
        let (_, slabs) = KvCache::plan(graph, sizes)?;
        let both = slabs
            .iter()
            .map(|(_, slab_bytes)| slab_bytes.saturating_mul(2));
        Ok(both.fold(0, usize::saturating_add))
    }

    /// A cache without its memory: the groups, and layout and bytes of the two slabs of each layer.
    fn plan(graph: &Graph, sizes: KvSizes) -> Result<(KvCache, Vec<(KvLayout, usize)>), Error> {
        let mut cache = KvCache {
            layers: vec![],
            group_of: vec![],
            groups: vec![],
            sequences: vec![],
            sizes,
        };
        let mut slabs = vec![];
        for node in &graph.nodes {
            let Op::Attention(attention) = &node.op else {
                continue;
            };
            let layout = KvLayout {
                dtype: sizes.dtype,
                n_kv_heads: attention.n_kv_heads,
                head_dim: attention.head_dim,
                page_tokens: PAGE_TOKENS,
            };
            layout.check()?;
            let group = cache.group_with_window(attention.window);
            let n_pages = cache.groups[group].n_pages;
            cache.groups[group].layers.push(slabs.len());
            cache.group_of.push(group);
            slabs.push((layout, n_pages.saturating_mul(layout.page_bytes())));
        }
        Ok((cache, slabs))
    }

    fn group_with_window(&mut self, window: Option<usize>) -> usize {
        if let Some(found) = self.groups.iter().position(|group| group.window == window) {
            return found;
        }
        let sizes = &self.sizes;
        let all = sizes
            .kv_tokens
            .div_ceil(PAGE_TOKENS)
            .saturating_add(sizes.max_sequences);
        let n_pages = window.map_or(all, |window| {
            all.min(
                sizes
                    .windowed_pages(window)
                    .saturating_mul(sizes.max_sequences),
            )
        });
        self.groups.push(Group {
            window,
            layers: vec![],
            n_pages,
            references: vec![],
            free: vec![],
        });
        self.groups.len() - 1
    }

    /// Bytes of address space of all slabs.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.layers
            .iter()
            .map(|layer| layer.k.len() + layer.v.len())
            .sum()
    }

    /// Bytes of pages some sequence refers to.
    pub(crate) fn used_bytes(&self) -> usize {
        let layer_bytes = |(layer, group): (&LayerCache, &usize)| {
            let group = &self.groups[*group];
            let used = group.references.len() - group.free.len();
            2 * used * layer.layout.page_bytes()
        };
        self.layers
            .iter()
            .zip(&self.group_of)
            .map(layer_bytes)
            .sum()
    }

    /// A new, empty sequence.
    pub(crate) fn create(&mut self) -> Result<SeqId, Error> {
        let table = |group| PageTable {
            first: 0,
            pages: Vec::with_capacity(self.sizes.table_pages(group)),
        };
        let tables = self.groups.iter().map(table).collect();
        self.insert(Sequence { len: 0, tables })
    }

    fn insert(&mut self, sequence: Sequence) -> Result<SeqId, Error> {
        if let Some(slot) = self.sequences.iter().position(Option::is_none) {
            self.sequences[slot] = Some(sequence);
            return Ok(SeqId(slot as u32));
        }
        if self.sequences.len() >= self.sizes.max_sequences {
            return Err(Error::TooManySequences {
                max_sequences: self.sizes.max_sequences,
            });
        }
        self.sequences.push(Some(sequence));
        Ok(SeqId(self.sequences.len() as u32 - 1))
    }

    fn get(&self, seq: SeqId) -> Result<&Sequence, Error> {
        let slot = self.sequences.get(seq.0 as usize).and_then(Option::as_ref);
        slot.ok_or(Error::NoSequence(seq))
    }

    /// Tokens in the sequence.
    pub(crate) fn len(&self, seq: SeqId) -> Result<usize, Error> {
        Ok(self.get(seq)?.len)
    }

    /// A second sequence with the same past, sharing its pages.
    pub(crate) fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let mut copy = self.get(seq)?.clone();
        for (group, table) in self.groups.iter().zip(&mut copy.tables) {
            let most = self.sizes.table_pages(group);
            table
                .pages
                .reserve_exact(most.saturating_sub(table.pages.len()));
        }
        let fork = self.insert(copy)?;
        if let Some(sequence) = &self.sequences[fork.0 as usize] {
            for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
                table
                    .pages
                    .iter()
                    .for_each(|page| group.references[*page as usize] += 1);
            }
        }
        Ok(fork)
    }

    /// Forgets the sequence and frees the pages only it referred to.
    pub(crate) fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.get(seq)?;
        if let Some(sequence) = self.sequences[seq.0 as usize].take() {
            for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
                table.pages.iter().for_each(|page| group.unref(*page));
            }
        }
        Ok(())
    }

    /// Cuts the sequence back to its first `len` tokens.
    pub(crate) fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        let sequence = self.get(seq)?;
        if len >= sequence.len {
            return Ok(());
        }
        for (group, table) in self.groups.iter().zip(&sequence.tables) {
            let needed = group.oldest_needed(len);
            let oldest = table.first * PAGE_TOKENS;
            if len > 0 && needed < oldest {
                return Err(Error::WindowGone { len, oldest });
            }
        }
        self.cut(seq, len);
        Ok(())
    }

    /// Drops pages past `len` tokens without asking whether the window is still there.
    fn cut(&mut self, seq: SeqId, len: usize) {
        let Some(sequence) = self.sequences[seq.0 as usize].as_mut() else {
            return;
        };
        sequence.len = sequence.len.min(len);
        let keep = len.div_ceil(PAGE_TOKENS);
        for (group, table) in self.groups.iter_mut().zip(&mut sequence.tables) {
            while table.end() > keep
                && let Some(page) = table.pages.pop()
            {
                group.unref(page);
            }
            if len == 0 {
                table.first = 0;
            }
        }
    }

    /// Whether every `(sequence, n_tokens)` fits, however many steps its tokens take.
    pub(crate) fn check_room(
        &self,
        wanted: impl Iterator<Item = (SeqId, usize)> + Clone,
    ) -> Result<(), Error> {
        for (g, group) in self.groups.iter().enumerate() {
            let mut needed = 0;
            for (seq, n_tokens) in wanted.clone() {
                let sequence = self.get(seq)?;
                let fresh = self.pages_needed(sequence, g, n_tokens);
                // A windowed table gives pages back as it grows.
                let held = sequence.tables[g].pages.len();
                let most = group.window.map_or(fresh, |window| {
                    self.sizes.windowed_pages(window).saturating_sub(held)
                });
                needed += fresh.min(most);
            }
            let free = group.free.len();
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

    /// Makes room for `n_tokens` more and unshares the page they begin in. The caller has asked
    /// [`KvCache::check_room`].
    pub(crate) fn reserve(&mut self, seq: SeqId, n_tokens: usize) {
        for g in 0..self.groups.len() {
            self.extend(seq, g, n_tokens);
        }
    }

    /// Whether the last page of the table is both shared and about to be written.
    fn must_unshare(&self, sequence: &Sequence, g: usize) -> bool {
        let table = &sequence.tables[g];
        let partial = !sequence.len.is_multiple_of(PAGE_TOKENS);
        let shared = |page: &u32| self.groups[g].references[*page as usize] > 1;
        partial && table.pages.last().is_some_and(shared)
    }

    fn pages_needed(&self, sequence: &Sequence, g: usize, n_tokens: usize) -> usize {
        let end = (sequence.len + n_tokens).div_ceil(PAGE_TOKENS);
        let fresh = end.saturating_sub(sequence.tables[g].end());
        fresh + usize::from(self.must_unshare(sequence, g))
    }

    fn extend(&mut self, seq: SeqId, g: usize, n_tokens: usize) {
        let Some(mut sequence) = self.sequences[seq.0 as usize].take() else {
            return;
        };
        if self.must_unshare(&sequence, g)
            && let Some(shared) = sequence.tables[g].pages.pop()
        {
            let own = self.groups[g].take();
            self.copy_page(g, shared, own);
            self.groups[g].unref(shared);
            sequence.tables[g].pages.push(own);
        }
        let end = (sequence.len + n_tokens).div_ceil(PAGE_TOKENS);
        let table = &mut sequence.tables[g];
        while table.end() < end {
            table.pages.push(self.groups[g].take());
        }
        self.sequences[seq.0 as usize] = Some(sequence);
    }

    fn copy_page(&mut self, g: usize, from: u32, to: u32) {
        for &layer in &self.groups[g].layers {
            let bytes = self.layers[layer].layout.page_bytes();
            let (from, to) = (from as usize * bytes, to as usize * bytes);
            self.layers[layer].k.copy_within(from..from + bytes, to);
            self.layers[layer].v.copy_within(from..from + bytes, to);
        }
    }

    /// Counts `n_tokens` that a step has written, and drops pages behind the windows.
    pub(crate) fn commit(&mut self, seq: SeqId, n_tokens: usize) {
        let Some(sequence) = self.sequences[seq.0 as usize].as_mut() else {
            return;
        };
        sequence.len += n_tokens;
        for (group, table) in self.groups.iter_mut().zip(&mut sequence.tables) {
            let first_needed = group.oldest_needed(sequence.len) / PAGE_TOKENS;
            let n_behind = first_needed
                .saturating_sub(table.first)
                .min(table.pages.len());
            for page in table.pages.drain(..n_behind) {
                group.unref(page);
            }
            table.first += n_behind;
        }
    }

    /// The slabs, and the tables that say where a sequence's pages are in them.
    pub(crate) fn parts(&mut self) -> (&mut [LayerCache], PageTables<'_>) {
        let tables = PageTables {
            group_of: &self.group_of,
            sequences: &self.sequences,
        };
        (&mut self.layers, tables)
    }
}

/// Where the pages of every sequence are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTables<'a> {
    group_of: &'a [usize],
    sequences: &'a [Option<Sequence>],
}

impl<'a> PageTables<'a> {
    /// The pages of `seq` for one layer, and the position of the first slot of the first of them.
    pub(crate) fn pages(&self, seq: SeqId, layer: usize) -> (&'a [u32], usize) {
        match &self.sequences[seq.0 as usize] {
            Some(sequence) => {
                let table = &sequence.tables[self.group_of[layer]];
                (&table.pages, table.first * PAGE_TOKENS)
            }
            None => (&[], 0),
        }
    }
}

impl Group {
    fn take(&mut self) -> u32 {
        let page = self
            .free
            .pop()
            .expect("reserve() counted the free pages first");
        self.references[page as usize] = 1;
        page
    }

    fn unref(&mut self, page: u32) {
        let count = &mut self.references[page as usize];
        *count -= 1;
        if *count == 0 {
            self.free.push(page);
        }
    }

    /// The oldest position that a token at position `len` or later can see.
    fn oldest_needed(&self, len: usize) -> usize {
        self.window
            .map_or(0, |window| (len + 1).saturating_sub(window))
    }
}

#[cfg(test)]
mod tests;
