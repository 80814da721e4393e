//! Attention as products of the device: two calls for each key-value head, softmax between them.

use super::device::kinds;
use super::model::Sizes;
use super::products::products;
use super::run::run;
use millrace_graph::{Attention, Op, ValueId};
use millrace_plan::attention_products::group;
use millrace_plan::{AttentionPart, Binding, Buffers, HostStep, NodePlace, PassKind, Step};
use proptest::prelude::*;

proptest! {
    #[test]
    fn products_of_attention_are_computed_once_from_what_is_there(
        sizes in Sizes::any(),
        kind in kinds(),
        n_keys in prop::option::of(1..=64_usize),
    ) {
        let graph = sizes.graph();
        let plan = products(&graph, &kind, n_keys).expect("a plan");
        prop_assert_eq!(run(&plan, &graph, &Buffers::of(&plan, &graph)), Ok(()));
        prop_assert_eq!(plan.check(&graph), Ok(()));
        for placement in &plan.placement {
            let on_device = match graph.nodes[placement.node].op {
                Op::Linear(_) => true,
                Op::Attention(_) => n_keys.is_some(),
                _ => false,
            };
            prop_assert_eq!(placement.place != NodePlace::Host, on_device);
        }
    }

    /// Steps of a node: append, then scores, softmax and sums of each head in turn.
    #[test]
    fn heads_follow_each_other(sizes in Sizes::any(), kind in kinds(), n_keys in 1..=64_usize) {
        let graph = sizes.graph();
        let plan = products(&graph, &kind, Some(n_keys)).expect("a plan");
        let attends = |n: &millrace_graph::Node| matches!(n.op, Op::Attention(_));
        let node = graph.nodes.iter().position(attends).expect("attention");
        let append = |s: &Step| matches!(s, Step::Host(HostStep::AppendKv { layer: 0, .. }));
        let first = plan.steps.iter().position(append).expect("a step");
        for kv_head in 0..sizes.n_kv_heads {
            let at = first + 1 + 3 * kv_head;
            for (step, what) in [(at, "scores"), (at + 2, "sums")] {
                let call = plan.call_at(step).expect("a call");
                prop_assert_eq!(&call.set, &format!("attn_{what}_{kv_head}_L0"));
                prop_assert_eq!(&call.nodes, &[node]);
                for binding in &call.bindings {
                    let is_heads = matches!(binding,
                        Binding::AttentionProduct { node: n, kv_head: h, n_keys: keys, .. }
                            if (*n, *h, *keys) == (node, kv_head, n_keys));
                    prop_assert!(is_heads, "{:?}", binding);
                }
            }
            let softmax = Step::Host(HostStep::Softmax { node, kv_head, n_keys });
            prop_assert_eq!(&plan.steps[at + 1], &softmax);
        }
        let placed = plan.placement.iter().find(|p| p.node == node).expect("a place");
        let is_first = matches!(&placed.place, NodePlace::Device(d) if d.step == first + 1);
        prop_assert!(is_first, "{:?}", placed);
    }

    /// Each part has as many elements as its slot of the plan's program.
    #[test]
    fn parts_fill_their_slots(sizes in Sizes::any(), kind in kinds(), n_keys in 1..=64_usize) {
        let graph = sizes.graph();
        let plan = products(&graph, &kind, Some(n_keys)).expect("a plan");
        for call in plan.calls() {
            let slots = plan.programs[call.program].slots();
            for (slot, binding) in slots.iter().zip(&call.bindings) {
                let Binding::AttentionProduct { node, of, .. } = binding else { continue };
                let Op::Attention(attention) = &graph.nodes[*node].op else {
                    return Err(TestCaseError::fail("no attention"));
                };
                let shape = of.shape(attention, plan.n_tokens as usize, n_keys);
                prop_assert_eq!(slot.shape.clone(), shape.map(|n| n as u64).to_vec());
            }
        }
    }
}

#[test]
fn shapes_of_parts_multiply() {
    let attention = Attention {
        layer: 0,
        n_heads: 6,
        n_kv_heads: 2,
        head_dim: 8,
        scale: 1.0,
        window: None,
        chunked: false,
        softcap: None,
        sinks: None,
        slopes: None,
    };
    assert_eq!(group(&attention), 3);
    use AttentionPart::{Keys, Probabilities, Queries, Scores, Sums, Values};
    let shape = |part: AttentionPart| part.shape(&attention, 5, 64);
    // a[m, k] · b[n, k]ᵀ = c[m, n], both times.
    for (a, b, c) in [
        (Queries(ValueId(0)), Keys, Scores),
        (Probabilities, Values, Sums(ValueId(0))),
    ] {
        let ([m, k], [n, k_of_b]) = (shape(a), shape(b));
        assert_eq!((k, shape(c)), (k_of_b, [m, n]));
    }
    assert_eq!(shape(Scores), [15, 64]);
    assert_eq!(Scores.value(), None);
    assert_eq!(Sums(ValueId(3)).value(), Some(ValueId(3)));
}

#[test]
fn all_heads_of_all_layers_share_two_programs() {
    let sizes = Sizes {
        n_layers: 3,
        n_kv_heads: 2,
        ..Sizes::LEAST
    };
    let plan = products(&sizes.graph(), &PassKind::prefill(4), Some(64)).unwrap();
    let of = |name: &str| plan.programs.iter().filter(|p| p.name() == name).count();
    assert_eq!((of("scores"), of("sums")), (1, 1));
    let calls = plan.calls();
    let calls = calls.filter(|call| plan.programs[call.program].name() == "scores");
    assert_eq!(calls.count(), 6);
}
