use std::collections::BTreeMap;

use millrace_graph::{
    Attention, Extension, Node, Op, Operation, Shapes, StateShape, TokenContext, ValueId,
};
use proptest::prelude::*;

use super::*;

mod actions;
mod prefixes;
mod scopes;

const HEAD_DIM: usize = 8;
const MAX_CHUNK: usize = 100;

/// An op with a state. Its computation does not matter here.
#[derive(Debug)]
struct Remember;

const STATE: StateShape = StateShape {
    index: 0,
    n_elems: 2,
};

impl Operation for Remember {
    fn name(&self) -> &'static str {
        "remember"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, _: &Shapes<'_>) -> Result<(), String> {
        Ok(())
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(STATE)
    }

    fn row(&self, _: &TokenContext<'_, f32>, _: &mut [f32], _: &mut [f32]) {}

    fn row_f64(&self, _: &TokenContext<'_, f64>, _: &mut [f64], _: &mut [f64]) {}
}

/// A graph of attention layers with these windows, and with a state or without.
fn graph(windows: &[Option<usize>], has_state: bool) -> Graph {
    let node = |(layer, window): (usize, &Option<usize>)| Node {
        op: Op::Attention(Attention {
            layer,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: HEAD_DIM,
            scale: 1.0,
            window: *window,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        }),
        inputs: vec![],
        output: ValueId(0),
        layer: Some(layer),
        label: "attn",
    };
    let remember = Node {
        op: Op::Extension(Extension::new(Remember)),
        inputs: vec![],
        output: ValueId(0),
        layer: None,
        label: "remember",
    };
    let attention = windows.iter().enumerate().map(node);
    Graph {
        nodes: attention.chain(has_state.then_some(remember)).collect(),
        ..Graph::default()
    }
}

fn cache(windows: &[Option<usize>], kv_tokens: usize, max_sequences: usize) -> KvCache {
    cache_with(windows, kv_tokens, max_sequences, false)
}

fn cache_with(
    windows: &[Option<usize>],
    kv_tokens: usize,
    max_sequences: usize,
    keep_prefixes: bool,
) -> KvCache {
    cache_of(
        &graph(windows, false),
        kv_tokens,
        max_sequences,
        keep_prefixes,
    )
}

fn cache_of(graph: &Graph, kv_tokens: usize, max_sequences: usize, keep_prefixes: bool) -> KvCache {
    let sizes = KvSizes {
        dtype: KvType::F32,
        n_ctx: kv_tokens,
        kv_tokens,
        max_sequences,
        max_chunk: MAX_CHUNK,
        keep_prefixes,
        rollback_tokens: ROLLBACK_TOKENS,
    };
    KvCache::new(graph, sizes).unwrap()
}

/// A text: all agree up to token `100 · text`, and then it goes its own way.
fn text(text: usize, len: usize) -> Vec<u32> {
    let token = |i| if i < 100 * text { i } else { i + 10_000 * text };
    (0..len).map(|i| token(i) as u32).collect()
}

/// A stand-in for the key of each token: like a real one it depends on all tokens before.
fn keys(tokens: &[u32]) -> Vec<u8> {
    let mut hash = 7u32;
    let key = |token: &u32| {
        hash = (hash ^ token).wrapping_mul(16_777_619).rotate_left(9);
        (hash >> 13) as u8
    };
    tokens.iter().map(key).collect()
}

/// A stand-in for the state after tokens.
fn state(tokens: &[u32]) -> [f32; 2] {
    let next = |[a, b]: [f32; 2], token: &u32| {
        let a = (a as u32 * 31 + token + 1) % (1 << 20);
        [a as f32, b + 1.0]
    };
    tokens.iter().fold([0.0; 2], next)
}

/// Writes the state after each token as an engine does, from the previous one.
fn advance(cache: &mut KvCache, seq: SeqId, first: usize, tokens: &[u32]) {
    let CacheParts { states, tables, .. } = cache.parts();
    let (pages, first_page) = tables.state_pages(seq);
    for (position, token) in (first..).zip(tokens) {
        let at = position / PAGE_TOKENS - first_page;
        if position % PAGE_TOKENS == 0 {
            let before = (position > 0).then(|| pages[at - 1]);
            states.begin(STATE, before, pages[at]);
        }
        let state = states.state_mut(STATE, pages[at]);
        state[0] = ((state[0] as u32 * 31 + token + 1) % (1 << 20)) as f32;
        state[1] += 1.0;
    }
}

/// Where a position's first K byte is in the slab of `layer`, if its page is held.
fn offset(cache: &mut KvCache, seq: SeqId, layer: usize, position: usize) -> Option<usize> {
    let CacheParts { layers, tables, .. } = cache.parts();
    let (pages, first) = tables.pages(seq, layer);
    let page = pages.get(position.checked_sub(first)? / PAGE_TOKENS)?;
    let layout = &layers[layer].layout;
    let row_bytes = layout.page_bytes() / PAGE_TOKENS;
    Some(*page as usize * layout.page_bytes() + position % PAGE_TOKENS * row_bytes)
}

/// Appends tokens, writing each one's key into its slot of every layer.
fn append(cache: &mut KvCache, seq: SeqId, tokens: &[u32]) -> Result<(), Error> {
    cache.check_room([(seq, tokens.len())].into_iter(), (0, 0))?;
    let again = cache.take_replay(seq)?.unwrap_or_default();
    let valid = cache.len(seq)?;
    assert!(again.len() < PAGE_TOKENS && valid.is_multiple_of(PAGE_TOKENS) || again.is_empty());
    for tokens in [&again, tokens].iter().flat_map(|t| t.chunks(MAX_CHUNK)) {
        cache.reserve(seq, tokens.len())?;
        let len = cache.len(seq)?;
        let keys = keys(&[cache.tokens(seq)?, tokens].concat());
        for layer in 0..cache.layers.len() {
            for (i, key) in keys.iter().enumerate().skip(len) {
                let at = offset(cache, seq, layer, i).expect("reserved");
                cache.layers[layer].k[at] = *key;
                cache.layers[layer].v[at] = !*key;
            }
        }
        if cache.state_group.is_some() {
            advance(cache, seq, len, tokens);
        }
        cache.commit(seq, tokens)?;
    }
    Ok(())
}

/// Checks that every position a next token could see holds its key.
fn assert_holds(cache: &mut KvCache, seq: SeqId, tokens: &[u32]) {
    assert_eq!(cache.tokens(seq).unwrap(), tokens);
    let keys = keys(tokens);
    for layer in 0..cache.layers.len() {
        let oldest = cache.groups[cache.group_of[layer]].oldest_needed(tokens.len());
        for (position, key) in keys.iter().enumerate().skip(oldest) {
            let at = offset(cache, seq, layer, position).expect("visible positions are held");
            assert_eq!(
                cache.layers[layer].k[at], *key,
                "layer {layer} at {position}"
            );
            assert_eq!(cache.layers[layer].v[at], !*key);
        }
    }
    // The state is after the last token, or at the beginning of a page, from which it is computed again.
    if cache.state_group.is_none() {
        return;
    }
    let valid = cache.sequences.get(seq).unwrap().state_len;
    assert!(valid == tokens.len() || valid == tokens.len() / PAGE_TOKENS * PAGE_TOKENS);
    let (pages, first) = cache.shared().1.state_pages(seq);
    let held = valid
        .checked_sub(1)
        .map(|last| pages[last / PAGE_TOKENS - first]);
    let held = held.map_or(&[0.0; 2][..], |page| cache.states.slot(page));
    assert_eq!(held, state(&tokens[..valid]));
}

/// Checks that references, free lists and counts agree with the tables and the index.
fn assert_accounts(cache: &KvCache) {
    for (g, group) in cache.groups.iter().enumerate() {
        let mut listed = vec![0; group.n_pages];
        for sequence in cache.sequences.iter() {
            for page in &sequence.tables[g].pages {
                listed[*page as usize] += 1;
            }
        }
        let used = listed.iter().filter(|count| **count > 0).count();
        assert_eq!(used, group.used());
        let kept = cache.prefixes.iter().flat_map(|index| index.references(g));
        kept.for_each(|page| listed[page as usize] += 1);
        assert_eq!(listed, group.references());
        let free = listed.iter().filter(|count| **count == 0).count();
        assert_eq!(free, group.n_free());
        assert_eq!(free + group.idle() + used, group.n_pages);
    }
    // A beginning needs the pages of every layer without a window.
    let nodes = cache
        .prefixes
        .iter()
        .flat_map(|index| index.pages_of_nodes());
    for pages in nodes.filter(|pages| pages.iter().any(Option::is_some)) {
        let mut groups = pages.iter().zip(&cache.groups);
        let is_useful = groups.all(|(page, group)| page.is_some() || group.window.is_some());
        assert!(
            is_useful,
            "pages that no prompt can find are kept: {pages:?}"
        );
    }
}

#[test]
fn a_windowed_group_drops_what_no_token_can_see_but_for_a_little() {
    let mut cache = cache(&[Some(70), None], 1000, 1);
    let seq = cache.create().unwrap();
    let tokens = text(0, 500);
    append(&mut cache, seq, &tokens).unwrap();
    assert_holds(&mut cache, seq, &tokens);
    let tables = cache.parts().tables;
    let (windowed, first) = tables.pages(seq, 0);
    assert_eq!((windowed.len(), first), (3, 320));
    assert_eq!(tables.pages(seq, 1).0.len(), 8);
    let found = cache.truncate(seq, 300);
    assert!(
        matches!(
            found,
            Err(Error::WindowGone {
                len: 300,
                oldest: 320
            })
        ),
        "{found:?}"
    );
    assert_holds(&mut cache, seq, &tokens);
    cache.truncate(seq, 460).unwrap();
    assert_holds(&mut cache, seq, &tokens[..460]);
    cache.truncate(seq, 0).unwrap();
    append(&mut cache, seq, &tokens[..30]).unwrap();
    assert_holds(&mut cache, seq, &tokens[..30]);
}

/// Wherever the sequence ends: across a page, with a window that begins with a page or ends with one.
#[test]
fn a_little_can_always_be_cut_and_appended_anew() {
    for window in [1, 2, 63, 64, 65, 100, 128, 129] {
        let mut cache = cache(&[Some(window), None], 1000, 1);
        let seq = cache.create().unwrap();
        let (tokens, other) = (text(0, 700), text(1, 700));
        for len in (120..400).step_by(7).chain([128, 129, 192, 256, 257]) {
            cache.truncate(seq, 0).unwrap();
            append(&mut cache, seq, &tokens[..len]).unwrap();
            let back = len - ROLLBACK_TOKENS;
            cache.truncate(seq, back).unwrap();
            assert_holds(&mut cache, seq, &tokens[..back]);
            append(&mut cache, seq, &other[back..len]).unwrap();
            let both = [&tokens[..back], &other[back..len]].concat();
            assert_holds(&mut cache, seq, &both);
        }
    }
}

#[test]
fn a_fork_shares_pages_until_one_side_writes() {
    let mut cache = cache(&[None], 1000, 2);
    let a = cache.create().unwrap();
    append(&mut cache, a, &[7; 100]).unwrap();
    let before = cache.used_bytes();
    let b = cache.fork(a).unwrap();
    assert_eq!(cache.used_bytes(), before);
    append(&mut cache, b, &[9; 5]).unwrap();
    assert_eq!(
        cache.used_bytes(),
        before / 2 * 3,
        "one page of two was copied"
    );
    append(&mut cache, a, &[8; 5]).unwrap();
    let with = |token| [vec![7; 100], vec![token; 5]].concat();
    assert_holds(&mut cache, a, &with(8));
    assert_holds(&mut cache, b, &with(9));
    cache.release(a).unwrap();
    assert_holds(&mut cache, b, &with(9));
    assert!(matches!(cache.len(a), Err(Error::NoSequence(_))));
    assert!(matches!(cache.release(a), Err(Error::NoSequence(_))));
    assert_accounts(&cache);
}

#[test]
fn a_full_cache_refuses_before_anything_changes() {
    let mut cache = cache(&[None], 128, 1);
    let seq = cache.create().unwrap();
    append(&mut cache, seq, &[1; 128]).unwrap();
    let found = append(&mut cache, seq, &[1; 200]);
    assert!(
        matches!(
            found,
            Err(Error::CacheFull {
                needed: 4,
                free: 1,
                ..
            })
        ),
        "{found:?}"
    );
    assert_holds(&mut cache, seq, &[1; 128]);
    let found = cache.create();
    assert!(matches!(
        found,
        Err(Error::TooManySequences { max_sequences: 1 })
    ));
}

#[test]
fn a_fork_in_a_full_cache_has_no_room_but_asks_for_none() {
    let mut cache = cache(&[None], 192, 3);
    let [a, full] = [0; 2].map(|_| cache.create().unwrap());
    append(&mut cache, a, &[1; 130]).unwrap();
    append(&mut cache, full, &[2; 192]).unwrap();
    let fork = cache.fork(a).unwrap();
    // Writing to it needs a separate page, and there is none.
    assert_eq!(cache.room(&[fork], 0).unwrap(), 0);
    append(&mut cache, fork, &[]).unwrap();
    let found = append(&mut cache, fork, &[3]);
    let expected = matches!(
        found,
        Err(Error::CacheFull {
            needed: 1,
            free: 0,
            ..
        })
    );
    assert!(expected, "{found:?}");
    cache.truncate(full, 100).unwrap();
    assert_eq!(cache.room(&[fork], 0).unwrap(), 62);
    append(&mut cache, fork, &[3; 62]).unwrap();
    assert_holds(&mut cache, a, &[1; 130]);
}
