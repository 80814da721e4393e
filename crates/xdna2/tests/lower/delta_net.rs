//! Gated delta nets in plans: on the array if a mode asks for it or the timing model finds it faster, else on the host with the reason.

use millrace_format::Checkpoint;
use millrace_graph::{Graph, Op};
use millrace_model::Model;
use millrace_xdna2::lower::{
    self, Binding, Feature, Features, HostStep, LowerOptions, Mode, NodePlace, Plan, Step,
};
use millrace_xdna2_machine::Machine;
use std::path::Path;

fn graph(golden: &str) -> Graph {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens");
    let checkpoint = Checkpoint::open(&goldens.join(golden)).unwrap();
    Model::from_checkpoint(&checkpoint).unwrap().graph
}

fn token(graph: &Graph, features: Features) -> Plan {
    let options = LowerOptions {
        features,
        ..LowerOptions::new(Mode::Fast, 1)
    };
    lower::decode(graph, &Machine::npu2(), &options).unwrap()
}

fn delta_nodes(graph: &Graph) -> Vec<usize> {
    let nodes = graph.nodes.iter().enumerate();
    let nets = nodes.filter(|(_, node)| matches!(node.op, Op::DeltaNet(_)));
    nets.map(|(number, _)| number).collect()
}

/// Place of the op, and the reason.
fn placed(plan: &Plan, node: usize) -> (bool, &str) {
    let placement = plan.placement.iter().find(|p| p.node == node).unwrap();
    let is_device = matches!(placement.place, NodePlace::Device(_));
    (is_device, &placement.reason)
}

#[test]
fn a_mode_that_asks_for_it_has_each_in_a_program_of_its_own() {
    for name in ["qwen35", "qwen3next", "qwen35moe"] {
        let graph = graph(name);
        let plan = token(&graph, Features::of(Mode::FastFlowLm));
        let nodes = delta_nodes(&graph);
        assert!(!nodes.is_empty());
        for &node in &nodes {
            let Op::DeltaNet(net) = &graph.nodes[node].op else {
                panic!("no gated delta net");
            };
            assert!(placed(&plan, node).0, "{name} {:?}", placed(&plan, node));
            let step = plan.steps.iter().position(|step| match step {
                Step::Call(call) => call.nodes.contains(&node),
                Step::Host(_) => false,
            });
            let step = step.unwrap();
            let Step::Call(call) = &plan.steps[step] else {
                panic!("no call");
            };
            assert_eq!(call.nodes, [node]);
            let index = net.state;
            let expected = [
                Binding::DeltaRows { node },
                Binding::StateBefore { index },
                Binding::StateBehind { index },
                Binding::Value(graph.nodes[node].output),
            ];
            assert_eq!(call.bindings, expected);
            assert_eq!(plan.programs[call.program].name(), "delta_net");
            let before = &plan.steps[step - 1];
            assert_eq!(*before, Step::Host(HostStep::DeltaRows { node }));
        }
        let programs = plan.programs.iter().filter(|p| p.name() == "delta_net");
        assert_eq!(programs.count(), 1, "{name}: equal layers share a program");
        plan.check(&graph).unwrap();
    }
}

#[test]
fn other_modes_leave_it_to_the_host_while_that_is_faster() {
    let graph = graph("qwen35");
    for mode in [Mode::Fast, Mode::Int4] {
        let plan = token(&graph, Features::of(mode));
        for node in delta_nodes(&graph) {
            let (is_device, reason) = placed(&plan, node);
            assert!(!is_device, "{mode:?}");
            let says = ["the host is faster", "µs on the array", "copies of states"];
            assert!(says.iter().all(|part| reason.contains(part)), "{reason}");
        }
        let with = token(&graph, Features::of(mode).with(Feature::DeltaNets));
        assert!(placed(&with, delta_nodes(&graph)[0]).0);
    }
}

#[test]
fn prompts_and_heads_that_do_not_fit_are_the_hosts_with_the_reason() {
    let features = Features::of(Mode::FastFlowLm);
    let (prompts, wide) = (graph("qwen35"), graph("qwen35-wide"));
    let options = LowerOptions {
        features,
        ..LowerOptions::new(Mode::Fast, 64)
    };
    let plan = lower::prefill(&prompts, &Machine::npu2(), &options).unwrap();
    let (is_device, reason) = placed(&plan, delta_nodes(&prompts)[0]);
    assert!(!is_device && reason.contains("takes one token"), "{reason}");
    // Heads of 24 values are a vector and a half.
    let plan = token(&wide, features);
    let (is_device, reason) = placed(&plan, delta_nodes(&wide)[0]);
    assert!(!is_device && reason.contains("v = 24"), "{reason}");
}
