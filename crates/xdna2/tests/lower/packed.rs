//! Plans whose weights stay in blocks of 4 bits.

use crate::lower::{decode, graph, on_host, prefill};
use millrace_graph::Graph;
use millrace_npu::Role;
use millrace_xdna2::lower::{
    self, AttentionOn, Binding, Feature, Features, LowerOptions, Mode, Plan, WeightLayout,
    program_of,
};
use millrace_xdna2_machine::program::{Affine, IndexRange, Place, resident};
use millrace_xdna2_machine::verify::verify;
use millrace_xdna2_machine::{Machine, Profile, timing};
use std::collections::BTreeSet;

fn plan_of(graph: &Graph, features: Features) -> Plan {
    let options = LowerOptions {
        features,
        ..LowerOptions::new(Mode::Int4, 128)
    };
    lower::decode(graph, &Machine::npu2(), &options).unwrap()
}

/// Bytes of matrices in slots.
fn weight_bytes(plan: &Plan) -> u64 {
    let of = |call: &millrace_xdna2::lower::Call| -> u64 {
        let slots = plan.programs[call.program].slots();
        let bound = slots.iter().zip(&call.bindings);
        let weights = bound.filter(|(_, b)| matches!(b, Binding::Weight { .. }));
        weights.map(|(slot, _)| slot.size_bytes().unwrap()).sum()
    };
    plan.calls().map(of).sum()
}

#[test]
fn matrices_of_published_models_stay_packed() {
    for (name, n_params) in [("gemma-3-1b", 1.0e9), ("llama-3.2-1b", 1.236e9)] {
        let graph = graph(name, None);
        let plan = plan_of(&graph, Features::of(Mode::Int4));
        let bytes = weight_bytes(&plan) as f64;
        // 5 bits a weight, and the columns that 1152 lacks to whole blocks.
        assert!(bytes < 0.70 * n_params, "{name}: {bytes}");
        let labels: Vec<&str> = on_host(&graph, &plan).iter().map(|h| h.0).collect();
        let others = ["embed", "attn", "output_norm"];
        assert!(
            labels.iter().all(|label| others.contains(label)),
            "{labels:?}"
        );
        let bf16 = decode(&graph, Mode::Fast);
        assert!(weight_bytes(&bf16) as f64 > 2.9 * bytes);
    }
}

/// Prompt and token read the same blocks: their layouts, and so their buffers, are the same.
#[test]
fn prompt_and_token_share_weights() {
    let graph = graph("gemma-3-1b", Some(2));
    let layouts = |plan: &Plan| {
        let bindings = plan.calls().flat_map(|call| call.bindings.clone());
        let mut found: Vec<String> = bindings
            .filter(|b| {
                matches!(
                    b,
                    Binding::Weight {
                        layout: WeightLayout::Own { .. },
                        ..
                    }
                )
            })
            .map(|b| format!("{b:?}"))
            .collect();
        found.sort();
        found
    };
    let prompt = prefill(&graph, LowerOptions::new(Mode::Int4, 128));
    let token = plan_of(&graph, Features::of(Mode::Int4));
    assert_eq!(layouts(&prompt), layouts(&token));
    assert_eq!(layouts(&token).len(), 2 * 7 + 1);
    // A window of 512 keys does not move attention to the host.
    for mode in [Mode::Int4, Mode::Fast] {
        let long = prefill(&graph, LowerOptions::new(mode, 1024));
        assert!(on_host(&graph, &long).iter().all(|h| h.0 != "attn"));
    }
}

/// Mode fastflowlm expands a layer's weights to DDR before every product of a prompt and attends as the paper does.
/// Nothing else changes: blocks, and so their buffers, are those of mode int4; a token's plan and the head are the
/// same.
#[test]
fn the_papers_prompts_expand_weights_first() {
    let machine = Machine::npu2();
    for name in ["gemma-3-1b", "gemma-3-4b", "llama-3.2-1b", "qwen2.5-0.5b"] {
        let graph = graph(name, Some(2));
        let paper = prefill(&graph, LowerOptions::new(Mode::FastFlowLm, 128));
        let fused = prefill(&graph, LowerOptions::new(Mode::Int4, 128));
        assert_eq!(weight_bytes(&paper), weight_bytes(&fused), "{name}");
        let kernels = |plan: &Plan| -> Vec<String> {
            let launches = plan.programs.iter().flat_map(|p| &p.launches);
            launches.map(|launch| launch.kernel.clone()).collect()
        };
        // Groups of 7 heads have tiles of 56 keys, which go into no length of a pass.
        let fits = name != "qwen2.5-0.5b";
        let expand = |kernel: &String| match kernel.as_str() {
            "gemm-q4nx" => "gemm-q4nx-ddr".to_owned(),
            "prompt-attention" | "flash-attention" if fits => "flow-qkv".to_owned(),
            _ => kernel.clone(),
        };
        let expected: Vec<String> = kernels(&fused).iter().map(expand).collect();
        assert_eq!(kernels(&paper), expected, "{name}");
        for planned in &paper.programs {
            let program = program_of(planned).unwrap();
            verify(program, &machine).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let expands = |l: &&lower::PlannedLaunch| l.kernel == "gemm-q4nx-ddr";
            for launch in planned.launches.iter().filter(expands) {
                assert_eq!(launch.physical.len(), 2, "{name}");
                let results = launch.results().iter().map(|&slot| &planned.slots()[slot]);
                assert!(results.clone().all(|slot| !slot.name.ends_with("_bf16")));
                let scratch = launch.slots.iter().filter(|&&slot| {
                    let slot = &planned.slots()[slot];
                    slot.name.ends_with("_bf16") && slot.role == Role::Intermediate
                });
                assert_eq!(scratch.count(), launch.n_results, "{name}");
            }
        }
        let token = |mode| kernels(&decode(&graph, mode));
        assert_eq!(token(Mode::FastFlowLm), token(Mode::Int4), "{name}");
    }
}

