//! Scopes: pages left behind in one scope do not affect another.

use super::*;

/// Length of the prefix that a prompt finds in a scope, in a sequence created for it and released again.
fn found(cache: &mut KvCache, scope: u64, prompt: &[u32]) -> usize {
    let seq = cache.create().unwrap();
    cache.set_scope(seq, scope).unwrap();
    let len = cache.reuse_prefix(seq, prompt).unwrap();
    append(cache, seq, &prompt[len..]).unwrap();
    assert_holds(cache, seq, prompt);
    cache.release(seq).unwrap();
    assert_accounts(cache);
    len
}

#[test]
fn prefixes_are_found_within_their_scope() {
    let mut cache = cache_with(&[None, Some(70)], 3000, 3, true);
    let tokens = text(0, 200);
    for scope in [0, 1, 2, u64::MAX] {
        assert_eq!(found(&mut cache, scope, &tokens), 0, "{scope}");
        assert_eq!(found(&mut cache, scope, &tokens), 192, "{scope}");
    }
    // A fork is of its parent's scope.
    let seq = cache.create().unwrap();
    cache.set_scope(seq, 3).unwrap();
    let fork = cache.fork(seq).unwrap();
    append(&mut cache, fork, &tokens).unwrap();
    cache.release(fork).unwrap();
    cache.release(seq).unwrap();
    assert_eq!(found(&mut cache, 3, &tokens), 192);
    assert_eq!(found(&mut cache, 4, &tokens), 0);
}

#[test]
fn whoever_changes_the_scope_takes_nothing_along() {
    let mut cache = cache_with(&[None], 2000, 3, true);
    let tokens = text(0, 130);
    let seq = cache.create().unwrap();
    append(&mut cache, seq, &tokens).unwrap();
    cache.set_scope(seq, 0).unwrap();
    assert_eq!(cache.len(seq).unwrap(), 130, "it is there already");
    cache.set_scope(seq, 1).unwrap();
    assert_eq!(cache.len(seq).unwrap(), 0);
    assert_eq!(cache.reuse_prefix(seq, &tokens).unwrap(), 0);
    cache.release(seq).unwrap();
    assert!(cache.set_scope(seq, 1).is_err(), "it is no more");
    assert_accounts(&cache);
}
