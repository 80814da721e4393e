//! Attention's products on the NPU. Their numbers equal those of the host's attention, for any sequence and any way to
//! cut it. Every mistake in them is found.

use crate::model::biases::{Changed, on_board, tokens, verified};
use crate::model::planner;
use millrace_format::Source;
use millrace_graph::{Graph, Op};
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_npu::{Corruption, Inject, Injection};
use millrace_plan::predict::{self, PromptWorkload};
use millrace_plan::{
    AttentionOn, AttentionPart, Binding, HostStep, NodePlace, PassKind, Planner, Settings, Step,
    Target,
};
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::target::Rk3588Target;
use millrace_rk3588::{Machine, RkDevice};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession, PlannedEngine};
use millrace_runtime::{
    BatchItem, Engine, ItemRows, LoadedModel, LogitsFor, SeqId, StepShape, StepSink,
};
use millrace_testkit::golden::Golden;
use millrace_verify::ops::{CheckSummary, Mismatch, OpCheck};
use std::path::Path;
use std::sync::Arc;

/// All products are in fp16, so that the two differ in nothing but attention.
fn by(attention: &str) -> Arc<dyn Planner> {
    let settings = Settings {
        numerics: Some("fp16".to_owned()),
        set: vec![format!("attention={attention}")],
        ..Settings::default()
    };
    Rk3588Target.planner(&settings).unwrap()
}

/// With windows of 13 and 17 tokens, eight query heads that share a key-value head, two key-value heads.
const GOLDENS: [&str; 4] = ["gemma3-pattern", "mistral-window", "llama-gqa8", "qwen3"];

fn golden(name: &str) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named(name).hf()).unwrap())
}

/// In chunks of 16 tokens.
fn in_chunks(model: &Arc<LoadedModel>, attention: &str) -> Arc<NpuModel> {
    let options = NpuOptions {
        n_threads: Some(2),
        prefill_tokens: Some(16),
        max_sequences: 3,
        ..NpuOptions::default()
    };
    Arc::new(NpuModel::load(model.clone(), by(attention), options).unwrap())
}

/// Result of the check of ops from 40 tokens in chunks to beyond the 64th, where the bucket of keys changes.
fn checked(npu: &Arc<NpuModel>) -> CheckSummary {
    let (check, observer) = OpCheck::new(npu);
    let mut session = NpuSession::new(npu).unwrap();
    session.observe(Some(observer));
    session.prefill(&tokens(62, 1)).unwrap();
    for token in tokens(4, 2) {
        session.decode(token).unwrap();
    }
    check.summary().unwrap()
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    let largest = expected
        .iter()
        .fold(0.0, |largest: f32, x| largest.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let off = (found - expected).abs();
        assert!(
            off <= 0.03 * largest,
            "{what}: {found} for {expected}, of {largest}"
        );
    }
}

#[test]
fn it_is_the_hosts_attention_in_every_chunk_and_bucket() {
    for name in GOLDENS {
        let model = golden(name);
        let [on_npu, on_host] = ["npu", "host"].map(|by| in_chunks(&model, by));
        let found = checked(&on_npu);
        assert_eq!(found.finding, None, "{name}");
        assert!(found.unchecked.is_empty(), "{:?}", found.unchecked);
        assert!(found.worst["attn"] > 0.0, "{:?}", found.worst);
        let [mut a, mut b] = [&on_npu, &on_host].map(|npu| NpuSession::new(npu).unwrap());
        let prompt = tokens(62, 1);
        let prompts = (a.prefill(&prompt).unwrap(), b.prefill(&prompt).unwrap());
        assert_near(prompts.0, prompts.1, name);
        for token in tokens(4, 2) {
            let logits = (a.decode(token).unwrap(), b.decode(token).unwrap());
            assert_near(logits.0, logits.1, name);
        }
    }
}

#[test]
fn it_passes_verification() {
    for name in ["gemma3-pattern", "qwen2", "qwen3"] {
        let verdict = verified(&on_board(&golden(name), by("npu")));
        assert!(verdict.passes(), "{name}: {verdict:#?}");
    }
}

/// Logits of a step, by item.
#[derive(Default)]
struct Logits(Vec<Vec<f32>>);

impl StepSink for Logits {
    fn begin(&mut self, shape: StepShape) {
        self.0 = vec![Vec::new(); shape.n_items];
    }

