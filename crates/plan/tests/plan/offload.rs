//! Plans of ops on the device and on the host, for any selection by the device.

use super::device::{Manner, Toy, kinds};
use super::model::Sizes;
use super::run::run;
use millrace_graph::{Op, ValueId};
use millrace_plan::graph::head_orders;
use millrace_plan::offload::{append_kv, host_steps};
use millrace_plan::{
    Binding, Buffers, HeadRows, HostStep, LowerError, Lowering, MAX_TOKENS, NodePlace, PassKind,
    Plan, Step, WeightLayout,
};
use proptest::prelude::*;
use std::collections::HashSet;

/// A node is placed where the steps compute it.
fn placed_where_computed(plan: &Plan) -> Result<(), TestCaseError> {
    for placement in &plan.placement {
        let node = placement.node;
        match &placement.place {
            NodePlace::Device(device) => {
                let call = plan.call_at(device.step);
                let call = call.ok_or_else(|| TestCaseError::fail(format!("{device:?}")))?;
                prop_assert!(call.nodes.contains(&node), "{:?}", placement);
                prop_assert_eq!(call.program, device.program);
                let launches = &plan.programs[device.program].launches;
                prop_assert!(device.launches.end <= launches.len());
                prop_assert!(!device.launches.is_empty());
                prop_assert!(placement.reason.contains("is taken"));
            }
            NodePlace::Host => {
                let is_node = |step: &Step| matches!(step, Step::Host(h) if h.node() == Some(node));
                prop_assert_eq!(plan.steps.iter().filter(|s| is_node(s)).count(), 1);
                prop_assert_eq!(&placement.reason, &format!("op {node} is left"));
            }
        }
    }
    Ok(())
}

proptest! {
    /// Each node runs once, its inputs before it, and caches before attention.
    #[test]
    fn plans_compute_each_node_once_from_what_is_there(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let plan = Toy(manner).lower(&graph, &kind).expect("a plan");
        let buffers = Buffers::of(&plan, &graph);
        prop_assert_eq!(run(&plan, &graph, &buffers), Ok(()));
    }

    /// Placements describe the steps, node by node in the graph's order.
    #[test]
    fn placements_tell_what_steps_do(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let plan = Toy(manner).lower(&graph, &kind).expect("a plan");
        let nodes: Vec<usize> = plan.placement.iter().map(|p| p.node).collect();
        prop_assert_eq!(nodes, (0..graph.nodes.len()).collect::<Vec<_>>());
        placed_where_computed(&plan)?;
    }

    /// Equal programs are one. Calls have separate sets, and a binding for each slot.
    #[test]
    fn programs_are_shared_and_sets_are_not(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let plan = Toy(manner).lower(&graph, &kind).expect("a plan");
        for (i, program) in plan.programs.iter().enumerate() {
            prop_assert!(!plan.programs[..i].contains(program), "{} twice", program.name());
            prop_assert!(plan.calls().any(|call| call.program == i));
        }
        let sets: HashSet<&str> = plan.calls().map(|call| call.set.as_str()).collect();
        prop_assert_eq!(sets.len(), plan.calls().count());
        for call in plan.calls() {
            prop_assert_eq!(call.bindings.len(), plan.programs[call.program].slots().len());
        }
    }

    /// Lowering is pure, and an op's support agrees with its place in the plan.
    #[test]
    fn lowering_is_pure_and_support_is_placement(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let toy = Toy(manner);
        let plan = toy.lower(&graph, &kind).expect("a plan");
        prop_assert_eq!(&toy.lower(&graph, &kind).expect("a plan"), &plan);
        for placement in &plan.placement {
            let supported = toy.supports(&graph, &kind, placement.node);
            match placement.place {
                NodePlace::Host => {
                    let reason = supported.expect_err("the host's");
                    prop_assert_eq!(reason.to_string(), placement.reason.clone());
                }
                NodePlace::Device(_) => prop_assert!(supported.is_ok()),
            }
        }
        let beyond = toy.supports(&graph, &kind, graph.nodes.len());
        prop_assert!(beyond.expect_err("no such node").0.contains("has no node"));
    }

    /// The projection before an interleaved rotation puts its outputs in half-split order, wherever it runs; nothing
    /// else is reordered.
    #[test]
    fn projections_before_a_rotation_are_put_in_order(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let plan = Toy(manner).lower(&graph, &kind).expect("a plan");
        let rotated = |value: ValueId| {
            let takes = |n: &millrace_graph::Node| {
                matches!(n.op, Op::Rope(_)) && n.inputs.contains(&value)
            };
            graph.nodes.iter().any(takes)
        };
        let ordered = |node: usize| {
            let node = &graph.nodes[node];
            let is = sizes.is_interleaved && matches!(node.op, Op::Linear(_)) && rotated(node.output);
            is.then_some(sizes.head_dim)
        };
        for step in &plan.steps {
            match step {
                Step::Host(HostStep::Linear { node, half_split }) => {
                    prop_assert_eq!(*half_split, ordered(*node));
                }
                Step::Host(_) => {}
                Step::Call(call) => {
                    for binding in &call.bindings {
                        let Binding::Weight { weight, layout } = binding else { continue };
                        let (WeightLayout::AsStored { half_split }
                        | WeightLayout::Own { half_split, .. }) = layout else { continue };
                        let takes = |n: &&usize| {
                            graph.nodes[**n].op.weights().iter().any(|used| used.id == *weight)
                        };
                        let node = call.nodes.iter().find(takes).expect("a node with the weight");
                        prop_assert_eq!(*half_split, ordered(*node));
                    }
                }
            }
        }
    }
}

