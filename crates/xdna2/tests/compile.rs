//! Plans through the cache: the plan that is read back equals the lowered one.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_format::Source;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_npu::ProgramCache;
use millrace_plan::{PassKind, Plan, PlannedProgram, compile};
use millrace_xdna2::lower::{Features, Mode};
use millrace_xdna2::target::Xdna2;
use millrace_xdna2_machine::device::virtual_device;
use millrace_xdna2_machine::{Machine, Profile, Program};
use std::path::Path;
use std::sync::Arc;

fn cache(dir: &Path) -> ProgramCache {
    let cpu = Cpu::new(CpuOptions {
        n_threads: Some(1),
        level: None,
    });
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let device = virtual_device(Machine::npu2(), profile, cpu.unwrap());
    ProgramCache::with_directory(Arc::new(device), dir).unwrap()
}

fn planner(mode: Mode) -> Xdna2 {
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    Xdna2::new(Machine::npu2(), profile, Features::of(mode))
}

fn model(name: &str) -> Model {
    let geometry = ModelGeometry::named(name).unwrap();
    let recipe = Recipe::parse("BF16").unwrap();
    Model::without_weights(geometry, None, recipe, Source::Gguf).unwrap()
}

#[test]
fn what_is_read_back_is_what_was_lowered() {
    let dir = std::env::temp_dir().join(format!("millrace-compile-{}", std::process::id()));
    for name in ["llama-tiny", "qwen-tiny", "gemma-tiny", "llama-3.2-1b"] {
        let graph = model(name).graph;
        for mode in [Mode::Fast, Mode::MlirAir] {
            for kind in [PassKind::prefill(256), PassKind::decode()] {
                let make = || {
                    let cache = cache(&dir);
                    let made = compile(&cache, &planner(mode), &graph, &kind);
                    (made.unwrap(), cache.stats())
                };
                let (first, built) = make();
                let (again, read) = make();
                assert!(first.lowered && !again.lowered, "{name} {mode:?} {kind:?}");
                assert!(built.built > 0 && read.built == 0);
                assert_eq!(first.plan, again.plan);
                let annexed = |p: &PlannedProgram| p.annex.get::<Program>().cloned();
                let of = |plan: &Plan| -> Vec<_> { plan.programs.iter().map(annexed).collect() };
                assert_eq!(of(&first.plan), of(&again.plan));
                assert!(of(&again.plan).iter().all(Option::is_some));
                assert_eq!(again.plan.check(&graph), Ok(()));
                // One artifact gone: the plan is made again, and so is the missing artifact.
                let hash = first.plan.programs[0].container.content_hash();
                std::fs::remove_file(dir.join(format!("{hash}.npu"))).unwrap();
                let (remade, _) = make();
                assert!(remade.lowered && remade.plan == first.plan);
                assert!(!make().0.lowered);
            }
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// An index that leads nowhere is refused, not followed.
#[test]
fn plans_that_do_not_fit_their_graph_are_told() {
    let graph = model("llama-tiny").graph;
    let dir = std::env::temp_dir().join(format!("millrace-plans-{}", std::process::id()));
    let kind = PassKind::prefill(64);
    let made = compile(&cache(&dir), &planner(Mode::Fast), &graph, &kind);
    std::fs::remove_dir_all(dir).unwrap();
    let plan = made.unwrap().plan;
    assert_eq!(plan.check(&graph), Ok(()));
    let mut fewer = graph.clone();
    fewer.weights.truncate(3);
    assert!(plan.check(&fewer).is_err());
    let mut fewer = graph.clone();
    fewer.nodes.truncate(3);
    assert!(plan.check(&fewer).is_err());
    let mut without = plan.clone();
    without.programs.pop();
    assert!(without.check(&graph).is_err());
}
