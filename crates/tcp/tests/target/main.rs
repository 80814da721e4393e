//! Models on the virtual chip: every op by itself, verification, prices, several chips.
#![allow(clippy::unwrap_used)] // A test may panic.

mod appended;
mod blocks;
mod images;
mod prices;

use millrace_format::Source;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_npu::{Corruption, Injection, Role};
use millrace_plan::predict::{self, PromptWorkload};
use millrace_plan::{ClusterRequest, NodePlace, ProbeOf, Sequences, Settings, Target};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, LoadedModel, LogitsFor, StepOutput,
};
use millrace_tcp::target::TcpTarget;
use millrace_verify::ops::{CheckSummary, OpCheck};
use millrace_verify::verification::{Verdict, Verification, follow, judge, record};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn demo() -> Arc<LoadedModel> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    Arc::new(LoadedModel::open(&path).unwrap())
}

fn random(name: &str) -> Arc<LoadedModel> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(name);
    let options = SynthOptions {
        recipe: Recipe::parse("BF16").unwrap(),
        vocab: None,
        n_layers: Some(2),
        seed: 3,
        vision: false,
        n_threads: Some(2),
    };
    let go_on = &mut |_, _| ControlFlow::Continue(());
    synth::write(
        ModelGeometry::named(name).unwrap(),
        &folder,
        &options,
        go_on,
    )
    .unwrap();
    Arc::new(LoadedModel::open(&folder).unwrap())
}

fn settings(numerics: &str) -> Settings {
    Settings {
        numerics: Some(numerics.to_owned()),
        ..Settings::default()
    }
}

fn best(numerics: &str) -> Settings {
    Settings {
        mode: Some("best".to_owned()),
        ..settings(numerics)
    }
}

fn load(model: &Arc<LoadedModel>, settings: &Settings) -> Arc<NpuModel> {
    let planner = TcpTarget.planner(settings).unwrap();
    let options = NpuOptions {
        n_ctx: Some(300),
        n_threads: Some(2),
        ..NpuOptions::default()
    };
    Arc::new(NpuModel::load(model.clone(), planner, options).unwrap())
}

fn tokens(n: usize, n_vocab: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7919 + 13) % n_vocab) as u32).collect()
}

/// A prompt of so many tokens and one more.
fn checked(npu: &Arc<NpuModel>, n: usize) -> CheckSummary {
    let mut session = NpuSession::new(npu).unwrap();
    let (check, observer) = OpCheck::new(npu);
    session.observe(Some(observer));
    let n_vocab = npu.model().model().config.vocab_size;
    session.prefill(&tokens(n, n_vocab)).unwrap();
    session.decode(5).unwrap();
    check.summary().unwrap()
}

/// Tokens held and tokens streamed, in every number format, op by op and in blocks.
#[test]
fn every_op_is_right() {
    let model = demo();
    let n_nodes = model.model().graph.nodes.len() as u64;
    let plain = ["bf16", "fp8", "int4", "int8"].map(settings);
    let blocks = ["bf16", "int4", "int8"].map(best);
    for settings in plain.into_iter().chain(blocks) {
        let npu = load(&model, &settings);
        for n in [5, 40] {
            let found = checked(&npu, n);
            assert_eq!(found.finding, None, "{settings:?} {n}");
            assert_eq!(found.n_ops, 2 * n_nodes, "the chip takes every op");
            assert!(found.unchecked.is_empty(), "{found:?}");
            // A tolerance far above every error would let a fault pass.
            assert!(found.worst["attn_q"] > 0.3 && found.worst["attn"] > 0.1);
        }
    }
}

/// The chip also computes norms of heads and windows; the host computes the rest, with a reason.
#[test]
fn other_families_run_too() {
    for name in ["qwen-tiny", "gemma-tiny", "llama-tiny"] {
        let model = random(name);
        let npu = load(&model, &Settings::default());
        let found = checked(&npu, 7);
        assert_eq!(found.finding, None, "{name}");
        assert!(found.unchecked.is_empty(), "{name} {found:?}");
        let kind = npu.sequences().decode(7);
        let plan = npu.planner().lower(&model.model().graph, &kind).unwrap();
        let host = plan.placement.iter().filter(|p| p.place == NodePlace::Host);
        assert!(host.clone().all(|p| !p.reason.is_empty()));
        assert_eq!(host.count() > 0, name == "gemma-tiny", "{name}");
    }
}

/// The check is itself checked: each program of a prompt, with a wrong output or input.
#[test]
fn a_wrong_chip_is_found() {
    let (by_op, by_block) = (
        wrong_slots(&Settings::default()),
        wrong_slots(&best("bf16")),
    );
    assert!(by_op > 40 && by_block > 40, "{by_op} {by_block}");
}

