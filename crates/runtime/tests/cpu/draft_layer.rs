//! A model's own draft layer: its logits are those of transformers, and its drafts change no text.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_format::gguf::Writer;
use millrace_format::{Checkpoint, TensorSpec};
use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, GenerateParams, GenerationRun, KvType,
    Level, LoadedModel, LogitsFor, SamplingParams, SeqId, ShortHeadSize, Speculator, Turn,
    speculate_turn,
};
use millrace_testkit::compare::assert_logits_close;
use millrace_testkit::draft::DraftGolden;
use millrace_testkit::golden::GoldenMatrix;

fn open(path: &Path) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}")))
}

fn engine(model: &Arc<LoadedModel>, level: Option<Level>) -> CpuEngine {
    let options = EngineOptions {
        level,
        kv_type: KvType::F32,
        n_ctx: Some(512),
        max_sequences: 3,
        n_threads: Some(2),
        keep_prefixes: true,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::clone(model), options).unwrap_or_else(|error| panic!("{error}"))
}

fn layer(model: &LoadedModel) -> Arc<LoadedModel> {
    Arc::new(
        model
            .draft_layer()
            .unwrap_or_else(|error| panic!("{error}")),
    )
}

/// Results of a step with `given` rows: the head's input, and the logits.
fn step(engine: &mut CpuEngine, seq: SeqId, tokens: &[u32], given: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let item = BatchItem {
        given,
        head_input: true,
        ..BatchItem::new(seq, tokens, LogitsFor::All)
    };
    let output = engine.compute(&[item]).unwrap();
    (output.head_input(0).to_vec(), output.logits(0).to_vec())
}

#[test]
fn logits_of_draft_layers_are_those_of_transformers() {
    for golden in DraftGolden::all() {
        let expected = golden.expected();
        let n = expected.tokens.len();
        let width = expected.states.width;
        for path in golden.files() {
            let model = open(&path);
            let layer = layer(&model);
            for level in Level::supported() {
                let what = format!("{} at {level}", path.display());
                let check = |found: Vec<f32>, expected: &GoldenMatrix, part: &str| {
                    let width = expected.width;
                    let found = GoldenMatrix { width, data: found };
                    assert_logits_close(&found, expected, &format!("{what}, {part}"));
                };
                let mut whole = engine(&model, Some(level));
                let seq = whole.create().unwrap();
                let (states, _) = step(&mut whole, seq, &expected.tokens[..n - 1], &[]);
                check(states, &expected.states, "states");

                let mut drafter = engine(&layer, Some(level));
                let seq = drafter.create().unwrap();
                let tokens = &expected.tokens[1..];
                let given = &expected.states.data;
                let (normed, logits) = step(&mut drafter, seq, tokens, given);
                check(normed, &expected.normed, "input of the head");
                check(logits.clone(), &expected.logits, "logits");

                // In parts it has the same bits.
                let seq = drafter.create().unwrap();
                let mut parts = Vec::new();
                for (i, part) in tokens.chunks(7).enumerate() {
                    let at = i * 7 * width;
                    let given = &given[at..at + part.len() * width];
                    parts.extend(step(&mut drafter, seq, part, given).1);
                }
                assert!(parts == logits, "{what}: another cut, other bits");
            }
        }
    }
}

#[test]
fn rows_must_be_given_to_draft_layers_and_to_no_other() {
    let golden = DraftGolden::named("qwen35");
    let model = open(&golden.files()[0]);
    for (model, given) in [(layer(&model), vec![0.0; 3]), (model, vec![0.0; 80])] {
        let mut engine = engine(&model, None);
        let seq = engine.create().unwrap();
        let item = BatchItem {
            given: &given,
            ..BatchItem::last(seq, &[1, 2])
        };
        let error = engine.compute(&[item]).unwrap_err();
        assert!(matches!(error, Error::BadOption { .. }), "{error}");
        assert_eq!(engine.len(seq).unwrap(), 0);
    }
}

