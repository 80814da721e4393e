//! Attention over the cache: its place, the reason, and its rows.

use crate::lower::{graph, graph_from, llama_1b, program};
use millrace_format::Source;
use millrace_graph::{Graph, Op};
use millrace_xdna2::lower::{
    self, AttentionOn, Binding, CachePart, Feature, Features, HostStep, LowerOptions, Mode,
    NodePlace, Plan, Step, attention_times, cache_rows, key_bucket,
};
use millrace_xdna2_machine::{Machine, Profile, verify};

fn options(n_tokens: u64, n_keys: u64, max_tokens: u64) -> LowerOptions {
    LowerOptions {
        attention: AttentionOn::Cached { n_keys, max_tokens },
        ..LowerOptions::new(Mode::Fast, n_tokens)
    }
}

fn decode(graph: &Graph, n_keys: u64, max_tokens: u64) -> Plan {
    let options = options(1, n_keys, max_tokens);
    lower::decode(graph, &Machine::npu2(), &options).unwrap_or_else(|e| panic!("{e}"))
}

/// For every attention node: whether it is on the array, and why.
fn attention<'p>(graph: &Graph, plan: &'p Plan) -> Vec<(bool, &'p str)> {
    let attends = |node: usize| matches!(graph.nodes[node].op, Op::Attention(_));
    let placed = plan.placement.iter().filter(|p| attends(p.node));
    placed
        .map(|p| (p.place != NodePlace::Host, p.reason.as_str()))
        .collect()
}

#[test]
fn the_array_attends_where_it_is_faster_and_says_so() {
    let graph = llama_1b();
    let long = decode(&graph, 8192, 8192);
    let placed = attention(&graph, &long);
    assert_eq!(placed.len(), 16);
    for (on_array, reason) in placed {
        assert!(on_array, "{reason}");
        assert!(reason.contains("on the array") && reason.contains("on the host"));
        assert!(reason.contains("8192 keys"), "{reason}");
    }
    assert!(
        verify(
            lower::program_of(program(&long, "cached_attn")).unwrap(),
            &Machine::npu2()
        )
        .is_ok()
    );
    let appended = |step: &&Step| matches!(step, Step::Host(HostStep::AppendKv { .. }));
    assert_eq!(long.steps.iter().filter(appended).count(), 16);
    let attends = |step: &&Step| matches!(step, Step::Host(HostStep::Attention { .. }));
    assert_eq!(long.steps.iter().filter(attends).count(), 0);
    // A dispatch takes longer than a copy of few keys.
    let short = decode(&graph, 512, 8192);
    for (on_array, reason) in attention(&graph, &short) {
        assert!(!on_array && reason.contains("faster here"), "{reason}");
    }
    assert_eq!(short.calls().count() + 16, long.calls().count());
}

#[test]
fn slots_are_the_caches_of_their_layer() {
    let graph = llama_1b();
    let plan = decode(&graph, 8192, 16_384);
    let calls = plan
        .calls()
        .filter(|call| call.set.starts_with("cached_attn"));
    for (layer, call) in calls.enumerate() {
        let cache = |of| Binding::Cache { layer, of };
        let slots = plan.programs[call.program].slots();
        let at = |binding: &Binding| call.bindings.iter().position(|b| b == binding).unwrap();
        for of in [CachePart::Keys, CachePart::Values] {
            assert_eq!(slots[at(&cache(of))].shape, [8, 16_384, 64]);
        }
        assert!(slots[at(&Binding::Position)].n_elements().unwrap() >= 4);
    }
}

#[test]
fn without_the_feature_the_host_attends() {
    let graph = llama_1b();
    let features = Features::of(Mode::Fast).without(Feature::CachedAttention);
    let options = LowerOptions {
        features,
        ..options(1, 8192, 8192)
    };
    let plan = lower::decode(&graph, &Machine::npu2(), &options).unwrap();
    for (on_array, reason) in attention(&graph, &plan) {
        assert!(!on_array && reason.contains("cached-attention"), "{reason}");
    }
    let plain = lower::decode(
        &graph,
        &Machine::npu2(),
        &LowerOptions {
            attention: AttentionOn::Device,
            ..options
        },
    )
    .unwrap();
    assert_eq!(plain.steps, plan.steps);
}

