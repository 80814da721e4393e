//! One rule cuts sequences into passes: a session runs exactly the plans compiled ahead of time by it,
//! and the prediction for a prompt equals the session's work.

use crate::support::{demo, device, load, planner};
use millrace_npu::ProgramCache;
use millrace_plan::predict::{self, PromptWorkload};
use millrace_plan::{Planner, Sequences, compile};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuOptions, NpuSession};
use millrace_xdna2::lower::{Features, Mode};
use millrace_xdna2::target::Xdna2;
use std::path::Path;

/// More than the longest plan, so that a second chunk attends over the cache.
const N_PROMPT: usize = 2100;

const N_CTX: usize = 4000;

fn compile_ahead(model: &LoadedModel, planner: &Xdna2, dir: &Path) {
    let cache = ProgramCache::with_directory(device(), dir).unwrap();
    let graph = &model.model().graph;
    let sequences = Sequences {
        graph,
        planner,
        n_ctx: N_CTX as u64,
    };
    let mut kinds = sequences.prefills(&[N_PROMPT as u64]);
    kinds.extend(sequences.decodes());
    for kind in kinds {
        compile(&cache, planner, graph, &kind).unwrap();
    }
    assert!(cache.stats().built > 0);
}

#[test]
fn sessions_run_what_was_compiled_and_predicted() {
    let model = demo();
    let features = Features::of(Mode::Fast);
    let planner = planner(features);
    let dir = tempfile::tempdir().unwrap();
    compile_ahead(&model, &planner, dir.path());
    let options = NpuOptions {
        n_ctx: Some(N_CTX),
        programs: Some(dir.path().to_owned()),
        ..NpuOptions::default()
    };
    let npu = load(&model, features, options);
    let mut session = NpuSession::new(&npu).unwrap();
    let prompt: Vec<u32> = (0..N_PROMPT as u32).map(|i| i * 41 % 2048).collect();
    session.prefill(&prompt).unwrap();
    session.decode(7).unwrap();
    assert_eq!(npu.cache_stats().built, 0);

    let mut pricer = planner.pricer().unwrap();
    let work = PromptWorkload::new(N_PROMPT as u64);
    let graph = &model.model().graph;
    let predicted = predict::model(graph, &*planner, &mut *pricer, &work).unwrap();
    let (prefill, decode) = (&session.counters().prefill, &session.counters().decode);
    assert_eq!(prefill.n_passes, predicted.prefill.len() as u64);
    assert_eq!(prefill.n_passes, 2);
    let padded = predicted.prefill.iter().map(|pass| pass.chunk.n_padded);
    assert_eq!(prefill.n_padded_tokens, padded.sum::<u64>());
    let calls = predicted.prefill.iter().map(|pass| pass.totals.n_calls);
    assert_eq!(prefill.n_dispatches, calls.sum::<u64>());
    assert_eq!(decode.n_dispatches, predicted.token.totals.n_calls);
}
