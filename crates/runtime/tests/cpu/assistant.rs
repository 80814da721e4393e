//! Assistants: their drafts are those of transformers, they read the target's cache, and they change no text.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_model::convert::OutputContainer;
use millrace_runtime::{
    Assistant, BatchItem, CpuEngine, Engine, EngineOptions, GenerateParams, KvType, Level,
    LoadedModel, LogitsFor, SamplingParams, SeqId, Speculator, StepOutput, Turn, speculate_turn,
};
use millrace_testkit::assert_logits_close;
use millrace_testkit::assistant::{AssistantGolden, AssistantValues, N_DRAFTS};
use millrace_testkit::compare::index_of_max;
use millrace_testkit::golden::GoldenMatrix;

use crate::converted::convert;

mod refusals;

fn open(path: &Path) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}")))
}

fn open_draft(path: &Path) -> LoadedModel {
    LoadedModel::open_draft(path).unwrap_or_else(|error| panic!("{error}"))
}

fn engine(model: &Arc<LoadedModel>, (level, kv_type): (Option<Level>, KvType)) -> CpuEngine {
    let options = EngineOptions {
        level,
        kv_type,
        n_ctx: Some(512),
        max_sequences: 4,
        n_threads: Some(2),
        keep_prefixes: true,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::clone(model), options).unwrap_or_else(|error| panic!("{error}"))
}

/// The head's input at the last of these tokens.
fn read(engine: &mut CpuEngine, seq: SeqId, tokens: &[u32]) -> Vec<f32> {
    let item = BatchItem {
        head_input: true,
        ..BatchItem::new(seq, tokens, LogitsFor::None)
    };
    let output = engine.compute(&[item]).unwrap();
    let rows = output.head_input(0);
    rows[rows.len() - rows.len() / tokens.len()..].to_vec()
}

/// Logits of the drafts behind the first `n` tokens; the guesses that are fed are those expected.
fn logits_of_drafts(
    (engine, assistant): (&mut CpuEngine, &mut Assistant),
    seq: SeqId,
    (n, mut state): (usize, Vec<f32>),
    (expected, index): (&AssistantValues, usize),
) -> Vec<f32> {
    let (mut token, mut logits) = (expected.tokens[n], Vec::new());
    for draft in &expected.drafts[index * N_DRAFTS..][..N_DRAFTS] {
        let mut output = StepOutput::default();
        let made = engine.assist(assistant, seq, (token, &state), &mut output);
        assert!(made.unwrap(), "behind {n} tokens");
        logits.extend_from_slice(output.logits(0));
        assert_eq!(index_of_max(output.logits(0)), *draft as usize);
        state = output.head_input(0).to_vec();
        token = *draft;
    }
    logits
}

#[test]
fn drafts_of_assistants_are_those_of_transformers() {
    for golden in AssistantGolden::all() {
        let expected = golden.expected();
        let target = golden.target();
        let targets = [target.hf().to_owned(), target.gguf().unwrap()];
        for (path, target) in golden.files().iter().zip(targets) {
            let (draft, model) = (open_draft(path), open(&target));
            for level in Level::supported() {
                let what = format!("{} at {level}", path.display());
                let mut engine = engine(&model, (Some(level), KvType::F32));
                let mut assistant = Assistant::new(&draft, &model).unwrap();
                let (mut states, mut logits) = (Vec::new(), Vec::new());
                for (index, &n) in expected.lengths.iter().enumerate() {
                    let seq = engine.create().unwrap();
                    let state = read(&mut engine, seq, &expected.tokens[..n]);
                    states.extend_from_slice(&state);
                    let pair = (&mut engine, &mut assistant);
                    logits.extend(logits_of_drafts(pair, seq, (n, state), (&expected, index)));
                    assert_eq!(engine.tokens(seq).unwrap(), &expected.tokens[..n]);
                    engine.release(seq).unwrap();
                }
                for (found, expected) in [(states, &expected.states), (logits, &expected.logits)] {
                    let width = expected.width;
                    let found = GoldenMatrix { width, data: found };
                    assert_logits_close(&found, expected, &what);
                }
            }
        }
    }
}

