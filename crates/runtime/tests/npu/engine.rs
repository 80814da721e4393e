//! The engine on a device against the contract of every engine.

use crate::support::{apart, append, demo, noise};
use millrace_npu::Provenance;
use millrace_runtime::npu::{NpuModel, NpuOptions, PlannedEngine};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, Finish, GenerateParams, ItemRows, KvType,
    LoadedModel, LogitsFor, generate,
};
use millrace_text::EncodeOptions;
use millrace_xdna2::lower::{Features, Mode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Length that prompts are padded to: a longer one takes several passes.
const N_PADDED: u64 = 64;

fn options(n_ctx: usize) -> NpuOptions {
    NpuOptions {
        n_ctx: Some(n_ctx),
        max_sequences: 4,
        ..crate::support::padded_to(N_PADDED)
    }
}

fn load(n_ctx: usize) -> Arc<NpuModel> {
    crate::support::load(&demo(), Features::of(Mode::Fast), options(n_ctx))
}

/// With a context so long that the array attends over the cache in later passes.
fn long() -> PlannedEngine {
    PlannedEngine::new(&load(8000)).unwrap()
}

fn short() -> PlannedEngine {
    PlannedEngine::new(&load(200)).unwrap()
}

#[test]
fn it_goes_to_another_thread_and_says_what_it_is() {
    let mut engine: Box<dyn Engine> = Box::new(short());
    let served = std::thread::spawn(move || {
        let seq = engine.create().unwrap();
        assert_eq!(append(&mut *engine, seq, &[1, 2, 3]).len(), 2048);
        append(&mut *engine, seq, &[4]);
        let counters = engine.counters();
        assert_eq!((counters.n_steps, counters.n_passes), (2, 2));
        assert_eq!((counters.n_tokens, counters.n_logit_rows), (4, 2));
        let phases = engine.device_counters().unwrap();
        let device_ns = phases.prefill.device_ns + phases.decode.device_ns;
        assert!(counters.host_ns > 0 && device_ns > 0);
        assert_eq!(counters.device_ns, device_ns);
        assert!(matches!(
            engine.device_time(),
            Some(Provenance::Modelled { .. })
        ));
        let limits = engine.limits();
        assert_eq!((limits.n_ctx, limits.max_sequences), (200, 4));
        assert_eq!(limits.max_chunk as u64, N_PADDED);
        assert_eq!(engine.name(), engine.device_model().unwrap().device_name());
    });
    served.join().unwrap();
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut engine = long();
    let (past, one, other) = (noise(70, 1), noise(80, 2), noise(80, 3));
    let mut alone = |rest: &[u32]| {
        let seq = engine.create().unwrap();
        append(&mut engine, seq, &past);
        let logits = [
            append(&mut engine, seq, rest),
            append(&mut engine, seq, &[7]),
        ];
        engine.release(seq).unwrap();
        logits
    };
    let expected = [alone(&one), alone(&other)];
    assert!(expected[0] != expected[1]);
    let parent = engine.create().unwrap();
    append(&mut engine, parent, &past);
    let used_bytes = engine.kv_usage().used_bytes;
    let child = engine.fork(parent).unwrap();
    assert_eq!(
        engine.kv_usage().used_bytes,
        used_bytes,
        "the past is shared"
    );
    assert_eq!(engine.tokens(child).unwrap(), past);
    assert!(append(&mut engine, parent, &one) == expected[0][0]);
    assert!(append(&mut engine, child, &other) == expected[1][0]);
    assert!(append(&mut engine, parent, &[7]) == expected[0][1]);
    assert!(append(&mut engine, child, &[7]) == expected[1][1]);
    engine.release(parent).unwrap();
    assert_eq!(engine.len(child).unwrap(), 151);
    engine.release(child).unwrap();
    assert_eq!(engine.kv_usage().used_bytes, 0);
}

/// Cut anywhere and computed again: tokens that were cut off are not seen again, on the host or on
/// the device.
#[test]
fn what_is_cut_off_leaves_nothing_behind() {
    let mut engine = long();
    let (one, other) = (noise(150, 1), noise(150, 2));
    for len in [0, 1, 30, 64, 100] {
        let start = |engine: &mut PlannedEngine| {
            let seq = engine.create().unwrap();
            if len > 0 {
                append(engine, seq, &one[..len]);
            }
            seq
        };
        let expected = [&one, &other].map(|text| {
            let seq = start(&mut engine);
            let logits = append(&mut engine, seq, &text[len..]);
            engine.release(seq).unwrap();
            logits
        });
        let seq = start(&mut engine);
        for (text, expected) in [(&other, &expected[1]), (&one, &expected[0])] {
            let logits = append(&mut engine, seq, &text[len..]);
            assert!(logits == *expected, "{len}");
            engine.truncate(seq, len).unwrap();
            engine.truncate(seq, 1000).unwrap();
            assert_eq!(engine.tokens(seq).unwrap(), &one[..len]);
        }
        engine.release(seq).unwrap();
    }
}

/// Every kind of item in one step, of two passes and of one.
#[test]
fn rows_come_in_order_and_some_at_a_time() {
    let options = NpuOptions {
        prefill_tokens: None,
        ..options(300)
    };
    let npu = crate::support::load(&demo(), Features::of(Mode::Fast), options);
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let seqs = [0; 4].map(|_| engine.create().unwrap());
    let tokens = noise(150, 1);
    let batch = [
        BatchItem::new(seqs[0], &tokens[..30], LogitsFor::Last),
        BatchItem::new(seqs[1], &tokens, LogitsFor::All),
        BatchItem::new(seqs[2], &tokens[..9], LogitsFor::None),
        BatchItem::new(seqs[3], &tokens[..1], LogitsFor::All),
    ];
    let width = engine.model().model().config.vocab_size;
    let mut expected = vec![(0, 29)];
    expected.extend((0..150).map(|token| (1, token)));
    expected.push((3, 0));
    let (mut found, mut data) = (Vec::new(), Vec::new());
    let mut sink = |rows: ItemRows<'_>| {
        let n_rows = rows.data.len() / width;
        assert!((1..=128).contains(&n_rows), "{n_rows}");
        found.extend((0..n_rows).map(|row| (rows.item, rows.first_token + row)));
        data.extend_from_slice(rows.data);
    };
    engine.step(&batch, &mut sink).unwrap();
    assert_eq!(found, expected);
    assert_eq!(engine.counters().n_logit_rows, 152);
    for (seq, item) in seqs.iter().zip(&batch) {
        assert_eq!(engine.tokens(*seq).unwrap(), item.tokens);
        engine.truncate(*seq, 0).unwrap();
    }
    let output = engine.compute(&batch).unwrap();
    assert!(output.logits(2).is_empty());
    let collected = [output.logits(0), output.logits(1), output.logits(3)].concat();
    assert!(collected == data);
}