    fn logits(&mut self, rows: ItemRows<'_>) {
        self.0[rows.item].extend_from_slice(rows.data);
    }
}

fn step(engine: &mut PlannedEngine, items: &[(SeqId, &[u32])]) -> Vec<Vec<f32>> {
    let batch: Vec<BatchItem<'_>> = items
        .iter()
        .map(|(seq, tokens)| BatchItem::new(*seq, tokens, LogitsFor::Last))
        .collect();
    let mut logits = Logits::default();
    engine.step(&batch, &mut logits).unwrap();
    logits.0
}

/// A sequence by itself, in the same steps, on a board that never saw another.
fn alone(model: &Arc<LoadedModel>, by: &str, steps: &[&[u32]]) -> Vec<f32> {
    let mut engine = PlannedEngine::new(&in_chunks(model, by)).unwrap();
    let seq = engine.create().unwrap();
    let mut last = Vec::new();
    for tokens in steps {
        last = step(&mut engine, &[(seq, tokens)]).remove(0);
    }
    last
}

/// Keys in every pass are the sequence's own: after a fork, after a cut, and beside others of other lengths.
#[test]
fn sequences_share_nothing_that_shows() {
    for name in ["gemma3-pattern", "qwen3"] {
        let model = golden(name);
        let mut engine = PlannedEngine::new(&in_chunks(&model, "npu")).unwrap();
        let is_alone = |found: &[f32], steps: &[&[u32]]| {
            assert_eq!(found, alone(&model, "npu", steps), "{name}");
            assert_near(found, &alone(&model, "host", steps), name);
        };
        let (long, short) = (tokens(50, 3), tokens(9, 4));
        let a = engine.create().unwrap();
        step(&mut engine, &[(a, &long)]);
        let fork = engine.fork(a).unwrap();
        let b = engine.create().unwrap();
        // Within a batch, lengths and buckets differ, as do tokens after the same prompt.
        let mixed = step(&mut engine, &[(a, &[7]), (b, &short), (fork, &[8, 9])]);
        is_alone(&mixed[0], &[&long, &[7]]);
        is_alone(&mixed[1], &[&short]);
        is_alone(&mixed[2], &[&long, &[8, 9]]);
        // Other tokens in place of those that were cut off.
        engine.truncate(a, 45).unwrap();
        let again = step(&mut engine, &[(b, &[3]), (a, &[11, 12, 13])]);
        is_alone(&again[0], &[&short, &[3]]);
        is_alone(&again[1], &[&long[..45], &[11, 12, 13]]);
    }
}

/// A bucket that does not hold a sequence's keys is an error, not fewer keys.
#[test]
fn a_bucket_too_small_is_refused() {
    let planner = Changed(by("npu"), |step: &mut Step| match step {
        Step::Call(call) => {
            for binding in &mut call.bindings {
                if let Binding::AttentionProduct { n_keys, .. } = binding {
                    *n_keys = 64;
                }
            }
        }
        Step::Host(HostStep::Softmax { n_keys, .. }) => *n_keys = 64,
        Step::Host(_) => {}
    });
    let npu = on_board(&golden("qwen3"), Arc::new(planner));
    let mut session = NpuSession::new(&npu).unwrap();
    session.prefill(&tokens(64, 1)).unwrap();
    let error = session.decode(7).unwrap_err().to_string();
    assert!(error.contains("65 keys for a product of 64"), "{error}");
}

