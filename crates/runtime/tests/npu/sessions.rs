//! Models on the virtual NPU: compared with the CPU engine, padded and not, in chunks, and after failures.

use crate::support::{demo, device, noise, on, padded_to};
use millrace_npu::{Inject, Injection, Traffic};
use millrace_runtime::npu::{NpuError, NpuModel, NpuOptions, NpuSession};
use millrace_runtime::sampling::argmax;
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel};
use millrace_xdna2::lower::{Feature, Features, Mode};
use std::sync::Arc;

const PROMPT: &str = "Once upon a time there was a";

fn load(model: &Arc<LoadedModel>, options: NpuOptions) -> Arc<NpuModel> {
    crate::support::load(model, Features::of(Mode::Fast), options)
}

/// In that mode, with prompts padded to 64 tokens.
fn in_mode(model: &Arc<LoadedModel>, mode: Mode) -> Arc<NpuModel> {
    crate::support::load(model, Features::of(mode), padded_to(64))
}

fn prompt(model: &LoadedModel) -> Vec<u32> {
    let tokenizer = model.tokenizer().unwrap();
    tokenizer.encode(
        PROMPT,
        millrace_text::EncodeOptions {
            add_special: true,
            parse_special: true,
        },
    )
}

/// How many logits are greater.
fn rank(logits: &[f32], token: u32) -> usize {
    logits
        .iter()
        .filter(|x| **x > logits[token as usize])
        .count()
}

/// The engine's choice is among the device's five likeliest and the device's among the engine's, step after step with the
/// engine's tokens.
#[test]
fn tokens_are_among_the_engines_best() {
    let model = demo();
    let npu = load(&model, NpuOptions::default());
    let mut session = NpuSession::new(&npu).unwrap();
    let mut engine = CpuEngine::new(model.clone(), EngineOptions::default()).unwrap();
    let seq = engine.create().unwrap();
    let prompt = prompt(&model);
    let mut expected = engine
        .compute(&[BatchItem::last(seq, &prompt)])
        .unwrap()
        .logits(0)
        .to_vec();
    let mut found = session.prefill(&prompt).unwrap().to_vec();
    for step in 0..6 {
        let token = argmax(&expected);
        assert!(rank(&found, token) < 5, "step {step}");
        assert!(rank(&expected, argmax(&found)) < 5, "step {step}");
        expected = engine
            .compute(&[BatchItem::last(seq, &[token])])
            .unwrap()
            .logits(0)
            .to_vec();
        found = session.decode(token).unwrap().to_vec();
    }
    assert_eq!(session.tokens().len(), prompt.len() + 6);
}

fn logits_of(npu: &Arc<NpuModel>, prompt: &[u32]) -> Vec<f32> {
    NpuSession::new(npu)
        .unwrap()
        .prefill(prompt)
        .unwrap()
        .to_vec()
}

/// Tokens after the real positions, padding or anything else, change no bit of them. The test looks
/// through every layer's keys and values, which decode reads.
#[test]
fn padding_changes_no_bit() {
    let model = demo();
    for mode in [Mode::Fast, Mode::MlirAir] {
        let npu = crate::support::load(&model, Features::of(mode), padded_to(256));
        let prompt = noise(200, 3);
        let decoded = |prompt: &[u32], kept: usize| {
            let mut session = NpuSession::new(&npu).unwrap();
            session.prefill(prompt).unwrap();
            session.truncate(kept).unwrap();
            [900, 901].map(|token| session.decode(token).unwrap().to_vec())
        };
        let padded = decoded(&prompt, 200);
        let followed = decoded(&[&prompt[..], &noise(56, 9)].concat(), 200);
        assert!(padded == followed, "{mode:?}");
        let other = decoded(&[&prompt[..199], &[7]].concat(), 200);
        assert!(padded != other, "{mode:?}: the prompt makes no difference");
    }
}

