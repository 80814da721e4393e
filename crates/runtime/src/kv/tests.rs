use std::collections::HashMap;

use millrace_model::graph::{Attention, Node, ValueId};
use proptest::prelude::*;

use super::*;

const HEAD_DIM: usize = 8;

/// A graph of attention layers with these windows.
fn graph(windows: &[Option<usize>]) -> Graph {
    let node = |(layer, window): (usize, &Option<usize>)| Node {
        op: Op::Attention(Attention {
            layer,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: HEAD_DIM,
            scale: 1.0,
            window: *window,
        }),
        inputs: vec![],
        output: ValueId(0),
        layer: Some(layer),
        label: "attn",
    };
    Graph {
        nodes: windows.iter().enumerate().map(node).collect(),
        ..Graph::default()
    }
}

fn cache(windows: &[Option<usize>], kv_tokens: usize, max_sequences: usize) -> KvCache {
    let sizes = KvSizes {
        dtype: KvType::F32,
        n_ctx: kv_tokens,
        kv_tokens,
        max_sequences,
        max_chunk: 100,
    };
    KvCache::new(&graph(windows), sizes).unwrap()
}

/// Where a position's first K byte is in the slab of `layer`, if its page is held.
fn offset(cache: &mut KvCache, seq: SeqId, layer: usize, position: usize) -> Option<usize> {
    let (layers, tables) = cache.parts();
    let (pages, first) = tables.pages(seq, layer);
    let page = pages.get(position.checked_sub(first)? / PAGE_TOKENS)?;
    let layout = &layers[layer].layout;
    let row_bytes = layout.page_bytes() / PAGE_TOKENS;
    Some(*page as usize * layout.page_bytes() + position % PAGE_TOKENS * row_bytes)
}

/// Appends tokens, writing each one's tag into its slot of every layer.
fn append(cache: &mut KvCache, seq: SeqId, tags: &[u8]) -> Result<(), Error> {
    cache.check_room([(seq, tags.len())].into_iter())?;
    for tags in tags.chunks(100) {
        cache.reserve(seq, tags.len());
        let len = cache.len(seq)?;
        for layer in 0..cache.layers.len() {
            for (i, tag) in tags.iter().enumerate() {
                let at = offset(cache, seq, layer, len + i).expect("reserved");
                cache.layers[layer].k[at] = *tag;
                cache.layers[layer].v[at] = !*tag;
            }
        }
        cache.commit(seq, tags.len());
    }
    Ok(())
}

/// Checks that every position a next token could see holds its tag.
fn assert_holds(cache: &mut KvCache, seq: SeqId, tags: &[u8]) {
    assert_eq!(cache.len(seq).unwrap(), tags.len());
    for layer in 0..cache.layers.len() {
        let oldest = cache.groups[cache.group_of[layer]].oldest_needed(tags.len());
        for (position, tag) in tags.iter().enumerate().skip(oldest) {
            let at = offset(cache, seq, layer, position).expect("visible positions are held");
            assert_eq!(
                cache.layers[layer].k[at], *tag,
                "layer {layer} at {position}"
            );
            assert_eq!(cache.layers[layer].v[at], !*tag);
        }
    }
}

/// Checks that references and free lists agree with the tables.
fn assert_accounts(cache: &KvCache) {
    for (g, group) in cache.groups.iter().enumerate() {
        let mut counted = vec![0; group.references.len()];
        for sequence in cache.sequences.iter().flatten() {
            for page in &sequence.tables[g].pages {
                counted[*page as usize] += 1;
            }
        }
        assert_eq!(counted, group.references);
        let free = counted.iter().filter(|count| **count == 0).count();
        assert_eq!(free, group.free.len());
    }
}

#[test]
fn a_windowed_group_drops_what_no_token_can_see() {
    let mut cache = cache(&[Some(70), None], 1000, 1);
    let seq = cache.create().unwrap();
    let tags: Vec<u8> = (0..500).map(|i| i as u8).collect();
    append(&mut cache, seq, &tags).unwrap();
    assert_holds(&mut cache, seq, &tags);
    let (_, tables) = cache.parts();
    let (windowed, first) = tables.pages(seq, 0);
    assert_eq!((windowed.len(), first), (2, 384));
    assert_eq!(tables.pages(seq, 1).0.len(), 8);
    let found = cache.truncate(seq, 300);
    assert!(
        matches!(
            found,
            Err(Error::WindowGone {
                len: 300,
                oldest: 384
            })
        ),
        "{found:?}"
    );
    cache.truncate(seq, 460).unwrap();
    assert_holds(&mut cache, seq, &tags[..460]);
    cache.truncate(seq, 0).unwrap();
    append(&mut cache, seq, &tags[..30]).unwrap();
    assert_holds(&mut cache, seq, &tags[..30]);
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
    let with = |tag| [vec![7; 100], vec![tag; 5]].concat();
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

#[derive(Clone, Debug)]
enum Action {
    Create,
    Append(usize, usize),
    Fork(usize),
    Truncate(usize, usize),
    Release(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => Just(Action::Create),
        6 => (any::<usize>(), 1usize..180).prop_map(|(seq, n)| Action::Append(seq, n)),
        2 => any::<usize>().prop_map(Action::Fork),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(seq, len)| Action::Truncate(seq, len)),
        1 => any::<usize>().prop_map(Action::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is created, forked, cut and released, every sequence sees its own past.
    #[test]
    fn sequences_keep_their_pasts(actions in prop::collection::vec(action(), 1..40)) {
        let mut cache = cache(&[Some(50), None, Some(50), Some(130)], 1500, 5);
        let mut pasts: HashMap<SeqId, Vec<u8>> = HashMap::new();
        let mut tag = 0u8;
        for action in actions {
            let mut alive: Vec<SeqId> = pasts.keys().copied().collect();
            alive.sort();
            let pick = |i: usize| alive.get(i % alive.len().max(1)).copied();
            match action {
                Action::Create => {
                    if let Ok(seq) = cache.create() {
                        pasts.insert(seq, vec![]);
                    }
                }
                Action::Append(i, n) => {
                    let Some(seq) = pick(i) else { continue };
                    tag = tag.wrapping_add(1);
                    if append(&mut cache, seq, &vec![tag; n]).is_ok() {
                        pasts.get_mut(&seq).unwrap().extend(vec![tag; n]);
                    }
                }
                Action::Fork(i) => {
                    let Some(seq) = pick(i) else { continue };
                    if let Ok(fork) = cache.fork(seq) {
                        pasts.insert(fork, pasts[&seq].clone());
                    }
                }
                Action::Truncate(i, len) => {
                    let Some(seq) = pick(i) else { continue };
                    let len = len % (pasts[&seq].len() + 1);
                    if cache.truncate(seq, len).is_ok() {
                        pasts.get_mut(&seq).unwrap().truncate(len);
                    }
                }
                Action::Release(i) => {
                    let Some(seq) = pick(i) else { continue };
                    cache.release(seq).unwrap();
                    pasts.remove(&seq);
                }
            }
            assert_accounts(&cache);
            for (seq, past) in &pasts {
                assert_holds(&mut cache, *seq, past);
            }
        }
    }
}