#[test]
fn a_later_chunk_of_a_prompt_sees_the_cache() {
    let graph = graph("llama-3.2-1b", Some(1));
    let lower = |n_tokens, n_keys, max_tokens| {
        let options = options(n_tokens, n_keys, max_tokens);
        lower::prefill(&graph, &Machine::npu2(), &options).unwrap()
    };
    for (n_tokens, n_keys) in [(64, 2048), (512, 1024), (2048, 4096)] {
        let plan = lower(n_tokens, n_keys, 8192);
        let (on_array, reason) = attention(&graph, &plan)[0];
        assert_eq!(
            (on_array, reason.contains("on the host")),
            (true, true),
            "{reason}"
        );
    }
    // A bucket holds at least its own tokens; a cache that is too small is left to the host.
    assert!(
        attention(&graph, &lower(512, 64, 8192))[0]
            .1
            .contains("512 keys")
    );
    let plan = lower(64, 4096, 2048);
    let (on_array, reason) = attention(&graph, &plan)[0];
    assert!(!on_array && reason.contains("a cache of 2048"), "{reason}");
}

#[test]
fn every_geometry_has_times_and_programs() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    for geometry in millrace_model::synth::ModelGeometry::all() {
        let graph = graph_from(geometry.name(), Some(7), Source::HuggingFace);
        let max_tokens = cache_rows(&graph, &machine, Features::of(Mode::Fast), 5000);
        assert!((5000..5000 + 8192).contains(&max_tokens));
        for node in &graph.nodes {
            let Op::Attention(a) = &node.op else { continue };
            let n_keys = key_bucket(4000);
            let times = |n_tokens| {
                let on = (&machine, Features::of(Mode::Fast));
                let times = attention_times(a, n_tokens, (n_keys, max_tokens), on, &profile);
                times.unwrap_or_else(|e| panic!("{}: {e}", geometry.name()))
            };
            // The array reads all keys, the host those of the window.
            assert!(times(1).host_ns > 0.0 && times(1).array_ns > 100_000.0);
            assert!(times(64).host_ns > times(1).host_ns);
        }
        for n_keys in [512, 4000] {
            let plan = decode(&graph, key_bucket(n_keys), max_tokens);
            for planned in &plan.programs {
                assert!(verify(lower::program_of(planned).unwrap(), &machine).is_ok());
            }
        }
    }
}

/// As in the Gemma 3 paper: in every layer a pair of cores for each key-value head, four on two columns. A layer with a
/// window has the rows that it reaches, in a separate ring, for any length of context.
#[test]
fn mode_fastflowlm_attends_on_pairs_of_cores() {
    let machine = Machine::npu2();
    for (name, n_layers) in [
        ("gemma-3-1b", 7),
        ("gemma-3-4b", 6),
        ("llama-3.2-1b", 2),
        ("qwen2.5-0.5b", 1),
    ] {
        let graph = graph(name, Some(n_layers));
        let max_tokens = cache_rows(&graph, &machine, Features::of(Mode::FastFlowLm), 8192);
        for n_keys in [512, 1024, 8192] {
            let lower = |features| {
                let options = LowerOptions {
                    features,
                    attention: AttentionOn::Cached { n_keys, max_tokens },
                    ..LowerOptions::new(Mode::FastFlowLm, 1)
                };
                lower::decode(&graph, &machine, &options).unwrap()
            };
            let all = Features::of(Mode::FastFlowLm);
            let (plan, others) = (lower(all), lower(all.without(Feature::FlowKv)));
            let placed = attention(&graph, &plan).into_iter();
            for ((on_array, reason), other) in placed.zip(attention(&graph, &others)) {
                assert!(
                    on_array && reason.contains("pairs of cores"),
                    "{name}: {reason}"
                );
                assert!(other.1.contains("on the array") && other.1.contains("on the host"));
            }
            let window = |node: &usize| match &graph.nodes[*node].op {
                Op::Attention(a) => Some(a.window),
                _ => None,
            };
            let mut n_calls = 0;
            for call in plan.calls() {
                let Some(window) = call.nodes.iter().find_map(window) else {
                    continue;
                };
                n_calls += 1;
                let planned = &plan.programs[call.program];
                let program = lower::program_of(planned).unwrap();
                assert!(verify(program, &machine).is_ok());
                let [kv_heads, rows, _] = program.slots[1].shape[..] else {
                    panic!("a cache of three dimensions");
                };
                let herd = &program.launches[0].herds[0];
                assert_eq!(u64::from(herd.cols * herd.rows), 2 * kv_heads, "{name}");
                let shape = &planned.launches[0].shape;
                match window.filter(|&window| (window as u64) < n_keys) {
                    Some(window) => {
                        let window = window as u64;
                        assert!(rows > window && rows <= window + 64, "{name}: {rows}");
                        assert_eq!(
                            (shape["n_keys"], shape["window"]),
                            (rows.min(n_keys), window)
                        );
                    }
                    None => {
                        let read = shape["n_keys"];
                        assert!(read >= n_keys && read < n_keys + 64 && shape["window"] == 0);
                    }
                }
            }
            assert_eq!(n_calls, n_layers, "{name}");
        }
    }
}

