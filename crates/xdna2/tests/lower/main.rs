//! Lowering: the six programs of MLIR-AIR's Llama-3.2-1B example, other models, and stitched programs with the results
//! of their kernels.
#![allow(clippy::unwrap_used)] // A test may panic.

mod alias;
mod cached;
mod crossing;
mod delta_net;
mod int8;
mod numbers;
mod packed;
mod sharing;
mod token;
mod vision;
mod vocab;

use millrace_format::{Checkpoint, Source};
use millrace_graph::{Graph, Linear, Op, ValueId, WeightId};
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_testkit::sample;
use millrace_xdna2::lower::{
    self, ATTENTION_ALONE, AttentionOn, Binding, Feature, Features, HostStep, IndexSets,
    LowerError, LowerOptions, Mode, NodePlace, Plan, PlannedProgram, Step, TableRows, WeightLayout,
};
use millrace_xdna2_machine::program::text;
use millrace_xdna2_machine::{Machine, verify};
use std::path::Path;

const MODES: [Mode; 2] = [Mode::MlirAir, Mode::Fast];

/// A mode's options with a program for every half of a block and a launch for every projection, as in the example.
fn plain(mode: Mode, n_tokens: u64) -> LowerOptions {
    let features = Features::of(mode)
        .without(Feature::MergedBlocks)
        .without(Feature::FastTilings);
    LowerOptions {
        features,
        ..LowerOptions::new(mode, n_tokens)
    }
}

fn graph_from(name: &str, n_layers: Option<usize>, source: Source) -> Graph {
    let geometry = ModelGeometry::named(name).unwrap();
    let recipe = Recipe::parse("bf16").unwrap();
    let model = Model::without_weights(geometry, n_layers, recipe, source);
    model.unwrap().graph
}

fn graph(name: &str, n_layers: Option<usize>) -> Graph {
    graph_from(name, n_layers, Source::HuggingFace)
}

fn llama_1b() -> Graph {
    graph("llama-3.2-1b", None)
}

fn demo() -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    let checkpoint = Checkpoint::open(&path).unwrap();
    Model::from_checkpoint(&checkpoint).unwrap().graph
}

fn prefill(graph: &Graph, options: LowerOptions) -> Plan {
    lower::prefill(graph, &Machine::npu2(), &options).unwrap_or_else(|e| panic!("{e}"))
}

fn decode(graph: &Graph, mode: Mode) -> Plan {
    let options = plain(mode, 2048);
    lower::decode(graph, &Machine::npu2(), &options).unwrap_or_else(|e| panic!("{e}"))
}

fn program<'p>(plan: &'p Plan, name: &str) -> &'p PlannedProgram {
    let named = plan.programs.iter().find(|p| p.name() == name);
    named.unwrap_or_else(|| panic!("no program {name}"))
}

/// Name, logical launches and slots of every program.
fn listing(plan: &Plan) -> Vec<(&str, usize, usize)> {
    let row = |p: &'_ PlannedProgram| (p.launches.len(), p.slots().len());
    plan.programs
        .iter()
        .map(|p| (p.name(), row(p).0, row(p).1))
        .collect()
}

/// Slots by index set: static, input, written, read back.
fn sets(plan: &Plan, name: &str) -> [Vec<usize>; 4] {
    let sets = IndexSets::of(program(plan, name).slots());
    [sets.statics, sets.input, sets.intermediate, sets.output]
}

fn arg_maps(plan: &Plan, name: &str) -> Vec<Vec<usize>> {
    let launches = &program(plan, name).launches;
    launches.iter().map(|l| l.slots.clone()).collect()
}

/// Labels and reasons of the ops on the host.
fn on_host<'p>(graph: &Graph, plan: &'p Plan) -> Vec<(&'static str, &'p str)> {
    let host = plan.placement.iter().filter(|p| p.place == NodePlace::Host);
    host.map(|p| (graph.nodes[p.node].label, p.reason.as_str()))
        .collect()
}

