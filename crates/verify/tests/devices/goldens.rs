//! Every family on devices: the fixtures of `testdata/goldens`, whose sizes are tiny and whose peculiarities are all switched on. Each
//! fixture's folder is on one of four (device, mode), in turn: its probabilities are judged, and each of its ops is computed again. With
//! `MILLRACE_TEST_ALL=1` each is on all, and from GGUF too.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_plan::{NodePlace, Settings, Target};
use millrace_rk3588::target::Rk3588Target;
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_runtime::{CpuEngine, EngineOptions, KvType, Level, LoadedModel};
use millrace_tcp::target::TcpTarget;
use millrace_testkit::golden::Golden;
use millrace_testkit::sample;
use millrace_verify::ops::OpCheck;
use millrace_verify::verification::{Verification, follow, judge, record};
use millrace_xdna2::target::Xdna2Target;
use std::path::Path;
use std::sync::Arc;

/// Tokens after each prompt.
const N_STEPS: usize = 16;

/// Tokens that a pass takes of a prompt.
const CHUNK: u64 = 64;

/// Lengths of prompts: one is cut into two passes. Fewer prompts or tokens would fail a correct device by chance.
const PROMPTS: [usize; 8] = [9, 13, 18, 24, 31, 47, 63, 81];

/// Threads of a device and of the CPU beside it. The test harness keeps the cores busy, so more threads would only wait for
/// each other. Other tests compare numbers of threads.
pub(crate) const N_THREADS: usize = 1;

/// Statistics of few steps, by which a correct device in 8 bits may fail by chance. Logits of tiny random models are so
/// close that the five likeliest are within 8 bits' rounding. Of 120 steps, six make the 95th percentile.
const TAILS: [&str; 2] = ["95th percentile of KL", "choices beyond the first five"];

pub(crate) fn cpu() -> Cpu {
    let options = CpuOptions {
        n_threads: Some(N_THREADS),
        level: Some(Level::detect_exact()),
    };
    Cpu::new(options).unwrap()
}

pub(crate) fn load(
    model: &Arc<LoadedModel>,
    target: &dyn Target,
    mode: Option<&str>,
) -> Result<NpuModel, String> {
    let settings = Settings {
        mode: mode.map(str::to_owned),
        ..Settings::default()
    };
    let planner = target
        .planner(&settings)
        .map_err(|error| error.to_string())?;
    let options = NpuOptions {
        n_ctx: Some(128),
        n_threads: Some(N_THREADS),
        prefill_tokens: Some(CHUNK),
        ..NpuOptions::default()
    };
    NpuModel::load(model.clone(), planner, options).map_err(|error| error.to_string())
}

pub(crate) fn tokens(n: usize, salt: usize, vocab_size: usize) -> Vec<u32> {
    let token = |i: usize| ((i * 41 + salt * 97 + 5) % vocab_size) as u32;
    (0..n).map(token).collect()
}

/// Fault of a model's probabilities on a device or of its ops, if any.
pub(crate) fn problem(
    model: &Arc<LoadedModel>,
    npu: NpuModel,
    tolerated: &[&str],
) -> Option<String> {
    let npu = Arc::new(npu);
    wrong_probabilities(model, &npu, tolerated).or_else(|| wrong_op(model, &npu))
}