#[test]
fn models_without_a_draft_layer_are_refused_by_name() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens");
    let cases = [
        ("qwen35", "mtp.fc.weight"),
        ("qwen35/model.f32.gguf", "blk.4.nextn.eh_proj.weight"),
        ("glm4moe", "model.layers.3.eh_proj.weight"),
        ("llama-mha", "qwen35"),
    ];
    for (file, word) in cases {
        let error = open(&goldens.join(file)).draft_layer().err().unwrap();
        let told = error.to_string();
        assert!(told.contains(word) && told.contains("MTP layer"), "{told}");
    }
    let (own, other) = (
        DraftGolden::named("qwen35"),
        DraftGolden::named("deepseek-v3"),
    );
    let target = open(&own.files()[0]);
    for model in [layer(&open(&other.files()[0])), Arc::clone(&target)] {
        let refused = Speculator::layer(Box::new(engine(&model, None)), &target);
        assert!(matches!(refused.err().unwrap(), Error::BadOption { .. }));
    }
}

/// A copy of a fixture's GGUF file whose tensors `change` renames, reshapes or leaves out.
fn changed(dir: &Path, change: impl Fn(TensorSpec) -> Option<TensorSpec>) -> Arc<LoadedModel> {
    let files = DraftGolden::named("qwen35").files();
    let source = Checkpoint::open(files.last().unwrap()).unwrap();
    let kept = source.iter().filter_map(|tensor| {
        let spec = change(TensorSpec::from(tensor.info))?;
        let size = spec.tensor_type.size_bytes(&spec.shape).unwrap();
        Some((spec, tensor.bytes[..size].to_vec()))
    });
    let kept: Vec<(TensorSpec, Vec<u8>)> = kept.collect();
    let specs: Vec<TensorSpec> = kept.iter().map(|(spec, _)| spec.clone()).collect();
    let path = dir.join("changed.gguf");
    let mut writer = Writer::create(&path, source.gguf().unwrap(), &specs).unwrap();
    for (spec, bytes) in &kept {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    open(&path)
}

/// Each such file runs without drafts; its layer is refused with the tensor's name and the found and expected values.
#[test]
fn layers_that_lack_a_tensor_or_have_another_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (block, d_model) = ("blk.2.", 40);
    let told = |name: &str, shape: Option<Vec<usize>>| {
        let name = format!("{block}{name}");
        let model = changed(dir.path(), |spec| match (spec.name == name, &shape) {
            (false, _) => Some(spec),
            (true, None) => None,
            (true, Some(shape)) => {
                let shape = shape.clone();
                Some(TensorSpec { shape, ..spec })
            }
        });
        let mut engine = engine(&model, None);
        let seq = engine.create().unwrap();
        engine.compute(&[BatchItem::last(seq, &[1])]).unwrap();
        model
            .draft_layer()
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    for name in [
        "nextn.eh_proj",
        "nextn.enorm",
        "nextn.hnorm",
        "attn_q",
        "ffn_down",
    ] {
        let told = told(&format!("{name}.weight"), None).unwrap_err();
        assert!(
            told.contains(&format!("`{block}{name}.weight` of shape")),
            "{told}"
        );
        assert!(told.contains("missing"), "{told}");
    }
    let told_of = told("nextn.eh_proj.weight", Some(vec![d_model, d_model])).unwrap_err();
    assert!(
        told_of.contains("[40, 40]") && told_of.contains("[40, 80]"),
        "{told_of}"
    );
    // The norm before its head may be the model's.
    told("nextn.shared_head_norm.weight", None).unwrap();
}

#[test]
fn a_layer_with_a_tensor_that_nothing_reads_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = changed(dir.path(), |spec| {
        let is_norm = spec.name == "blk.2.nextn.shared_head_norm.weight";
        let name = if is_norm {
            "blk.2.nextn.gate.weight"
        } else {
            &spec.name
        };
        let name = name.to_owned();
        Some(TensorSpec { name, ..spec })
    });
    let told = model.draft_layer().err().unwrap().to_string();
    assert!(
        told.contains("`blk.2.nextn.gate.weight` has no place"),
        "{told}"
    );
}