#[test]
fn llama_1b_prefill_takes_the_programs_of_the_example() {
    let graph = llama_1b();
    for mode in MODES {
        let plan = prefill(&graph, plain(mode, 2048));
        let expected = [
            ("rms_gemms_rope", 6, 13),
            ("flash_attn", 1, 4),
            ("o_ffn", 8, 15),
            ("lm_head_gemv", 8, 17),
        ];
        assert_eq!(listing(&plan), expected);
        // Its index sets, with v read too; see the module.
        let [statics, input, written, output] = sets(&plan, "rms_gemms_rope");
        assert_eq!(statics, [1, 3, 5, 7, 9, 10]);
        assert_eq!(input, [0]);
        assert_eq!(written, [2, 4, 6, 8, 11, 12]);
        assert_eq!(output, [8, 11, 12]);
        let [statics, input, _, output] = sets(&plan, "o_ffn");
        assert_eq!((statics, input), (vec![1, 5, 7, 9, 12], vec![0, 3]));
        assert_eq!(output, [14]);
        assert_eq!(sets(&plan, "flash_attn")[1], [0, 1, 2]);
        // Its argument maps.
        let maps = [
            [0, 1, 2],
            [2, 3, 4],
            [2, 5, 6],
            [2, 7, 8],
            [4, 9, 11],
            [6, 10, 12],
        ];
        assert_eq!(arg_maps(&plan, "rms_gemms_rope"), maps);
        // 3 calls a block and the head.
        assert_eq!(plan.calls().count(), 49);
        assert_eq!(plan.calls().nth(15).unwrap().set, "rms_gemms_rope_L5");
        assert_eq!(plan.calls().last().unwrap().set, "lm_head_gemv");
        let host = on_host(&graph, &plan);
        let labels: Vec<&str> = host.iter().map(|h| h.0).collect();
        assert_eq!(labels, ["embed", "output_norm"]);
    }
}

#[test]
fn llama_1b_decode_takes_the_programs_of_the_example() {
    let graph = llama_1b();
    for mode in MODES {
        let plan = decode(&graph, mode);
        let expected = [
            ("rms_gemv_rope", 6, 13),
            ("o_gemv_ffn", 8, 15),
            ("lm_head_gemv", 8, 17),
        ];
        assert_eq!(listing(&plan), expected);
        let [statics, input, _, output] = sets(&plan, "rms_gemv_rope");
        assert_eq!((statics, input), (vec![1, 3, 5, 7], vec![0, 9, 10]));
        // Its decode takes v from out[8] and the rotated k from out[12].
        assert_eq!(output, [8, 11, 12]);
        assert_eq!(sets(&plan, "o_gemv_ffn")[3], [14]);
        let [statics, input, _, output] = sets(&plan, "lm_head_gemv");
        assert_eq!(statics, (0..8).map(|p| 1 + 2 * p).collect::<Vec<_>>());
        assert_eq!(output, (0..8).map(|p| 2 + 2 * p).collect::<Vec<_>>());
        assert_eq!(input, [0]);
        assert_eq!(plan.calls().count(), 33);
        let attention = HostStep::Attention { node: 7 };
        assert!(plan.steps.contains(&Step::Host(attention)));
    }
    let launches = &program(&decode(&graph, Mode::MlirAir), "o_gemv_ffn")
        .launches
        .clone();
    // Two GEMVs in one program.
    let tiles: Vec<_> = launches.iter().map(|l| l.tiling.get("tile_m")).collect();
    assert_eq!(
        tiles,
        [Some(8), None, None, Some(8), Some(8), None, Some(2), None]
    );
}

#[test]
fn every_slot_is_bound_to_what_it_holds() {
    let graph = llama_1b();
    let plan = prefill(&graph, plain(Mode::MlirAir, 2048));
    let call = plan.calls().find(|c| c.set == "rms_gemms_rope_L5").unwrap();
    let weight = |slot: usize, suffix: &str, expected: WeightLayout| match call.bindings[slot] {
        Binding::Weight { weight, layout } => {
            let name = &graph.weights[weight.0].name;
            assert!(name.contains(".5.") && name.ends_with(suffix), "{name}");
            assert_eq!(layout, expected);
        }
        ref other => panic!("slot {slot}: {other:?}"),
    };
    let transposed = WeightLayout::Transposed { half_split: None };
    weight(
        1,
        "input_layernorm.weight",
        WeightLayout::Vector { offset: 0.0 },
    );
    weight(3, "q_proj.weight", transposed);
    weight(5, "k_proj.weight", transposed);
    weight(7, "v_proj.weight", transposed);
    let rows = |n_heads| TableRows {
        n_tokens: 2048,
        n_heads,
    };
    for (slot, n_heads) in [(9, 32), (10, 8)] {
        match call.bindings[slot] {
            Binding::RopeTable { rows: found, .. } => assert_eq!(found, rows(n_heads)),
            ref other => panic!("slot {slot}: {other:?}"),
        }
    }
    assert_eq!(call.bindings[0], Binding::Value(graph.hidden[5]));
    for slot in [2, 4, 6] {
        assert_eq!(call.bindings[slot], Binding::Scratch);
    }
    let o_ffn = plan.calls().find(|c| c.set == "o_ffn_L5").unwrap();
    assert_eq!(o_ffn.bindings[3], Binding::Value(graph.hidden[5]));
    assert_eq!(o_ffn.bindings[14], Binding::Value(graph.hidden[6]));
}

