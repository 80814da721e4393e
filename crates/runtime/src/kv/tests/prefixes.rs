//! Pages that outlive their sequences: which are found again, their limits, and the order of eviction.

use super::*;

/// Length of the prefix that a prompt finds, in a sequence created for it and released again.
fn reused(cache: &mut KvCache, prompt: &[u32]) -> usize {
    let seq = cache.create().unwrap();
    let len = cache.reuse_prefix(seq, prompt).unwrap();
    assert_holds(cache, seq, &prompt[..len]);
    append(cache, seq, &prompt[len..]).unwrap();
    assert_holds(cache, seq, prompt);
    cache.release(seq).unwrap();
    assert_accounts(cache);
    len
}

#[test]
fn pages_outlive_their_sequence_and_are_shared_by_those_that_follow() {
    let mut cache = cache_with(&[None, Some(70)], 2000, 3, true);
    let tokens = text(0, 200);
    assert_eq!(reused(&mut cache, &tokens), 0);
    assert_eq!(cache.used_bytes(), 0);
    assert!(cache.idle_bytes() > 0);
    assert_eq!(reused(&mut cache, &tokens), 192);
    // At least one token is left to compute, even if all pages exist.
    assert_eq!(reused(&mut cache, &tokens[..192]), 191);
    assert_eq!(reused(&mut cache, &tokens[..64]), 63);
    assert_eq!(reused(&mut cache, &tokens[..1]), 0);
    // Another text, which shares one page and a piece.
    assert_eq!(reused(&mut cache, &text(1, 200)), 64);

    let [a, b] = [0; 2].map(|_| cache.create().unwrap());
    cache.reuse_prefix(a, &tokens).unwrap();
    let one = cache.used_bytes();
    cache.reuse_prefix(b, &tokens).unwrap();
    assert_eq!(cache.used_bytes(), one, "the two share every page");
    assert_accounts(&cache);
    let counters = cache.prefix_counters();
    assert_eq!(counters.n_lookups, 8);
    assert_eq!(counters.n_hit_tokens, 192 + 191 + 63 + 64 + 2 * 192);
    assert_eq!(counters.n_missed_tokens, 200 + 8 + 1 + 1 + 1 + 136 + 2 * 8);
    assert_eq!(counters.n_evicted_pages, 0);
}

/// There are 23 slots for a text of 46 pages: those at its end stay, and one of every sixteen before.
#[test]
fn of_a_long_text_states_are_kept_close_at_its_end_and_sparse_before_it() {
    let mut cache = cache_of(&graph(&[None], true), 8000, 1, true);
    assert_eq!(reused(&mut cache, &text(0, 3000)), 0);
    let mut found = |prompt: &[u32]| {
        let seq = cache.create().unwrap();
        let len = cache.reuse_prefix(seq, prompt).unwrap();
        assert_holds(&mut cache, seq, &prompt[..len]);
        cache.release(seq).unwrap();
        len
    };
    // The next turn, one whose last answer was rewritten, and others that diverge at 2,100 and 1,100 tokens.
    assert_eq!(found(&text(0, 3100)), 2944);
    assert_eq!(found(&text(29, 3100)), 2880);
    assert_eq!(found(&text(21, 3100)), 2048);
    assert_eq!(found(&text(11, 3100)), 1024);
}

/// A state exists at the end of a page. If a prompt is whole pages and its last token must be computed, the page before is
/// the last that serves.
#[test]
fn states_are_found_at_the_ends_of_pages_alone() {
    let mut cache = cache_of(&graph(&[None], true), 2000, 3, true);
    let tokens = text(0, 200);
    assert_eq!(reused(&mut cache, &tokens), 0);
    assert_eq!(reused(&mut cache, &tokens), 192);
    assert_eq!(reused(&mut cache, &tokens[..192]), 128);
    assert_eq!(reused(&mut cache, &tokens[..64]), 0);
    // A sequence's own past, cut back within a page.
    let seq = cache.create().unwrap();
    append(&mut cache, seq, &tokens).unwrap();
    assert_eq!(cache.reuse_prefix(seq, &text(1, 200)).unwrap(), 64);
}

#[test]
fn two_that_compute_the_same_end_up_with_one_copy() {
    let mut cache = cache_with(&[None], 2000, 2, true);
    let [a, b] = [0; 2].map(|_| cache.create().unwrap());
    let tokens = text(0, 130);
    append(&mut cache, a, &tokens).unwrap();
    let one = cache.used_bytes();
    append(&mut cache, b, &tokens).unwrap();
    assert_eq!(
        cache.used_bytes(),
        one / 3 * 4,
        "but for the page that is not full"
    );
    assert_holds(&mut cache, b, &tokens);
    assert_accounts(&cache);
}