#[test]
fn a_target_that_takes_nothing_leaves_all_to_the_host() {
    let graph = Sizes::LEAST.graph();
    let manner = Manner {
        takes: vec![false],
        ..Manner::all()
    };
    let plan = Toy(manner).lower(&graph, &PassKind::prefill(3)).unwrap();
    assert_eq!((plan.calls().count(), plan.programs.len()), (0, 0));
    // A step a node, and one for each layer's cache.
    assert_eq!(plan.steps.len(), graph.nodes.len() + Sizes::LEAST.n_layers);
    assert_eq!(run(&plan, &graph, &Buffers::of(&plan, &graph)), Ok(()));
}

#[test]
fn equal_layers_take_the_same_programs() {
    let of = |n_layers| {
        let graph = Sizes {
            n_layers,
            ..Sizes::LEAST
        }
        .graph();
        let plan = Toy(Manner::all())
            .lower(&graph, &PassKind::prefill(3))
            .unwrap();
        (plan.programs.len(), plan.calls().count(), graph.nodes.len())
    };
    let [one, four] = [1, 4].map(of);
    assert_eq!(one.0, four.0);
    assert_eq!((one.1, four.1), (one.2, four.2));
}

/// Ops of one label in a layer do not share buffers, and each has the same ones in every pass.
#[test]
fn calls_of_one_label_have_buffers_of_their_own() {
    let mut graph = Sizes::LEAST.graph();
    for node in &mut graph.nodes {
        node.label = "same";
    }
    let sets = |kind| {
        let plan = Toy(Manner::all()).lower(&graph, &kind).unwrap();
        let calls = plan
            .calls()
            .map(|call| (call.set.clone(), call.nodes.clone()));
        calls.collect::<Vec<_>>()
    };
    let prefill = sets(PassKind::prefill(3));
    let names: HashSet<&str> = prefill.iter().map(|(set, _)| &set[..]).collect();
    assert!(prefill.len() > 3);
    assert_eq!(names.len(), prefill.len(), "{prefill:?}");
    assert_eq!(prefill, sets(PassKind::prefill(5)));
}

#[test]
fn only_the_last_row_goes_through_the_head_unless_all_are_asked_for() {
    let graph = Sizes::LEAST.graph();
    let lower = |kind: &PassKind| Toy(Manner::all()).lower(&graph, kind).unwrap();
    let logits = graph.logits.unwrap();
    let last = lower(&PassKind::prefill(5));
    let all = lower(&PassKind::prefill(5).with_head(HeadRows::All));
    assert_eq!((last.n_rows(logits), all.n_rows(logits)), (1, 5));
    assert_eq!(last.n_rows(graph.hidden[1]), 5);
    assert_eq!(last.single_row, [graph.head_input.unwrap(), logits]);
    let token = lower(&PassKind::decode().with_head(HeadRows::All));
    assert_eq!(token.n_rows(logits), 1);
}

