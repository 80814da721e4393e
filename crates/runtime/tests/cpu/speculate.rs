//! Speculative decoding draws the same tokens as plain decoding.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::speculate::check_draft;
use millrace_runtime::{
    CpuEngine, Engine, EngineOptions, Error, Finish, GenerateParams, Generation, Level,
    LoadedModel, SamplingParams, SpeculationStats, Speculator, Turn, speculate_turn,
};
use millrace_text::EncodeOptions;

fn embedded(name: &str) -> Arc<LoadedModel> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let folder = models.join(name.trim_end_matches(".gguf"));
    Arc::new(LoadedModel::open(&folder.join(name)).unwrap())
}

fn synthetic(geometry: &str, n_layers: usize) -> Arc<LoadedModel> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(format!("{geometry}-{n_layers}"));
    let options = SynthOptions {
        recipe: Recipe::parse("BF16").unwrap(),
        vocab: None,
        vision: false,
        n_layers: Some(n_layers),
        seed: 3,
        n_threads: Some(2),
    };
    let geometry = ModelGeometry::named(geometry).unwrap();
    let go_on = &mut |_, _| ControlFlow::Continue(());
    synth::write(geometry, &folder, &options, go_on).unwrap();
    Arc::new(LoadedModel::open(&folder).unwrap())
}

fn engine(model: &Arc<LoadedModel>, level: Option<Level>) -> Box<dyn Engine> {
    let options = EngineOptions {
        level,
        n_threads: Some(2),
        n_ctx: Some(500),
        ..EngineOptions::default()
    };
    Box::new(CpuEngine::new(model.clone(), options).unwrap())
}

fn encode(model: &LoadedModel, text: &str) -> Vec<u32> {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    model.tokenizer().unwrap().encode(text, options)
}

/// Generates, and returns the sequence's tokens at the end.
fn write(
    engine: &mut dyn Engine,
    prompt: &[u32],
    params: &GenerateParams,
    speculator: Option<&mut Speculator>,
    forced: &[u32],
) -> (Generation, Vec<u32>) {
    let seq = engine.create().unwrap();
    let n_ctx = engine.limits().n_ctx;
    let turn = Turn::new(engine.model(), prompt, params, n_ctx).unwrap();
    let turn = turn.forcing(forced);
    let never = AtomicBool::new(false);
    let done = speculate_turn(engine, seq, turn, speculator, &never, &mut |_| {}).unwrap();
    let held = engine.tokens(seq).unwrap().to_vec();
    engine.release(seq).unwrap();
    (done, held)
}

/// Writes with and without drafts, and compares all visible results.
fn same(
    engine: &mut dyn Engine,
    prompt: &[u32],
    params: &GenerateParams,
    speculator: &mut Speculator,
    what: &str,
) -> (Generation, SpeculationStats) {
    same_forced(engine, prompt, params, speculator, &[], what)
}

/// The same for a text whose first tokens are given.
fn same_forced(
    engine: &mut dyn Engine,
    prompt: &[u32],
    params: &GenerateParams,
    speculator: &mut Speculator,
    forced: &[u32],
    what: &str,
) -> (Generation, SpeculationStats) {
    let (plain, plain_held) = write(engine, prompt, params, None, forced);
    let (drafted, held) = write(engine, prompt, params, Some(speculator), forced);
    assert_eq!(drafted.tokens, plain.tokens, "{what}");
    assert_eq!(drafted.text, plain.text, "{what}");
    assert_eq!(drafted.finish, plain.finish, "{what}");
    assert_eq!(drafted.timings.n_decode, plain.timings.n_decode, "{what}");
    assert_eq!(held, plain_held, "{what}");
    (plain, speculator.stats())
}

fn params(max_tokens: usize) -> GenerateParams {
    GenerateParams {
        max_tokens: Some(max_tokens),
        ..GenerateParams::default()
    }
}

const STORY: &str = "Once upon a time, there was a little";

#[test]
fn every_level_writes_the_same_with_a_draft_model() {
    let (target, draft) = (embedded("demo.gguf"), embedded("demo-draft.gguf"));
    let prompt = encode(&target, STORY);
    for level in Level::supported() {
        let mut own = engine(&target, Some(level));
        let drafter = engine(&draft, Some(level));
        let speculator = Speculator::model(drafter, &target).unwrap();
        let mut speculator = speculator.always(4);
        // The scalar level is slow.
        let n = if level == Level::Scalar { 12 } else { 60 };
        let what = format!("at {level}");
        let (_, stats) = same(&mut *own, &prompt, &params(n), &mut speculator, &what);
        assert!(
            stats.n_drafted > 0 && stats.n_accepted > 0,
            "{what}: {stats:?}"
        );
    }
}

