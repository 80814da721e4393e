//! Random orders of actions on sequences, compared with the contents each should have.

use super::*;

#[derive(Clone, Debug)]
enum Action {
    Create,
    /// A sequence goes on as a text does.
    Append(usize, usize, usize),
    Fork(usize),
    Truncate(usize, usize),
    Release(usize),
    /// A sequence takes as much as it can of a beginning of a text.
    Reuse(usize, usize, usize),
}

fn action() -> impl Strategy<Value = Action> {
    let any = any::<usize>;
    prop_oneof![
        1 => Just(Action::Create),
        6 => (any(), 0usize..4, 1usize..180).prop_map(|(seq, t, n)| Action::Append(seq, t, n)),
        2 => any().prop_map(Action::Fork),
        2 => (any(), any()).prop_map(|(seq, len)| Action::Truncate(seq, len)),
        1 => any().prop_map(Action::Release),
        3 => (any(), 0usize..4, 0usize..450).prop_map(|(seq, t, n)| Action::Reuse(seq, t, n)),
    ]
}

/// Room is exact: that many tokens fit, and one more does not.
fn assert_room(cache: &KvCache, seqs: &[SeqId]) {
    for n_new in 0..=cache.sequences.n_free() {
        let room = cache.room(seqs, n_new).unwrap();
        let fits = |n| {
            let wanted = seqs.iter().map(|seq| (*seq, n));
            cache.check_room(wanted, (n_new, n)).is_ok()
        };
        let longest = seqs.iter().map(|seq| cache.len(*seq).unwrap()).max();
        let context = cache.sizes.n_ctx - longest.unwrap_or(0);
        assert!(fits(room) && room <= context);
        assert!(room == context || !fits(room + 1));
    }
    assert_eq!(cache.room(seqs, cache.sequences.n_free() + 1).unwrap(), 0);
}

fn run(cache: &mut KvCache, actions: Vec<Action>) {
    let mut pasts: BTreeMap<SeqId, Vec<u32>> = BTreeMap::new();
    for action in actions {
        let alive: Vec<SeqId> = pasts.keys().copied().collect();
        let pick = |i: usize| alive.get(i % alive.len().max(1)).copied();
        match action {
            Action::Create => {
                if let Ok(seq) = cache.create() {
                    pasts.insert(seq, vec![]);
                }
            }
            Action::Append(i, t, n) => {
                let Some(seq) = pick(i) else { continue };
                let len = pasts[&seq].len();
                let tokens = &text(t, len + n)[len..];
                if len + n <= cache.sizes.n_ctx && append(cache, seq, tokens).is_ok() {
                    pasts.get_mut(&seq).unwrap().extend(tokens);
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
            Action::Reuse(i, t, n) => {
                let Some(seq) = pick(i) else { continue };
                let prompt = text(t, n);
                let len = cache.reuse_prefix(seq, &prompt).unwrap();
                assert!(len <= n.saturating_sub(1));
                pasts.insert(seq, prompt[..len].to_vec());
            }
        }
        assert_accounts(cache);
        for (seq, past) in &pasts {
            assert_holds(cache, *seq, past);
        }
        let alive: Vec<SeqId> = pasts.keys().copied().collect();
        assert_room(cache, &alive[..alive.len().min(2)]);
    }
    for seq in pasts.into_keys() {
        cache.release(seq).unwrap();
    }
    assert_accounts(cache);
    assert_eq!(cache.used_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is created, forked, cut, reused and released, every sequence sees its own past.
    #[test]
    fn sequences_keep_their_pasts(
        actions in prop::collection::vec(action(), 1..40),
        windows in prop::sample::select(vec![
            vec![Some(50), None, Some(50), Some(130)],
            vec![None],
            vec![Some(90)],
            vec![],
        ]),
        has_state: bool,
        kv_tokens in prop::sample::select(vec![500usize, 1500]),
        keep_prefixes: bool,
    ) {
        let graph = graph(&windows, has_state || windows.is_empty());
        run(&mut cache_of(&graph, kv_tokens, 5, keep_prefixes), actions);
    }
}