/// Number of slots that were corrupted, each of them found.
fn wrong_slots(settings: &Settings) -> usize {
    let model = demo();
    let npu = load(&model, settings);
    let kind = npu.sequences().prefill(npu.lengths().next(0, 5));
    // Slots within a block are corrupted too.
    let observed = npu.planner().observed();
    let planner = observed.as_deref().unwrap_or(&**npu.planner());
    let plan = planner.lower(&model.model().graph, &kind).unwrap();
    let injector = npu.device().injector().unwrap();
    let mut n = 0;
    for planned in &plan.programs {
        for slot in planned.slots() {
            // Half of a mask's addend has the same effect, and rows of caches may not be read.
            let is_subtle = slot.name.ends_with("mask") || slot.name.ends_with("cache");
            if is_subtle || slot.role == Role::Intermediate {
                continue;
            }
            let (program, slot) = (planned.name().to_owned(), slot.name.clone());
            injector.inject(Injection::Corrupt {
                program: program.clone(),
                slot: slot.clone(),
                how: Corruption::Some,
            });
            let mut session = NpuSession::new(&npu).unwrap();
            let (check, observer) = OpCheck::new(&npu);
            session.observe(Some(observer));
            // The tokens differ from earlier ones, whose rows may still be in the cache. An invalid one may end the
            // pass before it is checked.
            let ran = session.prefill(&tokens(5 + n, 500)[n..]).is_ok();
            injector.clear();
            let finding = check.summary().unwrap().finding;
            let right = finding.map(|finding| finding.program == program);
            assert!(!ran || right == Some(true), "{program} {slot}: {right:?}");
            n += 1;
        }
    }
    n
}

