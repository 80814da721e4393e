//! Beginnings of prompts that the index and the disk have together.

use std::time::SystemTime;

use crate::Error;
use crate::disk::DiskError;
use crate::disk::page::{PageAt, PageKey, PageText};
use crate::image::is_row;
use crate::kv::append::keep_full_pages;
use crate::kv::pages::{CHECKPOINT_PAGES, LayerGroup};
use crate::kv::prefix::{Completeness, NodeId};
use crate::kv::{KvCache, PAGE_TOKENS};
use crate::sequences::SeqId;

/// A page on the way of a prompt: in the index, on disk, or in both.
#[derive(Clone, Copy, Debug)]
struct WayPage {
    node: Option<NodeId>,
    parent: Option<PageKey>,
    key: PageKey,
}

/// The beginning of a prompt that the index and the disk have together.
#[derive(Debug)]
pub(in crate::kv) struct DiskMatch {
    /// Tokens.
    pub(in crate::kv) len: usize,
    /// As many as `len` touches.
    way: Vec<WayPage>,
}

/// The part of a beginning that the index holds, with a reference to each page.
#[derive(Debug, Default)]
struct CachedStart {
    /// By group: the first page that is wanted.
    firsts: Vec<usize>,
    /// By group: those of the wanted pages that the index has, in order.
    tables: Vec<Vec<u32>>,
    /// The other pages, as group and number in the text, in order.
    missing: Vec<(usize, usize)>,
}

impl KvCache {
    /// Writes the pages on the way to a node, except those of images and those already on disk. States are expensive:
    /// they are kept only after the last page, and after one of every [`CHECKPOINT_PAGES`].
    pub(in crate::kv) fn store_way(&self, node: Option<NodeId>, scope: u64) {
        let (Some(store), Some(prefixes)) = (&self.store, &self.prefixes) else {
            return;
        };
        let nodes = prefixes.way(node);
        let (mut parent, mut used, now) = (None, Vec::new(), SystemTime::now());
        for (depth, node) in nodes.iter().enumerate() {
            let tokens = prefixes.tokens(*node);
            if tokens.iter().any(|token| is_row(*token)) {
                break;
            }
            let key = PageKey::of(scope, parent, tokens);
            let is_checkpoint = depth + 1 == nodes.len() || (depth + 1) % CHECKPOINT_PAGES == 0;
            for (group, of_group) in self.groups.iter().enumerate() {
                let at = PageAt { key, depth, group };
                used.push(at);
                let wanted = !of_group.is_of_states || is_checkpoint;
                let Some(page) = prefixes.page(*node, group).filter(|_| wanted) else {
                    continue;
                };
                if store.has(at) {
                    continue;
                }
                let mut bytes = Vec::with_capacity(self.page_bytes(group));
                let copied: Result<(), DiskError> = self.each_part((group, page), &mut |part| {
                    bytes.extend_from_slice(part);
                    Ok(())
                });
                if copied.is_ok() {
                    let text = PageText {
                        scope,
                        parent,
                        tokens,
                    };
                    store.put(at, now, text, bytes);
                }
            }
            parent = Some(key);
        }
        store.touch(&used, now);
    }

    /// The longest beginning of `prompt`, of at most `most` tokens, whose every visible page is in the index or on disk.
    pub(in crate::kv) fn find_on_disk(
        &self,
        scope: u64,
        prompt: &[u32],
        most: usize,
    ) -> Option<DiskMatch> {
        let (store, prefixes) = (self.store.as_ref()?, self.prefixes.as_ref()?);
        let mut way: Vec<WayPage> = Vec::new();
        let mut complete = Completeness::new(&self.groups, self.state_group, most);
        // Where every layer forgets, a text may lack its first pages and still have all that its last token sees.
        let may_lack = self.groups.iter().all(|group| group.window.is_some());
        for tokens in prompt.chunks_exact(PAGE_TOKENS) {
            let last = way.last().copied();
            if complete.is_enough() || tokens.iter().any(|token| is_row(*token)) {
                break;
            }
            let parent = last.map(|page| page.key);
            let key = PageKey::of(scope, parent, tokens);
            let node = match last {
                Some(WayPage { node: None, .. }) => None,
                last => prefixes.child(scope, last.and_then(|page| page.node), tokens),
            };
            let depth = way.len();
            let has = |group: usize| {
                node.is_some_and(|node| prefixes.page(node, group).is_some())
                    || store.can_read(PageAt { key, depth, group })
            };
            if node.is_none() && !may_lack && !(0..self.groups.len()).any(has) {
                break;
            }
            way.push(WayPage { node, parent, key });
            complete.push(has);
        }
        let len = complete.len();
        way.truncate(len.div_ceil(PAGE_TOKENS));
        Some(DiskMatch { len, way })
    }

    /// Makes a sequence hold the beginning that was found: pages of the index are shared, the others are read. False if that
    /// failed, and then the sequence is empty.
    pub(in crate::kv) fn adopt_from_disk(
        &mut self,
        seq: SeqId,
        prompt: &[u32],
        found: &DiskMatch,
    ) -> Result<bool, Error> {
        let scope = self.sequences.get(seq)?.scope;
        let CachedStart {
            firsts,
            mut tables,
            missing,
        } = self.share_of(found);
        self.cut(seq, 0)?;
        let fits = |(g, group): (usize, &LayerGroup)| {
            missing.iter().filter(|(of, _)| *of == g).count() <= group.available()
        };
        let mut is_read = self.groups.iter().enumerate().all(fits);
        for (g, depth) in missing {
            if !is_read {
                break;
            }
            let page = self.take(g);
            // All earlier pages are there: missing pages come in order.
            tables[g].insert(depth - firsts[g], page);
            is_read = self.read_page((g, page), (scope, depth), prompt, found);
        }
        if !is_read {
            self.drop_pages(&tables);
            return Ok(false);
        }
        self.hold(seq, &prompt[..found.len], tables, &firsts)?;
        self.now += 1;
        let sequence = self.sequences.get_mut(seq)?;
        keep_full_pages(sequence, self.prefixes.as_mut(), &mut self.groups, self.now);
        Ok(true)
    }

    /// Takes a reference to each wanted page that the index has.
    fn share_of(&mut self, found: &DiskMatch) -> CachedStart {
        let mut shared = CachedStart::default();
        for (g, group) in self.groups.iter_mut().enumerate() {
            let first = group.oldest_needed(found.len) / PAGE_TOKENS;
            let mut pages = Vec::new();
            for (depth, page) in found.way.iter().enumerate().skip(first) {
                let of_index = page.node.zip(self.prefixes.as_ref());
                match of_index.and_then(|(node, prefixes)| prefixes.page(node, g)) {
                    Some(page) => {
                        group.share(page);
                        pages.push(page);
                    }
                    None => shared.missing.push((g, depth)),
                }
            }
            shared.firsts.push(first);
            shared.tables.push(pages);
        }
        shared
    }

    fn read_page(
        &mut self,
        (g, page): (usize, u32),
        (scope, depth): (u64, usize),
        prompt: &[u32],
        found: &DiskMatch,
    ) -> bool {
        let Some(store) = self.store.take() else {
            return false;
        };
        let WayPage { key, parent, .. } = found.way[depth];
        let at = PageAt {
            key,
            depth,
            group: g,
        };
        let text = PageText {
            scope,
            parent,
            tokens: &prompt[depth * PAGE_TOKENS..(depth + 1) * PAGE_TOKENS],
        };
        let is_read = store.read(at, text, &mut |reader| {
            self.fill_parts((g, page), &mut |out| reader.read(out))
        });
        self.store = Some(store);
        is_read
    }
}