/// The first statistic beyond its bound.
fn wrong_probabilities(
    model: &Arc<LoadedModel>,
    npu: &Arc<NpuModel>,
    tolerated: &[&str],
) -> Option<String> {
    let cpu = cpu();
    let options = EngineOptions {
        n_ctx: Some(128),
        kv_type: KvType::F32,
        level: Some(Level::detect_exact()),
        n_threads: Some(N_THREADS),
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(model.clone(), options).unwrap();
    let verification = Verification::new(&cpu, npu).unwrap();
    let mut session = NpuSession::new(npu).unwrap();
    let (mut found, mut rounding) = (Vec::new(), Vec::new());
    let vocab_size = model.model().config.vocab_size;
    for (salt, n) in PROMPTS.into_iter().enumerate() {
        let prompt = tokens(n, salt, vocab_size);
        let continuation = record(&mut engine, &prompt, N_STEPS, &|_| false).unwrap();
        let baseline = verification.baseline(continuation).unwrap();
        let ran = follow(&mut session, &baseline, &mut |step| {
            found.push(step);
            true
        });
        if let Err(error) = ran {
            return Some(error.to_string());
        }
        rounding.extend(baseline.rounding());
    }
    let verdict = judge(&found, &rounding);
    let mut failures = verdict.statistics.iter().filter(|s| !s.passes());
    let failure = failures.find(|s| !tolerated.contains(&s.name));
    failure.map(|statistic| format!("{statistic:?}"))
}

/// The first op of a prompt, of a token, and of a prompt with the logits of all its tokens, that differs from its definition.
pub(crate) fn wrong_op(model: &Arc<LoadedModel>, npu: &Arc<NpuModel>) -> Option<String> {
    let vocab_size = model.model().config.vocab_size;
    let mut session = NpuSession::new(npu).unwrap();
    let (check, observer) = OpCheck::new(npu);
    session.observe(Some(observer));
    session.prefill(&tokens(19, 7, vocab_size)).unwrap();
    session.decode(7).unwrap();
    session.truncate(0).unwrap();
    let prompt = tokens(5, 8, vocab_size);
    match session.prefill_all(&prompt) {
        Ok(logits) => assert_eq!(logits.len(), prompt.len() * vocab_size),
        Err(error) => return Some(format!("logits of all: {error}")),
    }
    let summary = check.summary().unwrap();
    let is_checked = summary.unchecked.is_empty();
    match summary.finding {
        None if is_checked => None,
        None => Some(format!("not checked: {:?}", summary.unchecked)),
        Some(finding) => Some(format!("{finding:?}")),
    }
}

/// Ops on the device, and all.
fn placed(npu: &NpuModel) -> (usize, usize) {
    let plan = npu.plan(0, &npu.sequences().decode(0)).unwrap();
    let on_device = |p: &&millrace_plan::Placement| matches!(p.place, NodePlace::Device(_));
    (
        plan.placement.iter().filter(on_device).count(),
        plan.placement.len(),
    )
}

/// Devices that the tests below take, by the order in which fixtures are judged on them.
const N_DEVICES: usize = 4;

fn every_golden(target: &dyn Target, (turn, mode): (usize, Option<&str>), tolerated: &[&str]) {
    let only = std::env::var("MILLRACE_GOLDEN").ok();
    let mut wrong = Vec::new();
    for (i, golden) in Golden::all().into_iter().enumerate() {
        let is_judged = sample::takes(i, N_DEVICES, turn);
        let is_meant = |only: &String| golden.name.starts_with(only);
        if !only.as_ref().map_or(is_judged, is_meant) {
            continue;
        }
        // Both files of a fixture hold the same model, as the CPU's tests check: one is enough here.
        let gguf = golden.gguf().filter(|_| sample::is_whole());
        for path in std::iter::once(golden.hf()).chain(gguf.as_deref()) {
            let start = std::time::Instant::now();
            let model = match LoadedModel::open(path) {
                Ok(model) => Arc::new(model),
                Err(error) => {
                    wrong.push(format!("{}: {error}", golden.name));
                    continue;
                }
            };
            let what = format!(
                "{} {}",
                golden.name,
                if path.is_file() { "gguf" } else { "hf" }
            );
            let (placed, problem) = match load(&model, target, mode) {
                Ok(npu) if is_judged => (placed(&npu), problem(&model, npu, tolerated)),
                Ok(npu) => (placed(&npu), wrong_op(&model, &Arc::new(npu))),
                Err(error) => ((0, 0), Some(error)),
            };
            let seconds = start.elapsed().as_secs_f64();
            let said = problem.as_deref().unwrap_or("passes");
            println!(
                "{what} on {} {}: {} of {} ops, {seconds:.1} s: {said}",
                target.name(),
                mode.unwrap_or(""),
                placed.0,
                placed.1
            );
            wrong.extend(problem.map(|problem| format!("{what}: {problem}")));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} on {} {mode:?}: {wrong:#?}",
        wrong.len(),
        target.name()
    );
}

pub(crate) fn open(path: &Path) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn every_family_on_xdna2() {
    every_golden(&Xdna2Target, (0, None), &[]);
}

#[test]
fn every_family_on_xdna2_in_int8() {
    every_golden(&Xdna2Target, (1, Some("int8")), &TAILS);
}

#[test]
fn every_family_on_rk3588() {
    every_golden(&Rk3588Target, (2, None), &TAILS);
}

#[test]
fn every_family_on_tcp() {
    every_golden(&TcpTarget, (3, None), &[]);
}
