//! A token whose attention is on the cores of its projections: few programs, and the cases where it is not.

use crate::lower::{graph, llama_1b};
use millrace_graph::{Graph, Op, RmsNorm};
use millrace_npu::Role;
use millrace_xdna2::lower::{
    self, AttentionOn, Binding, Feature, Features, HEAD_BESIDE_LAYERS, HostStep, LowerOptions,
    Mode, NodePlace, Placement, Plan, PlannedProgram, Step, cache_rows,
};
use millrace_xdna2_machine::{Machine, program::resident, verify};

fn plan(graph: &Graph, features: Features, (n_keys, max_tokens): (u64, u64)) -> Plan {
    let options = LowerOptions {
        features,
        attention: AttentionOn::Cached { n_keys, max_tokens },
        ..LowerOptions::new(Mode::Int4, 1)
    };
    lower::decode(graph, &Machine::npu2(), &options).unwrap_or_else(|e| panic!("{e}"))
}

fn rows(graph: &Graph, n_ctx: u64) -> u64 {
    cache_rows(graph, &Machine::npu2(), Features::of(Mode::Int4), n_ctx)
}

fn attends_on_host(plan: &Plan) -> usize {
    let attends = |step: &&Step| matches!(step, Step::Host(HostStep::Attention { .. }));
    plan.steps.iter().filter(attends).count()
}

/// Place of the head, and the reason.
fn head<'p>(graph: &Graph, plan: &'p Plan) -> (&'p Placement, &'p PlannedProgram) {
    let is_head = |p: &&Placement| graph.logits == Some(graph.nodes[p.node].output);
    let placement = plan.placement.iter().find(is_head).expect("a head");
    let NodePlace::Device(device) = &placement.place else {
        panic!("{}", placement.reason)
    };
    (placement, &plan.programs[device.program])
}

#[test]
fn a_token_is_one_program() {
    for (name, n_layers, n_calls) in [
        ("llama-3.2-1b", None, 1),
        ("gemma-3-1b", Some(7), 1),
        ("gemma-3-4b", Some(17), 1),
        ("qwen3-0.6b", Some(3), 1),
        ("llama-tiny", Some(64), 1),
        ("llama-tiny", Some(66), 2),
    ] {
        let graph = graph(name, n_layers);
        let plan = plan(&graph, Features::of(Mode::Int4), (1024, rows(&graph, 2048)));
        assert_eq!(attends_on_host(&plan), 0, "{name}");
        assert_eq!(plan.calls().count(), n_calls, "{name}");
        assert_eq!(plan.programs.len(), n_calls, "{name}");
        for step in &plan.steps {
            let Step::Host(step) = step else { continue };
            let known = matches!(step, HostStep::Embed { .. } | HostStep::AppendKv { .. });
            assert!(known, "{name}: {step:?}");
        }
        let (placement, planned) = head(&graph, &plan);
        assert_eq!(planned.name(), plan.programs[n_calls - 1].name());
        assert!(placement.reason.contains("its neighbour output_norm"));
        let [norm, head] = &planned.launches[planned.launches.len() - 2..] else {
            panic!("{name}: two launches")
        };
        assert_eq!([&*norm.name, &*head.name], ["output_norm", "lm_head"]);
        // The norm's result stays inside; logits are for the host.
        let role = |slot: usize| planned.slots()[slot].role;
        assert_eq!(
            norm.results().iter().map(|&s| role(s)).collect::<Vec<_>>(),
            [Role::Intermediate]
        );
        assert_eq!(
            head.results().iter().map(|&s| role(s)).collect::<Vec<_>>(),
            [Role::Output]
        );
        for planned in &plan.programs {
            let program = lower::program_of(planned).expect("a program");
            assert!(verify(program, &Machine::npu2()).is_ok());
            // One configuration.
            assert_eq!(resident::groups(&program.launches).len(), 1);
        }
    }
}

/// A last norm unlike those of the layers needs a separate core and channel. Gemma's layers leave none: the head then
/// is a separate program, the layers keep all columns, and the placement says why.
#[test]
fn a_head_that_does_not_fit_is_a_program_of_its_own() {
    for (name, fits) in [("gemma-3-1b", false), ("llama-3.2-1b", true)] {
        let mut graph = graph(name, Some(3));
        let last = graph.head_input;
        for node in &mut graph.nodes {
            if let (Op::RmsNorm(RmsNorm { eps, .. }), true) =
                (&mut node.op, last == Some(node.output))
            {
                *eps *= 2.0;
            }
        }
        let plan = plan(&graph, Features::of(Mode::Int4), (1024, rows(&graph, 2048)));
        let (placement, planned) = head(&graph, &plan);
        let layers = plan.calls().next().expect("a call");
        let layers = lower::program_of(&plan.programs[layers.program]).expect("a program");
        let most = layers.launches.iter().map(|launch| launch.herds[0].cols);
        assert_eq!(most.max(), Some(8), "{name}");
        match fits {
            true => assert_eq!(planned.name(), "token_layers", "{}", placement.reason),
            false => {
                let reason = &placement.reason;
                assert_eq!(planned.name(), "lm_head_gemv", "{reason}");
                assert!(reason.starts_with(HEAD_BESIDE_LAYERS), "{reason}");
                assert!(reason.len() > HEAD_BESIDE_LAYERS.len() + 10, "{reason}");
                assert_eq!(plan.calls().count(), 2);
                let norm = |step: &Step| matches!(step, Step::Host(HostStep::FinalNorm { .. }));
                assert!(plan.steps.iter().any(norm));
            }
        }
    }
}