/// A model that mostly writes the guesses of its draft layer.
fn copied(folder: &Path, file: &str) -> Arc<LoadedModel> {
    let options = SynthOptions {
        recipe: Recipe::parse("F16").unwrap(),
        vocab: None,
        vision: false,
        n_layers: None,
        seed: 5,
        n_threads: Some(2),
    };
    let geometry = ModelGeometry::named("qwen35-tiny").unwrap();
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let path = folder.join(file);
    synth::write_with_draft_layer(geometry, &path, (&options, 0.9), go_on).unwrap();
    open(&path)
}

fn speculator(model: &Arc<LoadedModel>, level: Option<Level>) -> Speculator {
    Speculator::layer(Box::new(engine(&layer(model), level)), model).unwrap()
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
fn drafts_of_the_models_own_layer_change_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let golden = |name| open(DraftGolden::named(name).files().last().unwrap());
    let models = [
        ("copied", copied(dir.path(), "copied.gguf"), true),
        ("folder", copied(dir.path(), "folder"), true),
        ("qwen35", golden("qwen35"), false),
        ("glm4moe", golden("glm4moe"), false),
    ];
    let prompt: Vec<u32> = (0..70).map(|i| 40 + i * 7 % 90).collect();
    for (name, model, guesses_well) in models {
        let mut n_cut = 0;
        // The synthetic ones show every level.
        let levels = Level::supported().into_iter();
        let levels = levels.filter(|level| guesses_well || *level == Level::detect());
        for level in levels {
            for temperature in [0.0, 0.8] {
                let what = format!("{name} at {level}, temperature {temperature}");
                let mut engine = engine(&model, Some(level));
                let mut speculator = speculator(&model, Some(level)).always(3);
                let n = if level == Level::Scalar { 12 } else { 80 };
                let params = drawn(n, temperature);
                let plain = engine.create().unwrap();
                let seq = engine.create().unwrap();
                let expected = write(&mut engine, plain, (&prompt, &params), None);
                let found = write(&mut engine, seq, (&prompt, &params), Some(&mut speculator));
                assert_eq!(found, expected, "{what}");
                let stats = speculator.stats();
                assert!(stats.n_drafted > 0, "{what}: {stats:?}");
                let sure = guesses_well && temperature == 0.0;
                assert!(!sure || stats.acceptance() > Some(0.3), "{what}: {stats:?}");
                n_cut += stats.n_drafted - stats.n_accepted;
            }
        }
        assert!(n_cut > 0, "{name}: nothing was cut");
    }
}

#[test]
fn guesses_of_a_part_of_the_head_change_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let model = copied(dir.path(), "copied.gguf");
    let n_vocab = model.model().config.vocab_size;
    let prompt: Vec<u32> = (0..70).map(|i| 40 + i * 7 % 90).collect();
    for temperature in [0.0, 0.8] {
        // In a longer text, the misses of the first size would make guesses read the whole head.
        let params = drawn(60, temperature);
        let mut engine = engine(&model, None);
        let plain = engine.create().unwrap();
        let expected = write(&mut engine, plain, (&prompt, &params), None);
        let mut accepted = Vec::new();
        for (n_first, n_recent) in [(0, 1), (n_vocab / 8, n_vocab / 4)] {
            let size = ShortHeadSize { n_first, n_recent };
            let mut speculator = speculator(&model, None).always(2).short_head(size);
            let seq = engine.create().unwrap();
            let found = write(&mut engine, seq, (&prompt, &params), Some(&mut speculator));
            assert_eq!(found, expected, "{size:?}");
            accepted.push(speculator.stats().acceptance().unwrap());
            engine.release(seq).unwrap();
        }
        assert!(accepted[0] < accepted[1], "{accepted:?}");
    }
}

