//! Lower bounds of a step's time.

use super::model::Sizes;
use millrace_plan::bound::{Demand, Limit, Roofs, StepBound, StepOf, expected_tokens};
use proptest::prelude::*;

fn demand() -> impl Strategy<Value = Demand> {
    (0.0..1e11_f64, 0.0..1e10_f64, 0.0..1e12_f64).prop_map(|(weight_bytes, cache_bytes, flops)| {
        Demand {
            weight_bytes,
            cache_bytes,
            flops,
            ..Demand::default()
        }
    })
}

fn roofs() -> impl Strategy<Value = Roofs> {
    (1e6..1e13_f64, 1e6..1e15_f64, 0.0..1e7_f64).prop_map(
        |(bytes_per_s, flops_per_s, launch_ns)| Roofs {
            bytes_per_s,
            flops_per_s,
            launch_ns,
        },
    )
}

fn step() -> impl Strategy<Value = StepOf> {
    (1..100_u64, 1..100_u64, 1..10_u64).prop_map(|(n_sequences, n_rows, n_passes)| StepOf {
        n_sequences,
        n_rows,
        n_passes,
    })
}

proptest! {
    /// A step takes at least as long as memory and as arithmetic, and at most as long as everything one after the
    /// other.
    #[test]
    fn a_bound_lies_between_its_parts_and_their_sum(demand in demand(), roofs in roofs(), step in step()) {
        let bound = StepBound::of(&demand, &roofs, step);
        let parts = [bound.weights_ns, bound.cache_ns, bound.arithmetic_ns, bound.launches_ns];
        let slack = 1.0 + 1e-12;
        prop_assert!(parts.iter().all(|part| *part <= bound.ns() * slack));
        prop_assert!(bound.weights_ns + bound.cache_ns <= bound.ns() * slack);
        prop_assert!(bound.ns() <= parts.iter().sum::<f64>() * slack);
    }

    /// The limit is the part that takes most.
    #[test]
    fn the_limit_takes_most(demand in demand(), roofs in roofs(), step in step()) {
        let bound = StepBound::of(&demand, &roofs, step);
        let ns = |limit| match limit {
            Limit::Weights => bound.weights_ns,
            Limit::Cache => bound.cache_ns,
            Limit::Arithmetic => bound.arithmetic_ns,
            Limit::Launches => bound.launches_ns,
        };
        // The shorter of memory and arithmetic takes nothing.
        let work = match bound.arithmetic_ns > bound.weights_ns + bound.cache_ns {
            true => &[Limit::Arithmetic][..],
            false => &[Limit::Weights, Limit::Cache],
        };
        for &other in work.iter().chain(&[Limit::Launches]) {
            prop_assert!(ns(other) <= ns(bound.limit()), "{}", other.words());
        }
    }

    /// More to do takes no less time; a faster machine takes no more.
    #[test]
    fn bounds_grow_with_demand_and_shrink_with_roofs(demand in demand(), roofs in roofs(), step in step(), factor in 1.0..10.0_f64) {
        let slack = 1.0 + 1e-12;
        let ns = |demand: &Demand, roofs: &Roofs, step| StepBound::of(demand, roofs, step).ns();
        let here = ns(&demand, &roofs, step);
        for more in [
            Demand { weight_bytes: factor * demand.weight_bytes, ..demand },
            Demand { cache_bytes: factor * demand.cache_bytes, ..demand },
            Demand { flops: factor * demand.flops, ..demand },
        ] {
            prop_assert!(here <= ns(&more, &roofs, step) * slack);
        }
        for more in [
            StepOf { n_sequences: step.n_sequences + 1, ..step },
            StepOf { n_rows: step.n_rows + 1, ..step },
            StepOf { n_passes: step.n_passes + 1, ..step },
        ] {
            prop_assert!(here <= ns(&demand, &roofs, more) * slack);
        }
        for faster in [
            Roofs { bytes_per_s: factor * roofs.bytes_per_s, ..roofs },
            Roofs { flops_per_s: factor * roofs.flops_per_s, ..roofs },
            Roofs { launch_ns: roofs.launch_ns / factor, ..roofs },
        ] {
            prop_assert!(ns(&demand, &faster, step) <= here * slack);
        }
    }

    /// Sequences in one pass are never slower than one after the other, and never faster than one alone.
    #[test]
    fn sharing_a_pass_never_costs(demand in demand(), roofs in roofs(), n in 1..64_u64) {
        let ns = |n_sequences, n_passes| {
            let step = StepOf { n_sequences, n_rows: 1, n_passes };
            StepBound::of(&demand, &roofs, step).ns()
        };
        let slack = 1.0 + 1e-12;
        prop_assert!(ns(n, 1) <= ns(n, n) * slack);
        prop_assert!(ns(1, 1) <= ns(n, 1) * slack);
        prop_assert!((ns(n, n) - n as f64 * ns(1, 1)).abs() <= 1e-9 * ns(n, n).max(1.0));
    }

    /// The series is its closed form, grows with both, and ends at one more than the draft.
    #[test]
    fn drafts_follow_the_closed_form(a in 0.0..0.999_f64, k in 0..32_u64) {
        let closed = (1.0 - a.powi(k as i32 + 1)) / (1.0 - a);
        let found = expected_tokens(a, k);
        prop_assert!((found - closed).abs() < 1e-9 * closed);
        prop_assert!(found <= expected_tokens(a, k + 1) && found <= k as f64 + 1.0);
        prop_assert!(found <= expected_tokens((a + 1.0) / 2.0, k) + 1e-12);
    }

    /// Demand of a token, counted on paper: all matrices once, and keys and values of every layer up to its window.
    #[test]
    fn a_token_asks_for_matrices_and_cache(sizes in Sizes::any(), depth in 0..100_u64, half_bytes in 1..8_u64) {
        let element_bytes = half_bytes as f64 / 2.0;
        let found = Demand::of(&sizes.graph(), depth, element_bytes);
        let (d, kv, ff) = (sizes.d_model(), sizes.kv_width(), sizes.d_ff);
        let layer = 2 * d * d + 2 * d * kv + 3 * d * ff;
        let elements = (sizes.n_layers * layer + sizes.vocab * d) as f64;
        prop_assert_eq!(found.weight_bytes, 4.0 * elements);
        let keys = sizes.window.map_or(depth + 1, |window| (depth + 1).min(window as u64)) as f64;
        let layers = sizes.n_layers as f64;
        prop_assert_eq!(found.cache_bytes, layers * keys * 2.0 * kv as f64 * element_bytes);
        prop_assert_eq!(found.flops, 2.0 * elements + layers * 4.0 * keys * d as f64);
    }
}

#[test]
fn a_machine_of_nothing_gives_no_nonsense() {
    let nothing = Roofs {
        bytes_per_s: 0.0,
        flops_per_s: 0.0,
        launch_ns: 0.0,
    };
    let step = StepOf {
        n_sequences: 1,
        n_rows: 1,
        n_passes: 1,
    };
    let demand = Demand {
        weight_bytes: 1.0,
        cache_bytes: 1.0,
        flops: 1.0,
        ..Demand::default()
    };
    assert!(StepBound::of(&demand, &nothing, step).ns().is_finite());
    let idle = StepBound::of(&Demand::default(), &nothing, step);
    assert_eq!((idle.ns(), idle.limit()), (0.0, Limit::Weights));
}

#[test]
fn limits_have_words_of_their_own() {
    let all = [
        Limit::Weights,
        Limit::Cache,
        Limit::Arithmetic,
        Limit::Launches,
    ];
    let mut words: Vec<&str> = all.iter().map(|limit| limit.words()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), all.len());
}