/// Logits of all drafts behind all lengths, from the file of an assistant.
fn logits_of_file(golden: &AssistantGolden, path: &Path) -> GoldenMatrix {
    let (expected, model) = (golden.expected(), open(golden.target().hf()));
    let mut engine = engine(&model, (None, KvType::F32));
    let mut assistant = Assistant::new(&open_draft(path), &model).unwrap();
    let mut data = Vec::new();
    for (index, &n) in expected.lengths.iter().enumerate() {
        let seq = engine.create().unwrap();
        let state = read(&mut engine, seq, &expected.tokens[..n]);
        let pair = (&mut engine, &mut assistant);
        data.extend(logits_of_drafts(pair, seq, (n, state), (&expected, index)));
        engine.release(seq).unwrap();
    }
    let width = expected.logits.width;
    GoldenMatrix { width, data }
}

#[test]
fn converted_assistants_compute_the_same() {
    for golden in AssistantGolden::all() {
        let dir = tempfile::tempdir().unwrap();
        let [folder, file] = golden.files();
        let gguf = convert(&folder, dir.path(), OutputContainer::Gguf, "F32");
        let back = convert(&gguf, dir.path(), OutputContainer::Safetensors, "F32");
        let again = tempfile::tempdir().unwrap();
        let kept = convert(&file, again.path(), OutputContainer::Safetensors, "F32");
        for path in [gguf, back, kept] {
            let found = logits_of_file(&golden, &path);
            assert_logits_close(
                &found,
                &golden.expected().logits,
                &path.display().to_string(),
            );
        }
    }
}

/// Rows of the assistant have the same bits through any past of the cache: chunks, pages, a fork, a cut; and the target's step
/// behind them has the bits that it has without them.
#[test]
fn rows_depend_on_the_tokens_alone_and_leave_the_cache_as_it_is() {
    let golden = AssistantGolden::named("gemma4");
    let model = open(golden.target().hf());
    let draft = open_draft(&golden.files()[0]);
    let text: Vec<u32> = (0..200).map(|i| i * 31 % 263).collect();
    for kv_type in [KvType::F32, KvType::F16, KvType::Q8_0] {
        let mut engine = engine(&model, (None, kv_type));
        let mut assistant = Assistant::new(&draft, &model).unwrap();
        let mut row = |engine: &mut CpuEngine, seq: SeqId, state: &[f32]| {
            let mut output = StepOutput::default();
            let given = (text[150], state);
            assert!(
                engine
                    .assist(&mut assistant, seq, given, &mut output)
                    .unwrap()
            );
            (output.logits(0).to_vec(), output.head_input(0).to_vec())
        };
        let whole = engine.create().unwrap();
        let state = read(&mut engine, whole, &text[..150]);
        let expected = row(&mut engine, whole, &state);
        let parts = engine.create().unwrap();
        text[..150]
            .chunks(37)
            .for_each(|part| drop(read(&mut engine, parts, part)));
        assert!(row(&mut engine, parts, &state) == expected, "in chunks");
        let fork = engine.fork(whole).unwrap();
        read(&mut engine, fork, &text[150..190]);
        engine.truncate(fork, 150).unwrap();
        assert!(
            row(&mut engine, fork, &state) == expected,
            "a fork that was cut"
        );
        engine.release(fork).unwrap();
        let next = |engine: &mut CpuEngine, seq: SeqId| {
            let item = BatchItem::last(seq, &text[150..153]);
            engine.compute(&[item]).unwrap().logits(0).to_vec()
        };
        let plain = engine.create().unwrap();
        read(&mut engine, plain, &text[..150]);
        assert!(
            next(&mut engine, plain) == next(&mut engine, parts),
            "{kv_type:?}"
        );
    }
}

fn drawn(max_tokens: usize, temperature: f32) -> GenerateParams {
    GenerateParams {
        max_tokens: Some(max_tokens),
        ignore_end: true,
        sampling: SamplingParams {
            temperature,
            seed: 11,
            ..SamplingParams::default()
        },
        ..GenerateParams::default()
    }
}