/// Everything but attention on the array goes by rows, so plans of different lengths give the same
/// bits where the host attends, as in the later chunks of a prompt.
#[test]
fn the_length_of_a_plan_changes_no_bit_where_the_host_attends() {
    let model = demo();
    let after_chunk = |n_padded| {
        let mut session = NpuSession::new(&load(&model, padded_to(n_padded))).unwrap();
        for token in noise(5, 2) {
            session.decode(token).unwrap();
        }
        session.prefill(&noise(20, 3)).unwrap().to_vec()
    };
    assert!(after_chunk(64) == after_chunk(256));
}

/// A prompt beyond one plan: later chunks attend on the host, over the whole cache.
#[test]
fn chunks_agree_with_the_engine() {
    let model = demo();
    let prompt: Vec<u32> = prompt(&model).repeat(20).into_iter().take(130).collect();
    let mut session = NpuSession::new(&load(&model, padded_to(64))).unwrap();
    let found = session.prefill(&prompt).unwrap().to_vec();
    assert_eq!(session.counters().prefill.n_passes, 3);
    assert_eq!(session.counters().prefill.n_tokens, 130);
    assert_eq!(session.counters().prefill.n_padded_tokens, 192);
    let mut engine = CpuEngine::new(model, EngineOptions::default()).unwrap();
    let seq = engine.create().unwrap();
    let expected = engine.compute(&[BatchItem::last(seq, &prompt)]).unwrap();
    assert!(rank(&found, argmax(expected.logits(0))) < 5);
    assert!(rank(expected.logits(0), argmax(&found)) < 5);
    // The tables of the first positions come back.
    session.truncate(0).unwrap();
    assert_eq!(session.prefill(&prompt).unwrap(), found);
}

fn bytes(written_elems: usize, read_elems: usize) -> Traffic {
    let (written_bytes, read_bytes) = (2 * written_elems as u64, 2 * read_elems as u64);
    Traffic {
        written_bytes,
        to_device_bytes: written_bytes,
        from_device_bytes: read_bytes,
        read_bytes,
    }
}

/// Traffic and dispatches of a prompt of that many tokens and then of a single token.
fn moved(npu: &Arc<NpuModel>, n_tokens: u32) -> [(Traffic, u64); 2] {
    let mut session = NpuSession::new(npu).unwrap();
    session.prefill(&noise(n_tokens, 3)).unwrap();
    session.decode(7).unwrap();
    let counters = *session.counters();
    session.decode(8).unwrap();
    let again = session.counters().decode;
    assert_eq!(again.device_ns, 2 * counters.decode.device_ns);
    assert!(again.device_ns > 0);
    let second = again.traffic - counters.decode.traffic;
    assert_eq!(second, counters.decode.traffic);
    [counters.prefill, counters.decode].map(|phase| (phase.traffic, phase.n_dispatches))
}

/// Bytes that crossed, against the description of each call in MLIR-AIR's Llama-3.2-1B example: inputs are
/// written and synced, outputs synced and read, nothing else moves.
#[test]
fn a_reference_pass_moves_inputs_and_outputs() {
    let model = demo();
    let npu = in_mode(&model, Mode::MlirAir);
    let loaded = npu.loaded_traffic();
    assert_eq!((loaded.from_device_bytes, loaded.read_bytes), (0, 0));
    let config = &model.model().config;
    let (q, kv, d) = (config.q_width(), config.kv_width(), config.d_model);
    let (n, n_layers, vocab) = (64, config.n_layers, config.vocab_size);
    let [prefill, decode] = moved(&npu, 10);
    // x · q, k, v → q, k, v → attention · attention, residual → the block's output.
    let written = n * n_layers * (d + q + 2 * kv + q + d) + d;
    let read = n * n_layers * (q + 2 * kv + q + d) + vocab;
    assert_eq!(prefill, (bytes(written, read), 3 * n_layers as u64 + 1));
    // x and two rows of angles → q, k, v · attention, residual → the block's output.
    let written = n_layers * (d + q + kv + q + d) + d;
    let read = n_layers * (q + 2 * kv + d) + vocab;
    assert_eq!(decode, (bytes(written, read), 2 * n_layers as u64 + 1));
}