#[test]
fn the_host_takes_a_norm_of_one_row_only_before_the_head() {
    let graph = Sizes::LEAST.graph();
    let last = graph.nodes.len() - 2;
    let first = graph
        .nodes
        .iter()
        .position(|n| n.label == "attn_norm")
        .unwrap();
    let steps = |number, is_last| host_steps(&graph.nodes[number], number, is_last, None);
    assert_eq!(steps(last, true), [HostStep::FinalNorm { node: last }]);
    assert_eq!(steps(last, false), [HostStep::Op { node: last }]);
    assert_eq!(steps(first, false), [HostStep::Op { node: first }]);
}

#[test]
fn attention_appends_what_it_takes_as_keys_and_values() {
    let graph = Sizes::LEAST.graph();
    for (number, node) in graph.nodes.iter().enumerate() {
        let appended = append_kv(node);
        assert_eq!(appended.is_some(), node.label == "attn", "{}", node.label);
        let Some(HostStep::AppendKv { layer, k, v }) = appended else {
            continue;
        };
        let producer = |value| graph.nodes.iter().find(|n| n.output == value).unwrap();
        assert_eq!(Some(layer), node.layer);
        assert_eq!(
            (producer(k).label, producer(v).label),
            ("attn_k_rope", "attn_v")
        );
        let steps = host_steps(node, number, false, None);
        assert_eq!(steps[0], HostStep::AppendKv { layer, k, v });
        assert_eq!(steps[1..], [HostStep::Attention { node: number }]);
    }
}

#[test]
fn what_cannot_be_lowered_is_an_error() {
    let graph = Sizes::LEAST.graph();
    let lower = |graph: &millrace_graph::Graph, n| {
        let plan = Toy(Manner::all()).lower(graph, &PassKind::prefill(n));
        plan.map(|plan| plan.n_tokens)
    };
    assert_eq!(lower(&graph, 0), Err(LowerError::Tokens(0)));
    assert_eq!(lower(&graph, MAX_TOKENS), Ok(MAX_TOKENS));
    let beyond = MAX_TOKENS + 1;
    assert_eq!(lower(&graph, beyond), Err(LowerError::Tokens(beyond)));
    let mut headless = graph.clone();
    headless.logits = None;
    assert_eq!(lower(&headless, 4), Err(LowerError::NoLogits));
    let mut dangling = graph.clone();
    dangling.nodes[3].inputs[0] = ValueId(999);
    let error = lower(&dangling, 4).unwrap_err();
    assert!(
        matches!(error, LowerError::Graph { node: 3, .. }),
        "{error}"
    );
}

/// The host computes an interleaved rotation that has no half-split form, and both projections of its block keep their
/// order.
#[test]
fn rotations_without_half_split_form_stay_the_hosts() {
    let whole = Sizes {
        n_layers: 1,
        is_interleaved: true,
        ..Sizes::LEAST
    }
    .graph();
    let label = |number: &usize| whole.nodes[*number].label;
    let orders = head_orders(&whole);
    assert!(orders.interleaved.is_empty());
    let mut ordered: Vec<&str> = orders.half_split.keys().map(label).collect();
    ordered.sort_unstable();
    assert_eq!(ordered, ["attn_k", "attn_q"]);

    let mut partial = whole.clone();
    partial.ropes[0].n_rot = 2;
    partial.ropes[0].inv_freq.truncate(1);
    let at = |label| whole.nodes.iter().position(|n| n.label == label).unwrap();
    // Only keys are normed between projection and rotation.
    let mut normed = whole.clone();
    let rope = at("attn_k_rope");
    normed.nodes[rope].inputs[0] = normed.nodes[at("attn_norm")].output;
    // Something else reads rotated queries.
    let mut read = whole.clone();
    read.nodes[at("attn_out")].inputs[0] = whole.nodes[at("attn_q_rope")].output;
    for (graph, why) in [
        (&partial, "2 of a head's"),
        (&normed, "of their own"),
        (&read, "all that reads"),
    ] {
        let orders = head_orders(graph);
        assert!(orders.half_split.is_empty(), "{why}");
        let mut kept: Vec<&str> = orders.interleaved.keys().map(label).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["attn_k_rope", "attn_q_rope"]);
        assert!(
            orders
                .interleaved
                .values()
                .all(|reason| reason.contains(why)),
            "{orders:?}"
        );
    }
    let plan = Toy(Manner::all())
        .lower(&partial, &PassKind::prefill(4))
        .unwrap();
    for placement in &plan.placement {
        let is_rotation = label(&placement.node).ends_with("rope");
        assert_eq!(
            placement.place == NodePlace::Host,
            is_rotation,
            "{placement:?}"
        );
    }
}
