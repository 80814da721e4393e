//! Stored plans: valid ones are accepted, and an index beyond its list is refused.

use super::device::{Manner, Toy, kinds};
use super::model::Sizes;
use super::products::products;
use millrace_graph::{Graph, RopeId, ValueId, WeightId};
use millrace_plan::{
    AttentionPart, Binding, Call, HostStep, Lowering, NodePlace, PassKind, Plan, Step,
};
use proptest::prelude::*;

/// Name and function of a fault; `None` where the plan has no such place.
type Spoil = (&'static str, fn(&mut Plan, &Graph) -> Option<()>);

/// Ways to corrupt a plan, each with a number that is beyond its list.
fn spoils() -> Vec<Spoil> {
    [
        spoils_of_calls(),
        spoils_of_bindings(),
        spoils_of_steps(),
        spoils_of_places(),
    ]
    .concat()
}

fn spoils_of_calls() -> Vec<Spoil> {
    vec![
        ("a program", |plan, _| {
            let beyond = plan.programs.len();
            calls(plan).next()?.program = beyond;
            Some(())
        }),
        ("a binding too few", |plan, _| {
            calls(plan).next()?.bindings.pop().map(drop)
        }),
        ("a node of a call", |plan, graph| {
            calls(plan).next()?.nodes.push(graph.nodes.len());
            Some(())
        }),
    ]
}

fn spoils_of_bindings() -> Vec<Spoil> {
    vec![
        ("a value", |plan, graph| {
            let beyond = ValueId(graph.values.len());
            bindings(plan).find_map(|b| match b {
                Binding::Value(value) | Binding::Packed { value, .. } => set(value, beyond),
                _ => None,
            })
        }),
        ("a weight", |plan, graph| {
            let beyond = WeightId(graph.weights.len());
            bindings(plan).find_map(|b| match b {
                Binding::Weight { weight, .. } => set(weight, beyond),
                _ => None,
            })
        }),
        ("a table", |plan, graph| {
            let beyond = RopeId(graph.ropes.len());
            bindings(plan).find_map(|b| match b {
                Binding::RopeTable { rope, .. } => set(rope, beyond),
                _ => None,
            })
        }),
        ("a layer's cache", |plan, _| {
            bindings(plan).find_map(|b| match b {
                Binding::Cache { layer, .. } => set(layer, 999),
                _ => None,
            })
        }),
        ("a part beyond its value", |plan, graph| {
            bindings(plan).find_map(|b| match *b {
                Binding::Value(value) => set(
                    b,
                    Binding::Part {
                        value,
                        start: 1,
                        len: graph.width(value),
                    },
                ),
                _ => None,
            })
        }),
        ("a part beyond all numbers", |plan, _| {
            bindings(plan).find_map(|b| match *b {
                Binding::Value(value) => set(
                    b,
                    Binding::Part {
                        value,
                        start: usize::MAX,
                        len: 2,
                    },
                ),
                _ => None,
            })
        }),
    ]
}

fn spoils_of_steps() -> Vec<Spoil> {
    vec![
        ("a host step's node", |plan, graph| {
            let beyond = graph.nodes.len();
            plan.steps.iter_mut().find_map(|step| match step {
                Step::Host(HostStep::Op { node } | HostStep::Linear { node, .. }) => {
                    set(node, beyond)
                }
                _ => None,
            })
        }),
        ("an appended value", |plan, graph| {
            let beyond = ValueId(graph.values.len());
            plan.steps.iter_mut().find_map(|step| match step {
                Step::Host(HostStep::AppendKv { v, .. }) => set(v, beyond),
                _ => None,
            })
        }),
        ("an appended layer", |plan, graph| {
            let beyond = graph.hidden.len();
            plan.steps.iter_mut().find_map(|step| match step {
                Step::Host(HostStep::AppendKv { layer, .. }) => set(layer, beyond),
                _ => None,
            })
        }),
    ]
}

fn spoils_of_places() -> Vec<Spoil> {
    vec![
        ("a placed node", |plan, graph| {
            plan.placement.first_mut()?.node = graph.nodes.len();
            Some(())
        }),
        ("a placed step", |plan, _| {
            let beyond = plan.steps.len();
            device(plan).map(|device| device.step = beyond)
        }),
        ("a placed program", |plan, _| {
            let beyond = plan.programs.len();
            device(plan).map(|device| device.program = beyond)
        }),
        ("a placed launch", |plan, _| {
            device(plan).map(|device| device.launches.end += 999)
        }),
        ("a launch's slot", |plan, _| {
            let program = plan.programs.first_mut()?;
            let beyond = program.slots().len();
            *program.launches.first_mut()?.slots.first_mut()? = beyond;
            Some(())
        }),
        ("a value of the last row", |plan, graph| {
            plan.single_row.push(ValueId(graph.values.len()));
            Some(())
        }),
    ]
}

fn set<T>(at: &mut T, to: T) -> Option<()> {
    *at = to;
    Some(())
}

fn calls(plan: &mut Plan) -> impl Iterator<Item = &mut Call> {
    plan.steps.iter_mut().filter_map(|step| match step {
        Step::Call(call) => Some(call),
        Step::Host(_) => None,
    })
}

fn bindings(plan: &mut Plan) -> impl Iterator<Item = &mut Binding> {
    calls(plan).flat_map(|call| &mut call.bindings)
}

fn device(plan: &mut Plan) -> Option<&mut millrace_plan::Device> {
    plan.placement.iter_mut().find_map(|p| match &mut p.place {
        NodePlace::Device(device) => Some(device),
        NodePlace::Host => None,
    })
}

proptest! {
    /// Every lowered plan is accepted, also after it was written and read.
    #[test]
    fn plans_survive_being_stored(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let plan = Toy(manner).lower(&graph, &kind).expect("a plan");
        prop_assert_eq!(plan.check(&graph), Ok(()));
        let text = serde_json::to_string(&plan).expect("text");
        let mut read: Plan = serde_json::from_str(&text).expect("a plan");
        // A plan in a cache names its programs: the cache has them.
        prop_assert!(read.programs.is_empty());
        read.programs = plan.programs.clone();
        prop_assert_eq!(&read, &plan);
        prop_assert_eq!(read.check(&graph), Ok(()));
    }

    /// One index beyond its list is refused, wherever it is.
    #[test]
    fn an_index_beyond_its_list_is_refused(
        sizes in Sizes::any(),
        manner in Manner::any(),
        kind in kinds(),
    ) {
        let graph = sizes.graph();
        let plan = Toy(manner).lower(&graph, &kind).expect("a plan");
        for (what, spoil) in spoils() {
            let mut spoiled = plan.clone();
            if spoil(&mut spoiled, &graph).is_some() {
                prop_assert!(spoiled.check(&graph).is_err(), "{what}");
            }
        }
    }
}

/// Every fault applies to at least one plan, so that each test checks something.
#[test]
fn every_way_to_spoil_a_plan_has_its_plan() {
    let graph = Sizes::LEAST.graph();
    let half = Manner {
        takes: vec![true, true, true, true, true, true, true, true, false],
        ..Manner::all()
    };
    let plan = Toy(half).lower(&graph, &PassKind::prefill(3)).unwrap();
    for (what, spoil) in spoils() {
        let mut spoiled = plan.clone();
        assert!(spoil(&mut spoiled, &graph).is_some(), "{what}");
        assert!(spoiled.check(&graph).is_err(), "{what}");
    }
}

#[test]
fn heads_that_are_not_there_are_refused() {
    let graph = Sizes::LEAST.graph();
    let plan = products(&graph, &PassKind::prefill(3), Some(64)).unwrap();
    assert_eq!(plan.check(&graph), Ok(()));
    let with = |change: fn(&mut usize, &mut usize, &mut AttentionPart)| {
        let mut plan = plan.clone();
        let product = bindings(&mut plan).find_map(|b| match b {
            Binding::AttentionProduct {
                node, kv_head, of, ..
            } => Some((node, kv_head, of)),
            _ => None,
        });
        let (node, kv_head, of) = product.expect("attention");
        change(node, kv_head, of);
        plan.check(&graph)
    };
    assert_eq!(with(|_, _, _| {}), Ok(()));
    assert!(with(|node, _, _| *node = 0).is_err());
    assert!(with(|node, _, _| *node = 999).is_err());
    assert!(with(|_, kv_head, _| *kv_head = 1).is_err());
    assert!(with(|_, _, of| *of = AttentionPart::Queries(ValueId(0))).is_err());
    assert!(with(|_, _, of| *of = AttentionPart::Sums(ValueId(0))).is_err());
}

#[test]
fn steps_say_their_node() {
    for node in [0, 7] {
        let steps = [
            HostStep::Embed { node },
            HostStep::Attention { node },
            HostStep::FinalNorm { node },
            HostStep::Op { node },
            HostStep::Linear {
                node,
                half_split: None,
            },
            HostStep::Softmax {
                node,
                kv_head: 0,
                n_keys: 1,
            },
        ];
        assert!(steps.iter().all(|step| step.node() == Some(node)));
    }
    let append = HostStep::AppendKv {
        layer: 0,
        k: ValueId(0),
        v: ValueId(1),
    };
    assert_eq!(append.node(), None);
}