/// Allowed distance between the logits of a prompt's pass and those of a token's, whose products and
/// attention differ: as a share of the largest.
const FROM_DECODE: f32 = 0.05;

/// Compares the logits of all tokens with those of each separately: as the last of a prompt, which
/// goes through another head, and in decode.
#[test]
fn all_rows_are_those_of_each_token() {
    for mode in [Mode::Fast, Mode::MlirAir] {
        let npu = crate::support::load(&demo(), Features::of(mode), options(200));
        let mut engine = PlannedEngine::new(&npu).unwrap();
        let tokens = noise(130, 3);
        let width = engine.model().model().config.vocab_size;
        let seq = engine.create().unwrap();
        let item = BatchItem::new(seq, &tokens, LogitsFor::All);
        let all = engine.compute(&[item]).unwrap().logits(0).to_vec();
        assert_eq!(all.len(), 130 * width);
        let row = |token: usize| &all[token * width..][..width];
        for n in [1, 6, 63, 64, 65, 128, 129, 130] {
            engine.truncate(seq, 0).unwrap();
            let apart = apart(row(n - 1), &append(&mut engine, seq, &tokens[..n]));
            assert!(apart < 0.02, "{mode:?}, row {n}: {apart} of the largest");
        }
        engine.truncate(seq, 0).unwrap();
        for (i, token) in tokens.iter().enumerate() {
            let one = BatchItem::new(seq, std::slice::from_ref(token), LogitsFor::All);
            let decoded = engine.compute(&[one]).unwrap().logits(0).to_vec();
            let apart = apart(row(i), &decoded);
            assert!(
                apart < FROM_DECODE,
                "{mode:?}, token {i}: {apart} of the largest"
            );
        }
        let other = apart(row(129), row(128));
        assert!(other > 0.3, "rows are much alike anyway: {other}");
    }
}

/// Other sequences in a step, or between two steps, change no bit of a sequence.
#[test]
fn sequences_that_share_steps_compute_what_each_does_alone() {
    let mut engine = long();
    let texts = [noise(230, 1), noise(230, 2)];
    // A long prompt together with a token, then the other way around, with later chunks in both.
    let cuts: [[usize; 6]; 2] = [[0, 70, 71, 72, 180, 230], [0, 3, 140, 141, 142, 230]];
    let mut alone = |which: usize| -> Vec<Vec<f32>> {
        let seq = engine.create().unwrap();
        let parts = cuts[which].windows(2);
        let logits = parts.map(|cut| append(&mut engine, seq, &texts[which][cut[0]..cut[1]]));
        let logits = logits.collect();
        engine.release(seq).unwrap();
        logits
    };
    let expected = [alone(0), alone(1)];
    let seqs = [0; 2].map(|_| engine.create().unwrap());
    for step in 0..5 {
        let part = |which: usize| &texts[which][cuts[which][step]..cuts[which][step + 1]];
        let batch = [0, 1].map(|which| BatchItem::last(seqs[which], part(which)));
        let output = engine.compute(&batch).unwrap();
        for (which, expected) in expected.iter().enumerate() {
            assert!(
                output.logits(which) == expected[step],
                "{which} in step {step}"
            );
        }
    }
}