/// Writes after a prompt in a sequence, and returns the tokens.
fn write(
    engine: &mut CpuEngine,
    seq: SeqId,
    (prompt, params): (&[u32], &GenerateParams),
    speculator: Option<&mut Speculator>,
) -> Vec<u32> {
    let turn = Turn::new(engine.model(), prompt, params, 512).unwrap();
    let never = AtomicBool::new(false);
    let done = speculate_turn(engine, seq, turn, speculator, &never, &mut |_| {}).unwrap();
    done.tokens
}

#[test]
fn drafts_of_an_assistant_change_no_text() {
    let prompt: Vec<u32> = (0..70).map(|i| 40 + i * 7 % 90).collect();
    let (mut n_accepted, mut n_cut) = (0, 0);
    for golden in AssistantGolden::all() {
        let model = open(&golden.target().gguf().unwrap());
        let draft = open_draft(&golden.files()[0]);
        let of_level = |level| (Some(level), KvType::F16);
        let of_type = |kv_type| (None, kv_type);
        let caches = [KvType::F32, KvType::BF16, KvType::Q8_0].map(of_type);
        let ways = Level::supported().into_iter().map(of_level).chain(caches);
        for (way, temperature) in ways.flat_map(|way| [(way, 0.0), (way, 0.9)]) {
            let what = format!("{} with {way:?}, temperature {temperature}", draft.name());
            let mut engine = engine(&model, way);
            let mut speculator = Speculator::assistant(&draft, &engine).unwrap().always(3);
            let n = if way.0 == Some(Level::Scalar) { 12 } else { 80 };
            let params = drawn(n, temperature);
            let (plain, seq) = (engine.create().unwrap(), engine.create().unwrap());
            let expected = write(&mut engine, plain, (&prompt, &params), None);
            let found = write(&mut engine, seq, (&prompt, &params), Some(&mut speculator));
            assert_eq!(found, expected, "{what}");
            let stats = speculator.stats();
            assert!(stats.n_drafted as usize > n, "{what}: {stats:?}");
            n_accepted += stats.n_accepted;
            n_cut += stats.n_drafted - stats.n_accepted;
        }
    }
    // Of random weights few guesses are drawn, and some.
    assert!(n_accepted > 0 && n_cut > 0, "{n_accepted} {n_cut}");
}

/// It follows a sequence through cuts, forks, cached prompts, and tokens that were not reported to it.
#[test]
fn cuts_forks_and_gaps_beside_an_assistant_change_no_text() {
    let golden = AssistantGolden::named("gemma4");
    let model = open(&golden.target().gguf().unwrap());
    let mut engine = engine(&model, (None, KvType::F16));
    let draft = open_draft(&golden.files()[1]);
    let mut speculator = Speculator::assistant(&draft, &engine).unwrap().always(3);
    let params = drawn(24, 0.0);
    let mut check = |engine: &mut CpuEngine, seq: SeqId, prompt: &[u32], what: &str| {
        let fresh = engine.create().unwrap();
        engine.set_scope(fresh, 9).unwrap();
        let expected = write(engine, fresh, (prompt, &params), None);
        engine.release(fresh).unwrap();
        let before = speculator.stats().n_drafted;
        let found = write(engine, seq, (prompt, &params), Some(&mut speculator));
        assert_eq!(found, expected, "{what}");
        let n_drafted = speculator.stats().n_drafted - before;
        assert!(n_drafted > 20, "{what}: few drafts");
        found
    };
    let prompt: Vec<u32> = (0..150).map(|i| 40 + i * 11 % 90).collect();
    let seq = engine.create().unwrap();
    let first = check(&mut engine, seq, &prompt, "the first turn");
    let more: Vec<u32> = [&prompt[..], &first[..], &[77, 78]].concat();
    check(&mut engine, seq, &more, "the next turn");
    let other: Vec<u32> = [&prompt[..90], &[50, 51, 52]].concat();
    check(&mut engine, seq, &other, "cut back");
    let fork = engine.fork(seq).unwrap();
    check(&mut engine, fork, &other, "a fork");
    engine.release(fork).unwrap();
    let cached = engine.create().unwrap();
    check(&mut engine, cached, &prompt, "a cached prompt");
    let untold = write(&mut engine, seq, (&other, &drawn(100, 0.0)), None);
    let behind: Vec<u32> = [&other[..], &untold[..], &[60]].concat();
    check(&mut engine, seq, &behind, "behind a gap");
}