/// Mode int4 expands in DDR where that is faster. Its products take no longer than with one way for all. Short prompts
/// have the one, long ones of a narrow model the other.
#[test]
fn each_projection_expands_where_that_is_faster() {
    let machine = Machine::npu2();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let graph = graph("gemma-3-1b", Some(2));
    let q4nx = Features::of(Mode::Int4);
    let products = |features: Features, n_tokens: u64| -> (f64, usize) {
        let options = LowerOptions {
            features,
            ..LowerOptions::new(Mode::Int4, n_tokens)
        };
        let plan = prefill(&graph, options);
        let (mut ns, mut n_expanded) = (0.0, 0);
        for call in plan.calls() {
            let planned = &plan.programs[call.program];
            let program = program_of(planned).unwrap();
            let timing = timing::predict(program, &machine, &profile).unwrap();
            let loads_ns = timing::loads_ns(&program.launches, (&machine, &profile)).unwrap();
            let packed = planned
                .launches
                .iter()
                .filter(|l| l.kernel.starts_with("gemm-q4nx"));
            for launch in packed {
                n_expanded += usize::from(launch.kernel == "gemm-q4nx-ddr");
                for at in launch.physical.clone() {
                    ns += timing.launches[at].ns + loads_ns[at];
                }
            }
        }
        (ns, n_expanded)
    };
    for n_tokens in [64, 2048] {
        let (fused, none) = products(q4nx.without(Feature::FasterExpansion), n_tokens);
        let (expanded, all) = products(q4nx.with(Feature::ExpandedWeights), n_tokens);
        let (faster, n_expanded) = products(q4nx, n_tokens);
        assert_eq!(none, 0);
        assert!(all > 0);
        // The cores that launches before and after leave loaded are not known when one is chosen.
        let least = fused.min(expanded);
        assert!(
            faster < 1.01 * least,
            "{n_tokens}: {faster} of {fused} and {expanded} ns"
        );
        match n_tokens {
            64 => assert_eq!(n_expanded, 0),
            _ => assert!(n_expanded > 0 && faster < 0.8 * fused),
        }
    }
}

/// Heads of 128 and 256 attend over a first pass's own keys on cores with separate tokens, local and global layers on
/// one configuration of the array. Narrower ones keep the cascade.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn first_passes_of_wide_heads_have_cores_with_tokens() {
    let kernels = |name: &str, n_layers: usize, n_tokens: u64| {
        let graph = graph(name, Some(n_layers));
        let plan = prefill(&graph, LowerOptions::new(Mode::Int4, n_tokens));
        assert!(on_host(&graph, &plan).iter().all(|h| h.0 != "attn"));
        let attends = plan.calls().filter(|c| c.set.starts_with("flash_attn"));
        let programs: BTreeSet<usize> = attends.map(|call| call.program).collect();
        let programs = programs.into_iter().map(|at| plan.programs[at].clone());
        programs.collect::<Vec<_>>()
    };
    for (name, n_layers) in [("gemma-3-1b", 6), ("gemma-3-4b", 6)] {
        for n_tokens in [64, 128, 2048] {
            let found = kernels(name, n_layers, n_tokens);
            // A window that no prompt fills is none.
            let n_programs = if n_tokens == 2048 { 2 } else { 1 };
            assert_eq!(found.len(), n_programs, "{name} {n_tokens}");
            let is_own = |p: &lower::PlannedProgram| {
                let launch = &p.launches[0];
                launch.kernel == "prompt-attention" && launch.shape.get("own") == Some(1)
            };
            assert!(found.iter().all(is_own), "{name} {n_tokens}");
            let launches = found
                .iter()
                .map(|p| program_of(p).unwrap().launches[0].clone());
            let launches: Vec<_> = launches.collect();
            assert!(
                resident::representatives(&launches)
                    .iter()
                    .all(|&first| first == 0)
            );
        }
    }
    let of_128 = kernels("llama-3.1-8b", 1, 2048);
    assert_eq!(of_128[0].launches[0].kernel, "prompt-attention");
    let narrow = kernels("llama-3.2-1b", 1, 2048);
    assert_eq!(narrow[0].launches[0].kernel, "flash-attention");
}