#[test]
fn a_prompt_goes_on_from_the_sequences_own_past() {
    let mut engine = long();
    let (past, prompt) = (noise(150, 1), {
        let mut prompt = noise(90, 1);
        prompt.extend(noise(60, 2));
        prompt
    });
    let fresh = engine.create().unwrap();
    append(&mut engine, fresh, &prompt[..90]);
    let expected = append(&mut engine, fresh, &prompt[90..]);
    let seq = engine.create().unwrap();
    append(&mut engine, seq, &past);
    assert_eq!(engine.reuse_prefix(seq, &prompt).unwrap(), 90);
    assert_eq!(engine.tokens(seq).unwrap(), &prompt[..90]);
    assert!(append(&mut engine, seq, &prompt[90..]) == expected);
    assert_eq!(
        engine.reuse_prefix(seq, &prompt).unwrap(),
        149,
        "one is left to compute"
    );
    assert_eq!(engine.reuse_prefix(seq, &[2047]).unwrap(), 0);
    assert!(engine.tokens(seq).unwrap().is_empty());
}

/// A model most of whose layers see 32 tokens: older rows are dropped.
#[test]
fn windows_are_the_cpus() {
    let model = crate::support::random("gemma-tiny", None);
    let npu = crate::support::load(&model, Features::of(Mode::Fast), options(400));
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let cpu_options = EngineOptions {
        kv_type: KvType::BF16,
        ..EngineOptions::default()
    };
    let mut cpu = CpuEngine::new(model.clone(), cpu_options).unwrap();
    let vocab = model.model().config.vocab_size as u32;
    let text = |salt| -> Vec<u32> { noise(360, salt).iter().map(|t| t % vocab).collect() };
    let (tokens, others) = (text(1), text(2));
    let [seq, on_cpu] = [engine.create().unwrap(), cpu.create().unwrap()];
    let mut logits = Vec::new();
    for (start, end) in [(0, 300), (300, 301), (301, 360)] {
        logits = append(&mut engine, seq, &tokens[start..end]);
        let expected = append(&mut cpu, on_cpu, &tokens[start..end]);
        let apart = apart(&logits, &expected);
        assert!(apart < FROM_DECODE, "after {end}: {apart} of the largest");
    }
    engine.truncate(seq, 301).unwrap();
    append(&mut engine, seq, &others[301..]);
    engine.truncate(seq, 301).unwrap();
    assert!(append(&mut engine, seq, &tokens[301..]) == logits);
    let gone = engine.truncate(seq, 100).unwrap_err();
    assert!(matches!(gone, Error::WindowGone { len: 100, .. }), "{gone}");
    assert_eq!(engine.len(seq).unwrap(), 360);
    assert_eq!(engine.reuse_prefix(seq, &tokens[..100]).unwrap(), 0);
    let capacity_bytes = engine.kv_usage().capacity_bytes;
    assert!(capacity_bytes > 0 && engine.kv_usage().used_bytes == 0);
}

fn encode(model: &LoadedModel, text: &str) -> Vec<u32> {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    model.tokenizer().unwrap().encode(text, options)
}

fn write(engine: &mut dyn Engine, prompt: &[u32]) -> (Vec<u32>, String) {
    let params = GenerateParams {
        max_tokens: Some(16),
        ignore_end: true,
        ..GenerateParams::default()
    };
    let seq = engine.create().unwrap();
    let never = AtomicBool::new(false);
    let done = generate(engine, seq, prompt, &params, &never, &mut |_| {}).unwrap();
    assert_eq!(done.finish, Finish::Length);
    engine.release(seq).unwrap();
    (done.tokens, done.text)
}

/// Smallest lead of a text's tokens over all others, as a share of the largest logit.
fn least_gap(engine: &mut dyn Engine, prompt: &[u32], tokens: &[u32]) -> f32 {
    let seq = engine.create().unwrap();
    let mut logits = append(engine, seq, prompt);
    let mut least = f32::INFINITY;
    for &token in tokens {
        let largest = logits.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
        let chosen = std::mem::replace(&mut logits[token as usize], f32::NEG_INFINITY);
        let next = logits.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
        least = least.min((chosen - next) / largest);
        logits = append(engine, seq, &[token]);
    }
    engine.release(seq).unwrap();
    least
}

/// A text of which the model is sure: if two tokens are equally good, rounding decides.
#[test]
fn it_writes_what_the_cpu_writes() {
    let model = demo();
    let mut cpu = CpuEngine::new(model.clone(), EngineOptions::default()).unwrap();
    let prompt = encode(&model, "She said, \"I am a little");
    let (tokens, text) = write(&mut cpu, &prompt);
    let gap = least_gap(&mut cpu, &prompt, &tokens);
    assert!(gap > 2.0 * FROM_DECODE, "{text:?}: {gap}");
    assert_eq!(write(&mut short(), &prompt), (tokens, text));
}
