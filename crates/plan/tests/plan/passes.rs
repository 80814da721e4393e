//! How sequences are cut into passes.

use super::device::{Manner, Toy};
use super::model::Sizes;
use millrace_plan::{AttentionOn, Chunk, HeadRows, Lengths, Lowering, PassKind, Phase, Sequences};
use proptest::prelude::*;
use std::collections::HashSet;

fn lengths() -> impl Strategy<Value = Lengths> {
    prop::collection::vec(0..300_u64, 0..6).prop_map(|lengths| Lengths::new(&lengths))
}

proptest! {
    /// Lengths are ascending, distinct, positive, and at least one.
    #[test]
    fn lengths_are_ascending_and_positive(lengths in lengths()) {
        let all = lengths.all();
        prop_assert!(!all.is_empty() && all[0] >= 1);
        prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Chunks cover every prompt once, in order; all but the last are whole.
    #[test]
    fn chunks_cover_a_prompt_once_in_order(lengths in lengths(), n_tokens in 0..5000_u64) {
        let chunks = lengths.chunks(n_tokens);
        let mut covered = 0;
        for chunk in &chunks {
            prop_assert_eq!(chunk.first, covered);
            prop_assert!(chunk.n_tokens >= 1);
            prop_assert!(chunk.n_tokens <= chunk.n_padded);
            prop_assert!(lengths.all().contains(&chunk.n_padded));
            covered += chunk.n_tokens;
        }
        prop_assert_eq!(covered, n_tokens);
        let largest = lengths.all().last().copied();
        for chunk in chunks.iter().rev().skip(1) {
            prop_assert_eq!(Some(chunk.n_tokens), largest);
            prop_assert_eq!(Some(chunk.n_padded), largest);
        }
    }

    /// A pass takes the least length that holds the remaining tokens.
    #[test]
    fn padding_is_the_least(
        lengths in lengths(),
        first in 0..1000_u64,
        near in any::<prop::sample::Index>(),
        more in 0..3_u64,
    ) {
        // A length itself, and its neighbours.
        let n_left = (near.get(lengths.all()) + more).saturating_sub(1).max(1);
        let chunk = lengths.next(first, n_left);
        prop_assert_eq!((chunk.first, chunk.n_padded), (first, lengths.padded(n_left)));
        for &length in lengths.all() {
            prop_assert!(length < n_left || chunk.n_padded <= length);
        }
    }

    /// Compilation ahead covers exactly the plans that a prompt and its tokens ask for.
    #[test]
    fn what_is_compiled_ahead_is_what_is_asked_for(
        n_ctx in 1..400_u64,
        prompts in prop::collection::vec(1..400_u64, 1..4),
    ) {
        let (graph, toy) = (Sizes::LEAST.graph(), Toy(Manner::all()));
        let sequences = Sequences { graph: &graph, planner: &toy, n_ctx };
        let ahead = sequences.prefills(&prompts);
        let mut asked = HashSet::new();
        for &prompt in &prompts {
            for chunk in toy.lengths().chunks(prompt) {
                let kind = sequences.prefill(chunk);
                prop_assert!(ahead.contains(&kind), "{}", kind.name());
                asked.insert(kind);
            }
        }
        prop_assert_eq!(ahead.len(), asked.len());
        let tokens = sequences.decodes();
        let mut asked = HashSet::new();
        for first in 0..n_ctx {
            let kind = sequences.decode(first);
            prop_assert!(tokens.contains(&kind), "{}", kind.name());
            asked.insert(kind);
        }
        prop_assert_eq!(tokens.len(), asked.len());
    }

    /// A token's plan serves up to where the planner says that another may come.
    #[test]
    fn a_tokens_plan_serves_as_long_as_it_says(first in 0..2000_u64) {
        let (graph, toy) = (Sizes::LEAST.graph(), Toy(Manner::all()));
        let sequences = Sequences { graph: &graph, planner: &toy, n_ctx: 4096 };
        let until = toy.decode_until(first);
        prop_assert!(until > first);
        prop_assert_eq!(sequences.decode(first), sequences.decode(until - 1));
        prop_assert_ne!(sequences.decode(first), sequences.decode(until));
    }
}

#[test]
fn without_prompts_every_length_is_compiled() {
    let (graph, toy) = (Sizes::LEAST.graph(), Toy(Manner::all()));
    let sequences = Sequences {
        graph: &graph,
        planner: &toy,
        n_ctx: 64,
    };
    let ahead: Vec<u64> = sequences.prefills(&[]).iter().map(|k| k.n_tokens).collect();
    assert_eq!(ahead, toy.lengths().all());
    assert_eq!(sequences.cache_rows(), 64);
}

#[test]
fn kinds_of_passes_have_names_of_their_own() {
    let cached = |n_keys| AttentionOn::Cached {
        n_keys,
        max_tokens: 4096,
    };
    let prefill = PassKind::prefill(128);
    let all = [
        (prefill, "prefill of 128 tokens"),
        (PassKind::prefill(64), "prefill of 64 tokens"),
        (
            prefill.with_attention(AttentionOn::Host),
            "prefill of 128 tokens, a later chunk",
        ),
        (
            prefill.with_attention(AttentionOn::Image),
            "prefill of 128 tokens, an image among them",
        ),
        (
            prefill.with_attention(cached(512)),
            "prefill of 128 tokens over 512 keys",
        ),
        (
            prefill.with_head(HeadRows::All),
            "prefill of 128 tokens, logits of all",
        ),
        (PassKind::decode(), "decode"),
        (
            PassKind::decode().with_attention(cached(512)),
            "decode over 512 keys",
        ),
        (
            PassKind::decode().with_attention(cached(1024)),
            "decode over 1024 keys",
        ),
    ];
    for (kind, name) in all {
        assert_eq!(kind.name(), name);
    }
    assert_eq!(PassKind::decode().n_tokens, 1);
    assert_eq!(PassKind::decode().phase, Phase::Decode);
    let token = Chunk::token(7);
    assert_eq!((token.first, token.n_tokens, token.n_padded), (7, 1, 1));
}