/// The index of a long text keeps all pages of the layers without a window, but only the last pages of
/// those with one. A prompt that shares a shorter part finds nothing; one that shares more does.
#[test]
fn a_hit_is_no_longer_than_the_windows_that_are_left() {
    let mut cache = cache_with(&[Some(70), None], 2000, 1, true);
    assert_eq!(reused(&mut cache, &text(0, 1000)), 0);
    assert_eq!(reused(&mut cache, &text(2, 250)), 0);
    let mut cache = cache_with(&[Some(70), None], 2000, 1, true);
    assert_eq!(reused(&mut cache, &text(0, 1000)), 0);
    assert_eq!(reused(&mut cache, &text(9, 1000)), 896);
    assert_eq!(reused(&mut cache, &text(0, 1000)), 960);
    assert!(cache.prefix_counters().n_evicted_pages > 0);
    // Without windows there is no limit.
    let mut cache = cache_with(&[None], 2000, 1, true);
    assert_eq!(reused(&mut cache, &text(0, 1000)), 0);
    assert_eq!(reused(&mut cache, &text(2, 250)), 192);
}

/// A prefix found again can be cut back by as much as a computed one, while the pages before its windows exist.
#[test]
fn what_is_found_can_be_cut_back_a_little() {
    for window in [1, 63, 64, 65, 129] {
        let mut cache = cache_with(&[Some(window), None], 2000, 1, true);
        let tokens = text(0, 400);
        reused(&mut cache, &tokens);
        let seq = cache.create().unwrap();
        let len = cache.reuse_prefix(seq, &tokens).unwrap();
        assert_eq!(len, 384);
        cache.truncate(seq, len - ROLLBACK_TOKENS).unwrap();
        assert_holds(&mut cache, seq, &tokens[..len - ROLLBACK_TOKENS]);
    }
}

/// Windowed sequences return their pages as they grow, including those that the index also keeps. If two sequences
/// fill all pages but those that they need next, both can still fill their context.
#[test]
fn pages_that_a_window_gives_back_are_room() {
    let mut cache = cache_with(&[Some(70)], 640, 2, true);
    let seqs = [0; 2].map(|_| cache.create().unwrap());
    for (n, seq) in (1u32..).zip(seqs) {
        let tokens: Vec<u32> = (0..300).map(|i| n * 1000 + i).collect();
        append(&mut cache, seq, &tokens).unwrap();
    }
    assert_eq!(cache.room(&seqs, 0).unwrap(), 340);
}

#[test]
fn the_least_recently_used_goes_first_and_its_end_before_its_beginning() {
    let mut cache = cache_with(&[None], 640, 1, true);
    let others = |n: u32| (0..330).map(|i| n * 1000 + i).collect::<Vec<u32>>();
    // Five pages each, of eleven.
    assert_eq!(reused(&mut cache, &others(1)), 0);
    assert_eq!(reused(&mut cache, &others(2)), 0);
    assert_eq!(reused(&mut cache, &others(1)), 320);
    // Needs six: one is free, all of the second text's go.
    assert_eq!(reused(&mut cache, &others(3)), 0);
    assert_eq!(cache.prefix_counters().n_evicted_pages, 5);
    assert_eq!(reused(&mut cache, &others(1)[..321]), 320);
    // Needs two more than are free: the ends of the one used longest ago.
    let n_before = cache.prefix_counters().n_evicted_pages;
    assert_eq!(reused(&mut cache, &others(4)[..150]), 0);
    let n_evicted = cache.prefix_counters().n_evicted_pages - n_before;
    assert_eq!(n_evicted, 2);
    assert_eq!(reused(&mut cache, &others(3)[..193]), 192);
}

#[test]
fn the_index_is_empty_when_its_pages_are_gone() {
    let mut cache = cache_with(&[Some(70), None, Some(20)], 640, 2, true);
    for round in 0..20 {
        let tokens: Vec<u32> = (0..600).map(|i| round * 1000 + i).collect();
        reused(&mut cache, &tokens);
    }
    let seq = cache.create().unwrap();
    append(&mut cache, seq, &text(0, 640)).unwrap();
    cache.truncate(seq, 0).unwrap();
    let other = cache.create().unwrap();
    append(&mut cache, other, &text(0, 1)).unwrap();
    assert_accounts(&cache);
    let index = cache.prefixes.as_mut().unwrap();
    for group in 0..cache.groups.len() {
        while index.evict(&mut cache.groups, group) {}
    }
    assert_eq!(index.n_nodes(), 0);
}