/// Mode fastflowlm attends as the Gemma 3 paper does in every pass: heads of all widths, with a window and without, one configuration of the array for
/// both; mode int4 in none.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn the_papers_prompts_have_keys_of_their_own() {
    let kernels = |plan: &Plan| -> BTreeSet<String> {
        let launches = plan.programs.iter().flat_map(|p| &p.launches);
        let attend = launches.filter(|launch| {
            launch.name.contains("attn") && launch.shape.get("head_dim").is_some()
        });
        let attend = attend.filter(|launch| launch.shape.get("n_queries").is_some());
        attend.map(|launch| launch.kernel.clone()).collect()
    };
    for name in ["gemma-3-1b", "gemma-3-4b", "llama-3.2-1b", "llama-3.1-8b"] {
        let graph = graph(name, Some(6));
        let lowered = |mode, attention, n_tokens| {
            let options = LowerOptions {
                attention,
                ..LowerOptions::new(mode, n_tokens)
            };
            prefill(&graph, options)
        };
        let cached = AttentionOn::Cached {
            n_keys: 4096,
            max_tokens: 8192,
        };
        for n_tokens in [64, 192, 2048] {
            for attention in [AttentionOn::Device, AttentionOn::Image, cached] {
                let plan = lowered(Mode::FastFlowLm, attention, n_tokens);
                let found = kernels(&plan);
                assert!(
                    found.iter().eq(["flow-qkv"]),
                    "{name} {n_tokens}: {found:?}"
                );
                assert!(on_host(&graph, &plan).iter().all(|h| h.0 != "attn"));
                let launches = plan
                    .programs
                    .iter()
                    .filter(|p| p.launches[0].kernel == "flow-qkv");
                let launches: Vec<_> = launches
                    .map(|p| program_of(p).unwrap().launches[0].clone())
                    .collect();
                let same = resident::representatives(&launches);
                // Over a cache, the walk with a window differs from the one without.
                assert!(
                    attention == cached || same.iter().all(|&first| first == 0),
                    "{name}"
                );
            }
        }
        let ours = lowered(Mode::Int4, AttentionOn::Device, 2048);
        assert!(!kernels(&ours).contains("flow-qkv"), "{name}");
    }
}

/// All launches of a program share one configuration of the array; the time that this saves.
#[test]
fn a_tokens_kernels_stand_side_by_side() {
    let (machine, profile) = (Machine::npu2(), Profile::builtin(Profile::DEFAULT).unwrap());
    let all = Features::of(Mode::Int4);
    for name in ["gemma-3-1b", "llama-3.2-1b", "gemma-tiny"] {
        let graph = graph(name, Some(3));
        let loads = |features: Features| -> f64 {
            let plan = plan_of(&graph, features);
            let of = |call: &lower::Call| -> f64 {
                let program = program_of(&plan.programs[call.program]).unwrap();
                verify(program, &machine).unwrap_or_else(|e| panic!("{name}: {e:?}"));
                let on = (&machine, &profile);
                timing::loads_ns(&program.launches, on)
                    .unwrap()
                    .iter()
                    .sum()
            };
            plan.calls().map(of).sum()
        };
        let (together, apart) = (loads(all), loads(all.without(Feature::Resident)));
        assert!(together < 0.1 * apart, "{name}: {together} {apart}");
        let plan = plan_of(&graph, all);
        for planned in &plan.programs {
            let launches = &program_of(planned).unwrap().launches;
            let others = &launches[1..];
            assert!(others.iter().all(|launch| launch.resident), "{name}");
            // Every core of a projection is that of all: its program differs in constants alone.
            let same = resident::representatives(launches);
            let products = (0..launches.len()).filter(|&at| launches[at].herds[0].cols > 1);
            let kinds: BTreeSet<usize> = products.map(|at| same[at]).collect();
            assert!(kinds.len() <= 1, "{name}: {kinds:?}");
            // They are where no other kernel is, as the verifier checks.
            let mut moved = program_of(planned).unwrap().clone();
            if let Some(launch) = moved.launches.iter_mut().find(|l| l.herds[0].cols == 1) {
                (launch.herds[0].col, launch.herds[0].row) = (0, 0);
                let core = |place: &mut Place| {
                    if let Place::Core { col, row } = place {
                        (*col, *row) = (
                            IndexRange::At(Affine::new(0)),
                            IndexRange::At(Affine::new(0)),
                        );
                    }
                };
                for channel in &mut launch.channels {
                    core(&mut channel.from);
                    core(&mut channel.to);
                }
                let refusals = verify(&moved, &machine).unwrap_err();
                assert!(
                    refusals.iter().any(|r| r.rule.code() == "XD104"),
                    "{refusals:?}"
                );
            }
        }
        let on = (&machine, &profile);
        let switch =
            |planned| timing::switch_ns(&program_of(planned).unwrap().launches, on).unwrap();
        assert!(plan.programs.iter().any(|planned| switch(planned) > 100e3));
    }
}