/// Verdict of verification on a device that holds the demo.
fn verdict(model: &Arc<LoadedModel>, npu: &Arc<NpuModel>) -> Verdict {
    let options = EngineOptions {
        n_ctx: Some(300),
        kv_type: KvType::F32,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(model.clone(), options).unwrap();
    let cpu = Cpu::new(CpuOptions {
        n_threads: Some(2),
        level: None,
    });
    let cpu = cpu.unwrap();
    let verification = Verification::new(&cpu, npu).unwrap();
    let (mut device, mut rounding) = (Vec::new(), Vec::new());
    for n in [9, 40] {
        let continuation = record(&mut engine, &tokens(n, 500), 8, &|_| false).unwrap();
        let baseline = verification.baseline(continuation).unwrap();
        let mut session = NpuSession::new(npu).unwrap();
        follow(&mut session, &baseline, &mut |step| {
            device.push(step);
            true
        })
        .unwrap();
        rounding.extend_from_slice(baseline.rounding());
    }
    judge(&device, &rounding)
}

#[test]
fn verification_passes() {
    let model = demo();
    for settings in ["bf16", "fp8", "int8"]
        .iter()
        .flat_map(|n| [settings(n), best(n)])
    {
        let verdict = verdict(&model, &load(&model, &settings));
        assert!(verdict.passes(), "{settings:?}: {verdict:#?}");
    }
}

/// In int8 the chip takes every op of a large model too.
#[test]
fn int8_takes_large_models() {
    let geometry = ModelGeometry::named("llama-3.1-8b").unwrap();
    let recipe = Recipe::parse("bf16").unwrap();
    let model = Model::without_weights(geometry, None, recipe, Source::HuggingFace).unwrap();
    for settings in [settings("int8"), best("int8")] {
        let planner = TcpTarget.planner(&settings).unwrap();
        let mut pricer = planner.pricer().unwrap();
        let work = PromptWorkload::new(512);
        let found = predict::model(&model.graph, &*planner, &mut *pricer, &work);
        let found = found.unwrap();
        let (token, prompt) = (found.token.totals.total_ns, found.ttft_ns);
        println!(
            "{} {:.1} ms, {:.0} ms",
            planner.mode(),
            token * 1e-6,
            prompt * 1e-6
        );
        assert!(token < 12e6 && prompt < 100e6, "{token} {prompt}");
        let sequences = Sequences {
            graph: &model.graph,
            planner: &*planner,
            n_ctx: 1024,
        };
        for kind in [sequences.decode(512), sequences.prefills(&[512])[0]] {
            let plan = planner.lower(&model.graph, &kind).unwrap();
            let host = plan.placement.iter().filter(|p| p.place == NodePlace::Host);
            assert_eq!(host.map(|p| &p.reason).next(), None);
        }
    }
}

/// Noise of each number format in the demo's logits, against the CPU's in f32, as in the document.
#[test]
fn formats_have_their_noise() {
    let model = demo();
    let options = EngineOptions {
        n_ctx: Some(300),
        kv_type: KvType::F32,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(model.clone(), options).unwrap();
    let prompt = tokens(96, 500);
    let (seq, mut exact) = (engine.create().unwrap(), StepOutput::default());
    let item = BatchItem::new(seq, &prompt, LogitsFor::All);
    engine.step(&[item], &mut exact).unwrap();
    let exact = exact.logits(0);
    let snr = |numerics: &str| {
        let npu = load(&model, &best(numerics));
        let mut session = NpuSession::new(&npu).unwrap();
        let found = session.prefill_all(&prompt).unwrap();
        assert_eq!(found.len(), exact.len());
        let square = |x: f32| f64::from(x).powi(2);
        let signal: f64 = exact.iter().map(|x| square(*x)).sum();
        let noise: f64 = exact.iter().zip(found).map(|(x, y)| square(x - y)).sum();
        10.0 * (signal / noise).log10()
    };
    let all = ["bf16", "int8", "fp8", "int4"].map(|numerics| (numerics, snr(numerics)));
    println!("{all:?}");
    assert!(all.windows(2).all(|pair| pair[0].1 > pair[1].1), "{all:?}");
    let said = all
        .map(|(numerics, snr)| format!("{snr:.0} dB in {numerics}"))
        .join(", ");
    assert!(document().contains(&said), "docs/tcp.md lacks: {said}");
}

fn document() -> String {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tcp.md");
    std::fs::read_to_string(document).unwrap()
}

#[test]
fn chips_share_a_model_or_say_why_not() {
    let config = millrace_tcp::walk::llama_3_1_70b();
    let fp8 = settings("fp8");
    let cost = |n_devices, parallel| {
        let request = ClusterRequest {
            config: &config,
            settings: &fp8,
            n_devices,
            parallel,
            work: PromptWorkload::new(512),
        };
        TcpTarget.cluster().unwrap().cost(&request)
    };
    let pipeline = cost(4, "pp").unwrap();
    let tensor = cost(4, "tp").unwrap();
    assert!((60e6..80e6).contains(&pipeline.token_ns), "{pipeline:?}");
    assert!(tensor.token_ns < pipeline.token_ns / 3.0);
    assert!(tensor.token_ns > tensor.token_roof_ns && pipeline.token_ns > pipeline.token_roof_ns);
    for (n, how, problem) in [
        (1, "pp", "the weights take 7"),
        (3, "tp", "a multiple of the 3 chips"),
        (100, "pp", "100 chips; a device has 1 to"),
        (2, "zz", "no parallel `zz`"),
    ] {
        let error = cost(n, how).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn settings_are_refused_by_name() {
    let refused = |set: &str, problem: &str| {
        let settings = Settings {
            set: vec![set.to_owned()],
            ..Settings::default()
        };
        let error = TcpTarget.planner(&settings).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    };
    refused("dm_byte=1", "did you mean `dm_bytes`?");
    refused(
        "dm_bytes=x",
        "`dm_bytes` = \"x\": expected a whole number from 1024 to 1000000000 bytes",
    );
    refused("dm_bytes=0", "`dm_bytes` = 0: expected");
    refused("profile.hbm_efficiency=2", "expected");
    let slower = Settings {
        set: vec![
            "profile.hbm_efficiency=0.5".to_owned(),
            "lanes=4".to_owned(),
        ],
        ..Settings::default()
    };
    let plain = TcpTarget.planner(&Settings::default()).unwrap();
    let changed = TcpTarget.planner(&slower).unwrap();
    assert_ne!(plain.identity(), changed.identity());
    assert!(changed.machine().attained_bytes_per_s < plain.machine().attained_bytes_per_s);
}

/// A correct chip passes every step; each fault shows in its step, and the later steps are skipped.
#[test]
fn a_probe_finds_what_is_wrong() {
    let prober = TcpTarget.prober().unwrap();
    let settings = Settings::default();
    let probe = |of: ProbeOf| prober.probe(&settings, &of).unwrap();
    let alive = probe(ProbeOf::Virtual(None));
    assert!(
        alive.failure().is_none() && alive.steps.len() == 5,
        "{alive:?}"
    );
    assert!(alive.figures[0].value > 0.0 && alive.provenance.is_some());
    let faults: Vec<String> = prober.faults().iter().map(|f| f.name.clone()).collect();
    let steps = ["memory", "load", "run", "run", "compare"];
    assert_eq!(faults.len(), steps.len());
    for (fault, step) in faults.into_iter().zip(steps) {
        let report = probe(ProbeOf::Virtual(Some(fault.clone())));
        let failed = report.failure().map(|failed| failed.name.as_str());
        assert_eq!(failed, Some(step), "{fault}: {report:?}");
        assert_eq!(report.steps.len(), 5);
    }
    let unknown = ProbeOf::Virtual(Some("nothing".to_owned()));
    let refused = prober.probe(&settings, &unknown).unwrap_err().to_string();
    assert!(refused.contains("not-pinned"), "{refused}");
    let hardware = probe(ProbeOf::Hardware);
    let advice = hardware.failure().and_then(|step| step.advice.clone());
    assert!(advice.unwrap().contains("--virtual"));
}