/// The host appends the call's output after the call, and the call reads the earlier cache.
#[test]
fn the_host_appends_behind_the_call() {
    let graph = llama_1b();
    let plan = plan(&graph, Features::of(Mode::Int4), (1024, rows(&graph, 2048)));
    let mut layers = Vec::new();
    for (number, step) in plan.steps.iter().enumerate() {
        let Step::Call(call) = step else { continue };
        let behind = plan.appended_behind(number);
        assert!(plan.appends(call).is_empty());
        let slots = plan.programs[call.program].slots().iter();
        for (slot, binding) in slots.zip(&call.bindings) {
            if let Binding::Cache { layer, .. } = binding {
                assert!(behind.contains(layer), "{layer}");
                assert_eq!(slot.role, Role::Static);
                assert_eq!(slot.shape, [8, rows(&graph, 2048), 128]);
            }
        }
        for layer in &behind {
            let of = |step: &Step| match step {
                Step::Host(HostStep::AppendKv { layer: l, k, v }) if l == layer => Some([*k, *v]),
                _ => None,
            };
            let values = plan.steps.iter().find_map(of).expect("appended");
            for value in values {
                let slot = call
                    .bindings
                    .iter()
                    .position(|b| *b == Binding::Value(value));
                let slots = plan.programs[call.program].slots();
                assert_eq!(slots[slot.expect("given out")].role, Role::Output);
            }
        }
        layers.extend(behind);
    }
    assert_eq!(layers, (0..16).collect::<Vec<_>>());
}

#[test]
fn where_cores_cannot_the_host_or_another_program_attends() {
    let llama = llama_1b();
    let q4nx = Features::of(Mode::Int4);
    let short = (1024, rows(&llama, 2048));
    for needed in [
        Feature::ResidentAttention,
        Feature::Resident,
        Feature::MergedBlocks,
    ] {
        let plan = plan(&llama, q4nx.without(needed), short);
        assert_eq!(attends_on_host(&plan), 16, "{needed}");
    }
    // More keys than cores have room for: a separate program.
    let long = plan(&llama, q4nx, (32_768, rows(&llama, 32_768)));
    assert_eq!(attends_on_host(&long), 0);
    assert!(long.programs.iter().any(|p| p.name() == "cached_attn"));
}

/// A device has only the rows that a layer with a window reaches, and a token reads no others.
#[test]
fn a_window_is_a_ring() {
    let gemma = graph("gemma-3-4b", Some(7));
    for n_keys in [512, 4096] {
        let plan = plan(
            &gemma,
            Features::of(Mode::Int4),
            (n_keys, rows(&gemma, 8192)),
        );
        let call = plan.calls().next().expect("a call");
        let planned = &plan.programs[call.program];
        let caches = planned.slots().iter().zip(&call.bindings);
        let mut n_rows: Vec<u64> = caches
            .filter(|(_, binding)| matches!(binding, Binding::Cache { .. }))
            .map(|(slot, _)| slot.shape[1])
            .collect();
        n_rows.dedup();
        assert_eq!(n_rows, [1040, rows(&gemma, 8192), 1040]);
        let attends = planned.launches.iter();
        let attends = attends.filter(|launch| launch.kernel == "token-attention");
        let mut read: Vec<[u64; 2]> = attends
            .map(|launch| [launch.shape["n_keys"], launch.shape["window"]])
            .collect();
        read.dedup();
        match n_keys {
            512 => assert_eq!(read, [[520, 0]]),
            _ => assert_eq!(read, [[1040, 1024], [4120, 0], [1040, 1024]]),
        }
    }
}

#[test]
fn every_op_has_a_place_and_a_reason() {
    let graph = llama_1b();
    let plan = plan(&graph, Features::of(Mode::Int4), (1024, rows(&graph, 2048)));
    assert_eq!(plan.placement.len(), graph.nodes.len());
    for placement in &plan.placement {
        if let (NodePlace::Device(device), Op::Attention(_)) =
            (&placement.place, &graph.nodes[placement.node].op)
        {
            let planned = &plan.programs[device.program];
            let launch = &planned.launches[device.launches.start];
            assert_eq!(launch.kernel, "token-attention");
            // Its cores, and the one that joins their states.
            assert_eq!(launch.physical.len(), 2);
            assert!(
                placement.reason.contains("neighbour"),
                "{}",
                placement.reason
            );
        }
    }
}