/// The layer's guess after a text of which nothing is cached.
fn guess(model: &Arc<LoadedModel>, layer: &Arc<LoadedModel>, text: &[u32]) -> u32 {
    let width = model.model().config.d_model;
    let mut whole = engine(model, None);
    let seq = whole.create().unwrap();
    let (states, _) = step(&mut whole, seq, &text[..text.len() - 1], &[]);
    let mut drafter = engine(layer, None);
    let seq = drafter.create().unwrap();
    let given = [vec![0.0; width], states].concat();
    let (_, logits) = step(&mut drafter, seq, text, &given);
    let last = logits
        .chunks_exact(logits.len() / text.len())
        .last()
        .unwrap();
    let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b]));
    best.unwrap() as u32
}

/// Row by row the layer's cache equals that of the whole text read at once: through prompts in parts, rejected drafts,
/// steps without drafts, and the next turn of a sequence.
#[test]
fn a_guess_is_that_of_the_whole_text() {
    let model = open(DraftGolden::named("qwen35").files().last().unwrap());
    let layer = layer(&model);
    let options = EngineOptions {
        kv_type: KvType::F32,
        n_ctx: Some(512),
        n_threads: Some(2),
        max_chunk: 16,
        ..EngineOptions::default()
    };
    let small = |model: &Arc<LoadedModel>| CpuEngine::new(Arc::clone(model), options.clone());
    let mut engine = small(&model).unwrap();
    let drafter = Box::new(small(&layer).unwrap());
    let mut speculator = Speculator::layer(drafter, &model).unwrap().always(1);
    let seq = engine.create().unwrap();
    let mut text: Vec<u32> = (0..70).map(|i| 40 + i * 11 % 90).collect();
    for turn in 0..2 {
        let made = Turn::new(engine.model(), &text, &drawn(12, 0.0), 512).unwrap();
        let mut run = GenerationRun::start(&mut engine, seq, made).unwrap();
        let mut n_guesses = 0;
        while run.goes_on() {
            let (before, reads) = (run.turn().context().to_vec(), run.turn().reads_prompt());
            run.step(&mut engine, Some(&mut speculator)).unwrap();
            if let (false, &[guessed]) = (reads, speculator.drafts(seq)) {
                let what = format!("turn {turn}, behind {} tokens", before.len());
                assert_eq!(guessed, guess(&model, &layer, &before), "{what}");
                n_guesses += 1;
            }
        }
        assert!(n_guesses > 5, "{n_guesses}");
        text = [run.turn().context(), &[50, 51, 52]].concat();
    }
}

/// It follows a sequence through cuts, forks, cached prompts, and tokens that were not reported to it.
#[test]
fn cuts_forks_and_gaps_change_no_text() {
    let model = open(DraftGolden::named("qwen35").files().last().unwrap());
    let mut engine = engine(&model, None);
    let mut speculator = speculator(&model, None).always(3);
    let params = drawn(24, 0.0);
    let mut check = |engine: &mut CpuEngine, seq: SeqId, prompt: &[u32], what: &str| {
        let fresh = engine.create().unwrap();
        engine.set_scope(fresh, 9).unwrap();
        let expected = write(engine, fresh, (prompt, &params), None);
        engine.release(fresh).unwrap();
        let before = speculator.stats().n_drafted;
        let found = write(engine, seq, (prompt, &params), Some(&mut speculator));
        assert_eq!(found, expected, "{what}");
        assert!(
            speculator.stats().n_drafted > before + 20,
            "{what}: few drafts"
        );
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
    engine.release(cached).unwrap();
    // Steps that were not reported to it: more than it fills.
    let untold = write(&mut engine, seq, (&other, &drawn(100, 0.0)), None);
    let behind: Vec<u32> = [&other[..], &untold[..], &[60]].concat();
    check(&mut engine, seq, &behind, "behind a gap");
}