/// With values in common buffers the host writes its own results and reads its own inputs: the
/// embeddings, keys and values of real tokens, the row before the head, logits; in decode also the
/// angles, queries, and the result of attention.
#[test]
fn a_pass_with_aliases_moves_what_the_host_computes_with() {
    let model = demo();
    let config = &model.model().config;
    let (q, kv, d) = (config.q_width(), config.kv_width(), config.d_model);
    let (n_layers, vocab) = (config.n_layers, config.vocab_size);
    let mut features = Features::of(Mode::Fast).without(Feature::CachedAttention);
    for merged in [true, false] {
        if !merged {
            features = features.without(Feature::MergedBlocks);
        }
        let saved = if merged { n_layers as u64 - 1 } else { 0 };
        let [prefill, decode] = moved(&crate::support::load(&model, features, padded_to(64)), 10);
        let expected = bytes(64 * d + d, 10 * n_layers * 2 * kv + d + vocab);
        assert_eq!(prefill, (expected, 3 * n_layers as u64 + 1 - saved));
        let expected = bytes(
            d + q + kv + n_layers * q + d,
            n_layers * (q + 2 * kv) + d + vocab,
        );
        assert_eq!(decode, (expected, 2 * n_layers as u64 + 1 - saved));
    }
}

/// The placement of values and the merging of programs into a dispatch change no bit: of prompts,
/// tokens, chunks whose tables move, and two sequences that take turns on the same registers.
#[test]
fn aliases_and_merged_blocks_change_no_bit() {
    let model = demo();
    let features = Features::of(Mode::Fast).without(Feature::CachedAttention);
    let run = |features| {
        let npu = crate::support::load(&model, features, padded_to(64));
        let mut sessions = [
            NpuSession::new(&npu).unwrap(),
            NpuSession::new(&npu).unwrap(),
        ];
        let mut logits = Vec::new();
        for turn in 0..3 {
            for (i, session) in sessions.iter_mut().enumerate() {
                let salt = 5 * turn + i as u32;
                logits.push(
                    session
                        .prefill(&noise(20 + 60 * salt % 130, salt))
                        .unwrap()
                        .to_vec(),
                );
                logits.push(session.decode(salt).unwrap().to_vec());
            }
        }
        logits
    };
    let expected = run(features
        .without(Feature::Alias)
        .without(Feature::MergedBlocks));
    assert!(run(features) == expected);
    assert!(run(features.without(Feature::MergedBlocks)) == expected);
    assert!(run(features.without(Feature::Alias)) == expected);
}

/// Buffers on the device are those of the plans in use, weights once; registers serve all layers and
/// all lengths of prompts.
#[test]
fn memory_holds_weights_once_and_registers() {
    let model = demo();
    let npu = load(&model, NpuOptions::default());
    // A token's plan brings the weights; a prompt's finds them there.
    let at_first = npu.memory();
    logits_of(&npu, &noise(100, 1));
    let long = npu.memory();
    let config = &model.model().config;
    let tables = |n_tokens: u64| 2 * n_tokens * (config.q_width() + config.kv_width()) as u64;
    assert_eq!(long.weight_bytes, at_first.weight_bytes + tables(128));
    let allocated = npu.cache_stats().allocated_bytes;
    assert_eq!(
        allocated,
        long.weight_bytes + long.activation_bytes + long.kv_bytes
    );
    // A shorter prompt needs its own small registers and tables; a second session needs nothing more.
    logits_of(&npu, &noise(10, 1));
    let both = npu.memory();
    assert_eq!(both.weight_bytes, long.weight_bytes + tables(64));
    logits_of(&npu, &noise(90, 2));
    assert_eq!(npu.memory(), both);
    let features = Features::of(Mode::Fast).without(Feature::Alias);
    let apart = crate::support::load(&model, features, NpuOptions::default());
    logits_of(&apart, &noise(100, 1));
    assert!(apart.memory().activation_bytes > long.activation_bytes);
    assert_eq!(apart.memory().weight_bytes, long.weight_bytes);
}