/// With a window, a later pass reads only its reach, which the host puts together with the pass. The program is the
/// same wherever in a context the pass begins.
#[test]
fn a_local_layer_reads_what_its_window_reaches() {
    // Five local layers, a global one and another.
    let graph = graph("gemma-3-1b", Some(7));
    let windows = graph.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(a) => Some((a.layer, a.window)),
        _ => None,
    });
    let windows: Vec<(usize, Option<usize>)> = windows.collect();
    assert_eq!(windows.iter().filter(|(_, w)| w.is_none()).count(), 1);
    let plan = |n_keys: u64| {
        let options = options(2048, n_keys, 32_768);
        lower::prefill(&graph, &Machine::npu2(), &options).unwrap()
    };
    let programs = |plan: &Plan| -> Vec<[u8; 32]> {
        let mut found = Vec::new();
        for call in plan.calls().filter(|c| c.set.starts_with("cached_attn")) {
            let planned = &plan.programs[call.program];
            let reached = |binding: &Binding| matches!(binding, Binding::CacheRange { .. });
            assert!(verify(lower::program_of(planned).unwrap(), &Machine::npu2()).is_ok());
            if call.bindings.iter().any(reached) {
                found.push(planned.container.content_hash().0);
            }
        }
        found.dedup();
        found
    };
    let (early, late) = (plan(4096), plan(32_768));
    assert_eq!(programs(&early).len(), 1);
    assert_eq!(programs(&early), programs(&late));
    for (placed, (layer, window)) in attention(&graph, &late).iter().zip(windows) {
        assert!(placed.0, "layer {layer}: {}", placed.1);
        let keys = match window {
            // A tile of 16 keys more than the window, less the pass's own first.
            Some(window) => format!("for {} keys", 2048 + window + 16),
            None => "for 32768 keys".to_owned(),
        };
        assert!(placed.1.contains(&keys), "layer {layer}: {}", placed.1);
    }
}

/// A device holds only the reach of a pass of a local layer, for any length of context. No buffer of its keys and
/// values grows beyond the window, the pass and a tile.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn a_window_bounds_what_a_device_holds_of_a_layer() {
    let machine = Machine::npu2();
    for name in ["gemma-3-1b", "gemma-3-4b"] {
        let graph = graph(name, Some(6));
        let windows = graph.nodes.iter().filter_map(|node| match &node.op {
            Op::Attention(a) => Some((a.layer, a.window? as u64)),
            _ => None,
        });
        let windows: Vec<(usize, u64)> = windows.collect();
        assert_eq!(windows.len(), 5);
        for mode in [Mode::Fast, Mode::Int4, Mode::FastFlowLm] {
            for (n_tokens, n_keys) in [(2048, 4096), (2048, 32_768), (1, 2048), (1, 32_768)] {
                let options = LowerOptions {
                    attention: AttentionOn::Cached {
                        n_keys,
                        max_tokens: 32_768,
                    },
                    ..LowerOptions::new(mode, n_tokens)
                };
                let lower = if n_tokens == 1 {
                    lower::decode
                } else {
                    lower::prefill
                };
                let plan = lower(&graph, &machine, &options).unwrap();
                for call in plan.calls() {
                    let slots = plan.programs[call.program].slots();
                    for (slot, binding) in slots.iter().zip(&call.bindings) {
                        let (Binding::Cache { layer, .. } | Binding::CacheRange { layer, .. }) =
                            binding
                        else {
                            continue;
                        };
                        let window = windows.iter().find(|(local, _)| local == layer);
                        // A token's attention on its projections' cores takes a run of all of them at once.
                        let tile = match (mode, n_tokens) {
                            (Mode::Int4, 1) => 160,
                            _ => 32,
                        };
                        let most = window.map_or(32_768, |(_, window)| n_tokens + window + tile);
                        assert!(slot.shape[1] <= most, "{name} {mode:?} {n_keys}: {slot:?}");
                    }
                }
            }
        }
    }
}