#[test]
fn every_way_to_draw_and_to_end_is_kept() {
    let (target, draft) = (embedded("demo.gguf"), embedded("demo-draft.gguf"));
    let prompt = encode(&target, STORY);
    let mut own = engine(&target, None);
    let drawn = SamplingParams {
        temperature: 0.9,
        top_k: 40,
        top_p: 0.95,
        seed: 7,
        ..SamplingParams::default()
    };
    let with = |change: fn(&mut GenerateParams)| {
        let mut params = params(60);
        change(&mut params);
        params
    };
    let sampled = GenerateParams {
        sampling: drawn.clone(),
        ..params(70)
    };
    let penalised = GenerateParams {
        sampling: SamplingParams {
            repetition_penalty: 1.3,
            frequency_penalty: 0.2,
            min_p: 0.05,
            ..drawn
        },
        ..params(50)
    };
    let cases = [
        ("sampled", sampled, Finish::Length),
        ("penalised", penalised, Finish::Length),
        (
            "stop text",
            with(|p| p.stop = vec![". ".into(), "woods".into()]),
            Finish::StopText,
        ),
        (
            "three tokens",
            with(|p| p.max_tokens = Some(3)),
            Finish::Length,
        ),
        ("to the end", with(|p| p.max_tokens = None), Finish::Stop),
    ];
    for (what, params, finish) in cases {
        let mut by_model = Speculator::model(engine(&draft, None), &target).unwrap();
        let (plain, stats) = same(&mut *own, &prompt, &params, &mut by_model, what);
        assert_eq!(plain.finish, finish, "{what}");
        assert_eq!(
            stats.n_checks > 0,
            what != "three tokens",
            "{what}: {stats:?}"
        );
        same(&mut *own, &prompt, &params, &mut Speculator::ngram(), what);
    }
}

/// A context that becomes full ends the turn at the same token.
#[test]
fn a_full_context_ends_it_where_it_did() {
    let (target, draft) = (embedded("demo.gguf"), embedded("demo-draft.gguf"));
    let prompt = encode(&target, STORY);
    let small = |model: &Arc<LoadedModel>| -> Box<dyn Engine> {
        let options = EngineOptions {
            n_ctx: Some(prompt.len() + 30),
            ..EngineOptions::default()
        };
        Box::new(CpuEngine::new(model.clone(), options).unwrap())
    };
    let speculator = Speculator::model(small(&draft), &target).unwrap();
    let mut speculator = speculator.always(6);
    let endless = GenerateParams {
        ignore_end: true,
        ..GenerateParams::default()
    };
    let (plain, _) = same(
        &mut *small(&target),
        &prompt,
        &endless,
        &mut speculator,
        "full",
    );
    assert_eq!(
        (plain.finish, plain.tokens.len()),
        (Finish::ContextFull, 31)
    );
}

/// Rejected tokens are cut off layers that keep a window, again and again over its edge.
#[test]
fn sliding_windows_are_rolled_back() {
    are_rolled_back("gemma-tiny", 6);
}

/// The same for layers that keep a state, over the ends of pages.
#[test]
fn states_are_rolled_back() {
    are_rolled_back("qwen35-tiny", 4);
    are_rolled_back("granitehybrid-tiny", 3);
}

fn are_rolled_back(geometry: &str, n_layers: usize) {
    let (target, draft) = (synthetic(geometry, n_layers), synthetic(geometry, 2));
    let prompt: Vec<u32> = (0..90).map(|i| 40 + i * 7 % 60).collect();
    let mut own = engine(&target, None);
    let endless = GenerateParams {
        ignore_end: true,
        ..params(160)
    };
    // Runs that begin like others and then diverge: some drafts are drawn, others are not.
    let run = |i: u32| (0..8).map(move |j| 60 + j + if j > 4 { i % 7 } else { 0 });
    let forced: Vec<u32> = (0..16).flat_map(run).collect();
    let mut ngram = Speculator::ngram().always(9);
    let (_, stats) = same_forced(&mut *own, &prompt, &endless, &mut ngram, &forced, "ngram");
    assert!(stats.n_accepted > 10, "nothing was drawn: {stats:?}");
    assert!(
        stats.n_drafted > stats.n_accepted,
        "nothing was cut: {stats:?}"
    );
    let by_model = Speculator::model(engine(&draft, None), &target).unwrap();
    same(
        &mut *own,
        &prompt,
        &endless,
        &mut by_model.always(31),
        "model",
    );
}

#[test]
fn drafts_that_cannot_be_are_refused() {
    let (demo, draft) = (embedded("demo.gguf"), embedded("demo-draft.gguf"));
    check_draft(&demo, &draft).unwrap();
    let error = check_draft(&draft, &demo).unwrap_err();
    assert!(matches!(error, Error::LargerDraft { .. }), "{error}");
    let other = synthetic("llama-tiny", 1);
    let error = Speculator::model(engine(&other, None), &demo)
        .err()
        .unwrap();
    let Error::OtherVocabulary {
        token,
        in_target,
        in_draft,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    let text =
        |model: &LoadedModel, id: u32| format!("{:?}", model.tokenizer().unwrap().token_text(id));
    assert_eq!(**in_target, text(&demo, *token));
    assert_eq!(**in_draft, text(&other, *token));
    for id in 0..*token {
        assert_eq!(text(&demo, id), text(&other, id));
    }
    assert!(error.to_string().contains(&**in_draft), "{error}");
}
