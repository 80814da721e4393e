//! One rule cuts sequences into passes: what is compiled ahead of time by it is all that a session runs,
//! and what a prediction tells of a prompt is what the session did.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::ProgramCache;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{Features, Mode, NpuModel, NpuOptions, NpuSession};
use millrace_xdna2::compile::compile;
use millrace_xdna2::device::VirtualDevice;
use millrace_xdna2::lower::{Phase, Sequences};
use millrace_xdna2::predict::{self, Timer, Work};
use millrace_xdna2::{Machine, Profile};
use std::path::Path;
use std::sync::Arc;

/// More than the longest plan, so that a second chunk attends over the cache.
const N_PROMPT: usize = 2100;

const N_CTX: usize = 4000;

fn demo() -> Arc<LoadedModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf");
    Arc::new(LoadedModel::open(&path).unwrap())
}

fn compile_ahead(model: &LoadedModel, features: Features, dir: &Path) {
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let (machine, profile) = (Machine::npu2(), Profile::builtin(Profile::DEFAULT).unwrap());
    let device = Arc::new(VirtualDevice::new(machine.clone(), profile, cpu));
    let cache = ProgramCache::with_directory(device, dir).unwrap();
    let graph = &model.model().graph;
    let sequences = Sequences {
        graph,
        machine: &machine,
        features,
        n_ctx: N_CTX as u64,
    };
    for options in sequences.prefills(&[N_PROMPT as u64]) {
        compile(&cache, graph, &machine, Phase::Prefill, &options).unwrap();
    }
    for options in sequences.decodes() {
        compile(&cache, graph, &machine, Phase::Decode, &options).unwrap();
    }
    assert!(cache.stats().built > 0);
}

#[test]
fn sessions_run_what_was_compiled_and_predicted() {
    let model = demo();
    let features = Features::of(Mode::Best);
    let dir = tempfile::tempdir().unwrap();
    compile_ahead(&model, features, dir.path());
    let options = NpuOptions {
        features,
        n_ctx: Some(N_CTX),
        programs: Some(dir.path().to_owned()),
        ..NpuOptions::default()
    };
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    let npu = NpuModel::load(model.clone(), Machine::npu2(), profile.clone(), options);
    let npu = Arc::new(npu.unwrap_or_else(|error| panic!("{error}")));
    let mut session = NpuSession::new(&npu);
    let prompt: Vec<u32> = (0..N_PROMPT as u32).map(|i| i * 41 % 2048).collect();
    session.prefill(&prompt).unwrap();
    session.decode(7).unwrap();
    assert_eq!(npu.cache_stats().built, 0);

    let machine = Machine::npu2();
    let mut timer = Timer::new(&machine, &profile);
    let work = Work::new(features, N_PROMPT as u64);
    let predicted = predict::model(&model.model().graph, &mut timer, &work).unwrap();
    let (prefill, decode) = (&session.counters().prefill, &session.counters().decode);
    assert_eq!(prefill.n_passes, predicted.prefill.len() as u64);
    assert_eq!(prefill.n_passes, 2);
    let padded = predicted.prefill.iter().map(|pass| pass.chunk.n_padded);
    assert_eq!(prefill.n_padded_tokens, padded.sum::<u64>());
    let calls = predicted.prefill.iter().map(|pass| pass.totals.n_calls);
    assert_eq!(prefill.n_dispatches, calls.sum::<u64>());
    assert_eq!(decode.n_dispatches, predicted.token.totals.n_calls);
}