/// Buckets share one copy of the weights.
#[test]
fn a_second_bucket_loads_tables_only() {
    let model = demo();
    let npu = load(&model, NpuOptions::default());
    logits_of(&npu, &[5; 10]);
    let first = npu.loaded_traffic();
    logits_of(&npu, &[5; 100]);
    let second = npu.loaded_traffic() - first;
    let config = &model.model().config;
    let tables = 2 * 128 * (config.q_width() + config.kv_width()) as u64;
    assert_eq!(second.written_bytes, tables);
}

/// An observer sees every call in order, with all its slots, and changes nothing.
#[test]
fn an_observer_sees_every_call() {
    let model = demo();
    let npu = load(&model, padded_to(64));
    let tokens = prompt(&model);
    let mut session = NpuSession::new(&npu).unwrap();
    let expected = session.prefill(&tokens).unwrap().to_vec();
    let traffic = session.counters().prefill.traffic;
    let (told, seen) = std::sync::mpsc::channel();
    let n_tokens = tokens.len();
    session.truncate(0).unwrap();
    session.observe(Some(Box::new(move |o| {
        assert_eq!((o.first, o.n_real), (0, n_tokens));
        assert!(o.plan.calls().any(|call| call == o.call));
        for (slot, declared) in o.plan.programs[o.call.program].slots().iter().enumerate() {
            let bytes = o.cache.peek(o.key, slot).unwrap();
            assert_eq!(Some(bytes.len() as u64), declared.size_bytes());
            assert!(bytes.iter().any(|&byte| byte != 0), "{}: {slot}", o.key);
        }
        told.send(o.call.set.clone()).unwrap();
    })));
    assert!(session.prefill(&tokens).unwrap() == expected);
    session.observe(None);
    let seen: Vec<String> = seen.iter().collect();
    assert_eq!(
        seen.len() as u64,
        session.counters().prefill.n_dispatches / 2
    );
    assert_eq!(seen.last().map(String::as_str), Some("lm_head_gemv"));
    assert_eq!(session.counters().prefill.traffic - traffic, traffic);
}

#[test]
fn a_failed_call_ends_the_pass_and_not_the_session() {
    let model = demo();
    let device = device();
    let npu = on(
        &model,
        &device,
        Features::of(Mode::Fast),
        NpuOptions::default(),
    )
    .unwrap();
    let prompt = prompt(&model);
    let mut session = NpuSession::new(&npu).unwrap();
    session.prefill(&prompt).unwrap();
    session.decode(11).unwrap();
    let expected = session.decode(12).unwrap().to_vec();
    session.truncate(0).unwrap();
    for injection in [Injection::Timeout, Injection::StopAfter(3)] {
        device.inject(injection);
        let error = session.prefill(&prompt).unwrap_err();
        assert!(matches!(error, NpuError::Call { call: 1, .. }), "{error}");
        assert!(error.to_string().contains("rms_gemms_rope"), "{error}");
        assert!(session.tokens().is_empty());
    }
    session.prefill(&prompt).unwrap();
    session.decode(11).unwrap();
    let buffers = npu.cache_stats().allocated_bytes;
    for _ in 0..20 {
        device.inject(Injection::StopAfter(1));
        assert!(session.decode(12).is_err());
    }
    assert_eq!(session.tokens().len(), prompt.len() + 1);
    assert_eq!(npu.cache_stats().allocated_bytes, buffers);
    assert_eq!(session.decode(12).unwrap(), expected);
}

#[test]
fn bad_calls_change_nothing() {
    let model = demo();
    let options = NpuOptions {
        n_ctx: Some(8),
        ..NpuOptions::default()
    };
    let mut session = NpuSession::new(&load(&model, options)).unwrap();
    session.prefill(&[1, 2, 3]).unwrap();
    for tokens in [&[][..], &[1, 99_999], &[1; 6]] {
        assert!(session.prefill(tokens).is_err());
    }
    assert!(session.decode(99_999).is_err());
    assert_eq!(session.tokens(), [1, 2, 3]);
    assert_eq!(session.counters().prefill.n_passes, 1);
}