/// The check of ops finds a board that is wrong in any slot of the two products.
#[test]
fn wrong_products_are_found() {
    let board = Board::new(BoardOptions::default());
    let device = Arc::new(RkDevice::with_host(&board, Machine::rk3588(), 3).unwrap());
    let options = NpuOptions {
        n_threads: Some(2),
        ..NpuOptions::default()
    };
    let npu = NpuModel::on(golden("qwen3"), by("npu"), device.clone(), options);
    let npu = Arc::new(npu.unwrap());
    let graph = &npu.model().model().graph;
    let kind = npu.sequences().decode(5);
    let plan = npu.planner().lower(graph, &kind).unwrap();
    let programs = plan
        .programs
        .iter()
        .map(|program| program.name().to_owned());
    let programs: Vec<String> = programs
        .filter(|name| name.starts_with("attention"))
        .collect();
    assert_eq!(programs.len(), 2);
    let look = || {
        let (check, observer) = OpCheck::new(&npu);
        let mut session = NpuSession::new(&npu).unwrap();
        session.prefill(&tokens(20, 1)).unwrap();
        session.observe(Some(observer));
        let ended = session.decode(7).map(|_| ());
        (check.summary().unwrap().finding, ended)
    };
    assert_eq!(look().0, None);
    for program in &programs {
        for slot in ["a", "b", "c"] {
            for how in Corruption::WHOLE {
                device.clear();
                device.inject(Injection::Corrupt {
                    program: program.clone(),
                    slot: slot.to_owned(),
                    how,
                });
                let (finding, ended) = look();
                let changed = device.corrupted().n_changed;
                device.clear();
                let found = finding.is_some_and(|finding| finding.op == Some("attn"));
                assert!(
                    found || ended.is_err() || changed == 0,
                    "{program} {slot} {how:?}"
                );
            }
        }
    }
}

/// Plans that put another head's keys, values or queries where they belong.
#[test]
fn mistaken_plans_are_found() {
    let model = golden("qwen3");
    let found = |change: fn(&mut Step)| {
        let planner = Changed(by("npu"), change);
        checked(&on_board(&model, Arc::new(planner)))
    };
    assert_eq!(found(|_| {}).finding, None);
    fn to_head(step: &mut Step, is_it: fn(AttentionPart) -> bool) {
        let Step::Call(call) = step else { return };
        for binding in &mut call.bindings {
            if let Binding::AttentionProduct { of, kv_head, .. } = binding
                && is_it(*of)
            {
                *kv_head = 0;
            }
        }
    }
    let of_keys = |step: &mut Step| to_head(step, |of| of == AttentionPart::Keys);
    let of_values = |step: &mut Step| to_head(step, |of| of == AttentionPart::Values);
    for (change, slot) in [
        (of_keys as fn(&mut Step), "b"),
        (of_values, "b"),
        (
            |step| to_head(step, |of| matches!(of, AttentionPart::Sums(_))),
            "c",
        ),
    ] {
        let finding = found(change).finding.unwrap();
        assert!(
            matches!(finding.what, Mismatch::Value { .. }),
            "{finding:?}"
        );
        assert_eq!((finding.op, &*finding.slot_name), (Some("attn"), slot));
    }
}

/// A stored plan may name only heads and values of its own node.
#[test]
fn stored_plans_are_looked_at() {
    let model = golden("qwen3");
    let graph = &model.model().graph;
    let kind = PassKind::decode().with_attention(AttentionOn::Cached {
        n_keys: 64,
        max_tokens: 64,
    });
    let plan = by("npu").lower(graph, &kind).unwrap();
    plan.check(graph).unwrap();
    let changes: [fn(&mut Binding); 3] = [
        |binding| {
            if let Binding::AttentionProduct { kv_head, .. } = binding {
                *kv_head += 2;
            }
        },
        |binding| {
            if let Binding::AttentionProduct { node, .. } = binding {
                *node += 1;
            }
        },
        |binding| {
            if let Binding::AttentionProduct { of, .. } = binding {
                let AttentionPart::Queries(q) = of else {
                    return;
                };
                q.0 += 1;
            }
        },
    ];
    for change in changes {
        let mut wrong = plan.clone();
        for step in &mut wrong.steps {
            let Step::Call(call) = step else { continue };
            call.bindings.iter_mut().for_each(change);
        }
        let error = wrong.check(graph).unwrap_err();
        assert!(error.contains("AttentionProduct"), "{error}");
    }
}