#[test]
fn the_vocabulary_is_padded_to_eight_equal_parts() {
    for (model, padded_to) in [("llama-3.2-1b", 16_384), ("llama-tiny", 64)] {
        let graph = graph(model, Some(1));
        let plan = decode(&graph, Mode::Fast);
        let head = plan.calls().last().unwrap();
        let logits = graph.logits.unwrap();
        let mut next = 0;
        for pair in head.bindings[1..].chunks(2) {
            let [
                Binding::Weight { layout, .. },
                Binding::Part { value, start, len },
            ] = pair
            else {
                panic!("{pair:?}");
            };
            let rows = WeightLayout::Rows {
                start: *start,
                len: *len,
                padded_to,
            };
            assert_eq!((*layout, *value, *start), (rows, logits, next));
            next += len;
        }
        assert_eq!(next, graph.values[logits.0].width);
    }
}

#[test]
fn the_demo_runs_on_the_array() {
    let graph = demo();
    let padded = |n| lower::lengths(Features::of(Mode::Fast)).padded(n);
    for mode in MODES {
        for n_tokens in [1, 30, 64, 65, 300, 512].map(padded) {
            let plan = prefill(&graph, plain(mode, n_tokens));
            let labels: Vec<&str> = on_host(&graph, &plan).iter().map(|h| h.0).collect();
            assert_eq!(labels, ["embed", "output_norm"], "{n_tokens}");
            assert_eq!(plan.calls().count(), 3 * 6 + 1);
        }
        let plan = decode(&graph, mode);
        assert_eq!(plan.calls().count(), 2 * 6 + 1);
        let (label, reason) = on_host(&graph, &plan)[1];
        assert!(
            label == "attn" && reason.contains("over the cache is the host's"),
            "{reason}"
        );
    }
    // Llama's GGUF files pair neighbours: Q and K are put in half-split order, V is not.
    let plan = decode(&graph, Mode::Fast);
    let order = |slot: usize| match plan.calls().next().unwrap().bindings[slot] {
        Binding::Weight {
            layout: WeightLayout::AsStored { half_split },
            ..
        } => half_split,
        ref other => panic!("{other:?}"),
    };
    assert_eq!([3, 5, 7].map(order), [Some(64), Some(64), None]);
}

#[test]
fn what_a_mapping_refuses_is_the_hosts_with_the_rule() {
    let mut graph = graph("llama-tiny", Some(1));
    let reason = |graph: &Graph, options: LowerOptions, label: &str| {
        let plan = prefill(graph, options);
        assert_eq!(plan.placement.len(), graph.nodes.len());
        let host = on_host(graph, &plan);
        let found = host.iter().find(|h| h.0 == label);
        found.map(|h| h.1.to_owned()).unwrap_or_default()
    };
    let options = plain(Mode::Fast, 64);
    assert_eq!(reason(&graph, options, "attn"), "");
    let asked = LowerOptions {
        attention: AttentionOn::Host,
        ..options
    };
    assert!(reason(&graph, asked, "attn").contains("asked for"));
    // 67 tokens are not a whole number of tiles.
    let odd = plain(Mode::Fast, 67);
    assert!(reason(&graph, odd, "attn_q").contains("gemm-drain-bt: divides"));
    assert!(reason(&graph, odd, "attn").contains("flash-attention: divides"));
    let Op::Attention(attention) = &mut graph.nodes[7].op else {
        panic!("{:?}", graph.nodes[7]);
    };
    attention.window = Some(16);
    assert_eq!(reason(&graph, options, "attn"), "");
    let no_masks = LowerOptions {
        features: options.features.without(Feature::Windows),
        ..options
    };
    assert!(reason(&graph, no_masks, "attn").contains("window of 16"));
    let Op::Linear(Linear { bias, .. }) = &mut graph.nodes[4].op else {
        panic!("{:?}", graph.nodes[4]);
    };
    *bias = Some(WeightId(graph.weights.len()));
    let mut vector = graph.weights[1].clone();
    (vector.n, vector.k) = (1, graph.values[graph.nodes[4].output.0].width);
    graph.weights.push(vector);
    assert!(reason(&graph, options, "attn_v").contains("bias"));
    // Host ops cut groups.
    let names: Vec<String> = prefill(&graph, options)
        .programs
        .iter()
        .map(|p| p.name().to_owned())
        .collect();
    assert_eq!(names[..2], ["rms_gemm", "rope"]);
}

