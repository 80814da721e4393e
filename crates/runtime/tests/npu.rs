//! Models on the virtual NPU: beside the CPU engine, padded and not, in chunks, and after failures.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Traffic;
use millrace_runtime::npu::{Features, Mode, NpuError, NpuModel, NpuOptions, NpuSession};
use millrace_runtime::sampling::argmax;
use millrace_runtime::{BatchItem, Engine, EngineOptions, LoadedModel};
use millrace_xdna2::device::{Injection, VirtualDevice};
use millrace_xdna2::{Machine, Profile};
use std::path::Path;
use std::sync::Arc;

const PROMPT: &str = "Once upon a time there was a";

fn demo() -> Arc<LoadedModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft.gguf");
    Arc::new(LoadedModel::open(&path).unwrap())
}

fn profile() -> Profile {
    Profile::builtin(Profile::DEFAULT).unwrap()
}

fn load(model: &Arc<LoadedModel>, options: NpuOptions) -> Arc<NpuModel> {
    let npu = NpuModel::load(model.clone(), Machine::npu2(), profile(), options);
    Arc::new(npu.unwrap_or_else(|error| panic!("{error}")))
}

fn padded_to(n_tokens: u64) -> NpuOptions {
    NpuOptions {
        prefill_tokens: Some(n_tokens),
        ..NpuOptions::default()
    }
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

/// The gate of seed 000 C, at every one of some steps with the engine's tokens.
#[test]
fn tokens_are_among_the_engines_best() {
    let model = demo();
    let npu = load(&model, NpuOptions::default());
    let mut session = NpuSession::new(&npu);
    let mut engine = Engine::new(model.clone(), EngineOptions::default()).unwrap();
    let seq = engine.create().unwrap();
    let prompt = prompt(&model);
    let mut expected = engine
        .step(&[BatchItem::last(seq, &prompt)])
        .unwrap()
        .logits(0)
        .to_vec();
    let mut found = session.prefill(&prompt).unwrap().to_vec();
    for step in 0..6 {
        let token = argmax(&expected);
        assert!(rank(&found, token) < 5, "step {step}");
        assert!(rank(&expected, argmax(&found)) < 5, "step {step}");
        expected = engine
            .step(&[BatchItem::last(seq, &[token])])
            .unwrap()
            .logits(0)
            .to_vec();
        found = session.decode(token).unwrap().to_vec();
    }
    assert_eq!(session.tokens().len(), prompt.len() + 6);
}

fn logits_of(npu: &Arc<NpuModel>, prompt: &[u32]) -> Vec<f32> {
    NpuSession::new(npu).prefill(prompt).unwrap().to_vec()
}

/// Some tokens, and different ones by salt.
fn noise(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 41 + salt) % 2048).collect()
}

/// Seed 000 A6: what follows the real positions, padding or anything else, changes no bit of them.
/// Looked at through every layer's keys and values, which decode reads.
#[test]
fn padding_changes_no_bit() {
    let model = demo();
    for mode in [Mode::Best, Mode::Reference] {
        let npu = load(
            &model,
            NpuOptions {
                features: Features::of(mode),
                ..padded_to(256)
            },
        );
        let prompt = noise(200, 3);
        let decoded = |prompt: &[u32], kept: usize| {
            let mut session = NpuSession::new(&npu);
            session.prefill(prompt).unwrap();
            session.truncate(kept);
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
        let mut session = NpuSession::new(&load(&model, padded_to(n_padded)));
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
    let mut session = NpuSession::new(&load(&model, padded_to(64)));
    let found = session.prefill(&prompt).unwrap().to_vec();
    assert_eq!(session.counters().prefill.n_passes, 3);
    assert_eq!(session.counters().prefill.n_tokens, 130);
    assert_eq!(session.counters().prefill.n_padded_tokens, 192);
    let mut engine = Engine::new(model, EngineOptions::default()).unwrap();
    let seq = engine.create().unwrap();
    let expected = engine.step(&[BatchItem::last(seq, &prompt)]).unwrap();
    assert!(rank(&found, argmax(expected.logits(0))) < 5);
    assert!(rank(expected.logits(0), argmax(&found)) < 5);
    // The tables of the first positions come back.
    session.truncate(0);
    assert_eq!(session.prefill(&prompt).unwrap(), found);
}

/// Bytes that crossed, against what seed 000 B5 and B6 say of each call: inputs are written and
/// synced, outputs synced and read, nothing else moves.
#[test]
fn a_pass_moves_inputs_and_outputs_only() {
    let model = demo();
    let npu = load(&model, padded_to(64));
    let loaded = npu.loaded_traffic();
    assert_eq!((loaded.from_device_bytes, loaded.read_bytes), (0, 0));
    let mut session = NpuSession::new(&npu);
    session.prefill(&prompt(&model)).unwrap();
    session.decode(7).unwrap();
    let before = *session.counters();
    session.decode(8).unwrap();
    let decode = session.counters().decode;
    let n_layers = model.model().config.n_layers as u64;
    assert_eq!(
        decode.n_dispatches - before.decode.n_dispatches,
        2 * n_layers + 1
    );
    assert_eq!(before.prefill.n_dispatches, 3 * n_layers + 1);
    let moved = decode.traffic - before.decode.traffic;
    assert_eq!(moved, decode_traffic(&model));
    assert_eq!(decode.device_ns, 2 * before.decode.device_ns);
    assert!(decode.device_ns > 0);
}

/// Slots of a token's calls by the program table of seed 000 B5: `rms_gemv_rope` takes x and the two
/// rows of angles and gives q, k, v; `o_gemv_ffn` takes attention and residual and gives the block's
/// output; the head takes a row and gives the vocabulary.
fn decode_traffic(model: &LoadedModel) -> Traffic {
    let config = &model.model().config;
    let (q, kv, d) = (config.q_width(), config.kv_width(), config.d_model);
    let written = config.n_layers * (d + q + kv + q + d) + d;
    let read = config.n_layers * (q + 2 * kv + d) + config.vocab_size;
    let bytes = |elems: usize| 2 * elems as u64;
    Traffic {
        written_bytes: bytes(written),
        to_device_bytes: bytes(written),
        from_device_bytes: bytes(read),
        read_bytes: bytes(read),
    }
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

#[test]
fn a_failed_call_ends_the_pass_and_not_the_session() {
    let model = demo();
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let device = Arc::new(VirtualDevice::new(Machine::npu2(), profile(), cpu));
    let npu = NpuModel::on(
        model.clone(),
        Machine::npu2(),
        device.clone(),
        NpuOptions::default(),
    );
    let npu = Arc::new(npu.unwrap());
    let prompt = prompt(&model);
    let mut session = NpuSession::new(&npu);
    session.prefill(&prompt).unwrap();
    session.decode(11).unwrap();
    let expected = session.decode(12).unwrap().to_vec();
    session.truncate(0);
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
    let mut session = NpuSession::new(&load(&model, options));
    session.prefill(&[1, 2, 3]).unwrap();
    for tokens in [&[][..], &[1, 99_999], &[1; 6]] {
        assert!(session.prefill(tokens).is_err());
    }
    assert!(session.decode(99_999).is_err());
    assert_eq!(session.tokens(), [1, 2, 3]);
    assert_eq!(session.counters().prefill.n_passes, 1);
}