/// The host computes decode, and gives reasons. It also computes prompts except the longest, whose predicted time
/// favours the NPU.
#[test]
fn it_is_where_the_prediction_says() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let model = LoadedModel::open(&path).unwrap();
    let graph = &model.model().graph;
    let attention = |planner: &dyn Planner, kind: &PassKind| {
        let plan = planner.lower(graph, kind).unwrap();
        let node = graph
            .nodes
            .iter()
            .position(|n| matches!(n.op, Op::Attention(_)));
        let placed = plan
            .placement
            .into_iter()
            .find(|p| Some(p.node) == node)
            .unwrap();
        let softmax = |step: &Step| matches!(step, Step::Host(HostStep::Softmax { .. }));
        let is_split = plan.steps.iter().any(softmax);
        assert_eq!(is_split, matches!(placed.place, NodePlace::Device(_)));
        (is_split, placed.reason)
    };
    let (predicted, npu, host) = (planner(), by("npu"), by("host"));
    for kind in [PassKind::decode(), PassKind::prefill(64)] {
        let (is_npu, reason) = attention(&*predicted, &kind);
        assert!(
            !is_npu && reason.contains("ms on the host, modelled"),
            "{reason}"
        );
        let (is_npu, reason) = attention(&*host, &kind);
        assert!(!is_npu && reason.contains("attention=host"), "{reason}");
    }
    let forced = PassKind::decode().with_attention(AttentionOn::Cached {
        n_keys: 128,
        max_tokens: 512,
    });
    let (is_npu, reason) = attention(&*npu, &forced);
    assert!(is_npu && reason.contains("attention=npu"), "{reason}");
    let wrong = Settings {
        set: vec!["attention=gpu".to_owned()],
        ..Settings::default()
    };
    let error = Rk3588Target.planner(&wrong).unwrap_err().to_string();
    assert!(error.contains("predicted, host, npu"), "{error}");
}

/// The choice pays as a whole: a prompt of 4,096 tokens in passes of 256, two layers of Llama-3.2-1B's shape.
#[test]
fn the_prediction_of_a_long_prompt_is_no_worse_for_it() {
    let geometry = ModelGeometry::named("llama-3.2-1b").unwrap();
    let recipe = Recipe::parse("BF16").unwrap();
    let model = Model::without_weights(geometry, Some(2), recipe, Source::HuggingFace).unwrap();
    let predicted = |by: &dyn Planner| {
        let mut pricer = by.pricer().unwrap();
        predict::model(&model.graph, by, &mut *pricer, &PromptWorkload::new(4096)).unwrap()
    };
    let settings = |by: &str| Settings {
        set: vec![format!("attention={by}")],
        ..Settings::default()
    };
    let [best, host, npu] = ["predicted", "host", "npu"].map(|by| {
        let planner = Rk3588Target.planner(&settings(by)).unwrap();
        predicted(&*planner)
    });
    let total = |found: &predict::Prediction| {
        found
            .prefill
            .iter()
            .map(|pass| pass.totals.total_ns)
            .sum::<f64>()
    };
    let n_softmax = |found: &predict::Prediction| {
        let steps = found.prefill.iter().flat_map(|pass| pass.host_steps());
        steps.filter(|step| step.name == "softmax").count()
    };
    let (n_best, n_npu) = (n_softmax(&best), n_softmax(&npu));
    assert!(0 < n_best && n_best < n_npu, "{n_best} of {n_npu}");
    assert_eq!(n_softmax(&host), 0);
    assert!(
        total(&best) < total(&host),
        "{} {}",
        total(&best),
        total(&host)
    );
    assert!(
        total(&best) < total(&npu),
        "{} {}",
        total(&best),
        total(&npu)
    );
    assert_eq!(best.token.totals.total_ns, host.token.totals.total_ns);
}

/// The pass in `profile` has the products, the host's packing and reading for them, and softmax.
#[test]
fn its_time_is_in_the_prediction() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let model = LoadedModel::open(&path).unwrap();
    let graph: &Graph = &model.model().graph;
    let token = |by: &dyn Planner| {
        let mut pricer = by.pricer().unwrap();
        let found = predict::model(graph, by, &mut *pricer, &PromptWorkload::new(100)).unwrap();
        found.token
    };
    let (npu, host) = (token(&*by("npu")), token(&*by("host")));
    let n = |name| npu.host_steps().filter(|step| step.name == name).count() as u64;
    assert!(n("softmax") > 0 && n("attention") == 0);
    assert_eq!(npu.totals.n_calls, host.totals.n_calls + 2 * n("softmax"));
    assert!(
        npu.host_steps()
            .all(|step| step.name != "softmax" || step.ns > 0.0)
    );
    let parts = npu
        .parts
        .iter()
        .any(|part| part.name == "attention" && part.ns > 0.0);
    assert!(parts, "{:?}", npu.parts);
    assert!(npu.totals.total_ns > host.totals.total_ns);
}