#[test]
fn every_geometry_lowers_to_programs_the_verifier_accepts() {
    let machine = Machine::npu2();
    for (i, geometry) in ModelGeometry::all().enumerate() {
        // One of the two forms in turn, unless both are requested.
        for source in sample::part([Source::Gguf, Source::HuggingFace], 2, i) {
            let graph = graph_from(geometry.name(), Some(2), source);
            let plans = [
                prefill(&graph, plain(Mode::Fast, 256)),
                prefill(&graph, LowerOptions::new(Mode::Fast, 256)),
                prefill(&graph, plain(Mode::MlirAir, 256)),
                decode(&graph, Mode::Fast),
                decode(&graph, Mode::MlirAir),
            ];
            for plan in plans {
                assert_eq!(plan.placement.len(), graph.nodes.len());
                for planned in &plan.programs {
                    let name = (geometry.name(), &planned.name());
                    assert!(
                        verify(lower::program_of(planned).unwrap(), &machine).is_ok(),
                        "{name:?}"
                    );
                }
                for call in plan.calls() {
                    let slots = plan.programs[call.program].slots().len();
                    assert_eq!(call.bindings.len(), slots);
                }
                let host = on_host(&graph, &plan).len();
                // In a mixture, everything between the router's scores and the experts' sum is on the host.
                let is_mixture = graph.nodes.iter().any(|n| matches!(n.op, Op::Route(_)));
                let most = graph.nodes.len() * if is_mixture { 3 } else { 1 } / 3;
                assert!(host < most, "{}: {host}", geometry.name());
            }
        }
    }
}

#[test]
fn the_same_question_gets_the_same_bytes() {
    let graph = llama_1b();
    let bytes = || {
        let plan = prefill(&graph, plain(Mode::Fast, 2048));
        let programs: Vec<String> = plan
            .programs
            .iter()
            .map(|p| text::print(lower::program_of(p).unwrap()))
            .collect();
        (programs, format!("{plan:?}"))
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn edges_tell_what_the_host_need_not_see() {
    let graph = llama_1b();
    let plan = prefill(&graph, plain(Mode::MlirAir, 2048));
    let edges = plan.edges(&graph);
    let edge = |value: ValueId| edges.iter().find(|e| e.value == value).unwrap();
    let attention = graph
        .nodes
        .iter()
        .find(|n| matches!(n.op, Op::Attention(_)))
        .unwrap();
    let [q, k, v] = attention.inputs[..] else {
        panic!("{attention:?}");
    };
    assert!(!edge(q).host_reads && edge(k).host_reads && edge(v).host_reads);
    assert!(!edge(attention.output).host_reads);
    // A hidden state goes to the norm and, as the residual, to the second program.
    assert_eq!(edge(graph.hidden[1]).to.len(), 2);
    assert!(!edge(graph.hidden[1]).host_reads && edge(graph.hidden[16]).host_reads);
    let alone = plan.placement.iter().find(|p| p.node == 7).unwrap();
    assert_eq!(alone.reason, ATTENTION_ALONE);
}

#[test]
fn nonsense_is_an_error() {
    let good = graph("llama-tiny", Some(1));
    let machine = Machine::npu2();
    let options = plain(Mode::Fast, 64);
    for n_tokens in [0, u64::MAX] {
        let result = lower::prefill(&good, &machine, &plain(Mode::Fast, n_tokens));
        assert!(matches!(result, Err(LowerError::Tokens(_))));
    }
    let refused = |change: &dyn Fn(&mut Graph)| {
        let mut graph = good.clone();
        change(&mut graph);
        assert!(lower::prefill(&graph, &machine, &options).is_err());
        assert!(lower::decode(&graph, &machine, &options).is_err());
    };
    refused(&|g| g.logits = None);
    refused(&|g| g.nodes.clear());
    refused(&|g| g.nodes[3].inputs.clear());
    refused(&|g| g.nodes[3].inputs[0] = ValueId(usize::MAX));
    refused(&|g| g.nodes[3].output = g.nodes[2].output);
    refused(&|g| g.nodes[3].output = ValueId(usize::MAX));
    refused(&|g| g.weights.truncate(3));
    refused(&|g| g.ropes.clear());
    refused(&|g| g.values.iter_mut().for_each(|v| v.width = 0));
    refused(&|g| g.values.iter_mut().for_each(|v| v.width = usize::MAX / 2));
}
