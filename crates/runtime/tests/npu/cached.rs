//! Attention over the cache on the array: compared with the host's, with sessions that take turns,
//! and the traffic for it.

use crate::support::{OneLayer, apart, demo, noise};
use millrace_graph::Op;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_verify::ops::OpCheck;
use millrace_xdna2::lower::{Feature, Features, Mode};
use std::path::Path;
use std::sync::Arc;

fn load(model: &Arc<LoadedModel>, features: Features, n_padded: u64) -> Arc<NpuModel> {
    let options = NpuOptions {
        n_ctx: Some(8000),
        prefill_tokens: Some(n_padded),
        ..NpuOptions::default()
    };
    crate::support::load(model, features, options)
}

fn both(model: &Arc<LoadedModel>, n_padded: u64) -> [Arc<NpuModel>; 2] {
    let all = Features::of(Mode::Fast);
    [all, all.without(Feature::CachedAttention)].map(|f| load(model, f, n_padded))
}

fn n_layers(model: &LoadedModel) -> u64 {
    let nodes = model.model().graph.nodes.iter();
    nodes.filter(|n| matches!(n.op, Op::Attention(_))).count() as u64
}

/// The host computes in f32, the array in bf16 tiles: as close as flash attention is.
fn assert_close(array: &[f32], host: &[f32]) {
    let apart = apart(array, host);
    assert!(apart < 0.05, "{apart} of the largest");
    assert!(array != host, "the same bits: was it the array?");
}

#[test]
fn later_chunks_attend_on_the_array() {
    let model = demo();
    let prompt = noise(200, 3);
    let [array, host] = both(&model, 64).map(|npu| {
        let mut session = NpuSession::new(&npu).unwrap();
        let logits = session.prefill(&prompt).unwrap().to_vec();
        (logits, *session.counters())
    });
    assert_close(&array.0, &host.0);
    let more = array.1.prefill.n_dispatches - host.1.prefill.n_dispatches;
    assert_eq!(more, 3 * n_layers(&model));
}

/// With heads of 256 the first pass treats keys as later ones do, so bits do not tell how a prompt was cut.
#[test]
fn a_prompt_of_wide_heads_is_cut_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let shapes = OneLayer {
        d_model: 64,
        d_ff: 64,
        n_heads: 16,
        head_dim: 256,
        vocab: 512,
        n_ctx: 4096,
        window: None,
    };
    let model = shapes.write(dir.path());
    let prompt: Vec<u32> = noise(128, 9).into_iter().map(|t| t % 512).collect();
    let [at_once, in_two] = [128, 64].map(|n_padded| {
        let npu = load(&model, Features::of(Mode::Fast), n_padded);
        let mut session = NpuSession::new(&npu).unwrap();
        let logits = session.prefill(&prompt).unwrap().to_vec();
        (logits, session.counters().prefill.n_dispatches)
    });
    // The array also computes attention of the second pass.
    assert_eq!(2 * at_once.1, in_two.1);
    assert!(at_once.0 == in_two.0);
}

const HEADS: u64 = 32;
const HEAD_DIM: u64 = 128;

/// A model with a cache so wide that the array is faster from the first keys on.
fn wide(window: Option<u64>, dir: &Path) -> Arc<LoadedModel> {
    let shapes = OneLayer {
        d_model: 64,
        d_ff: 64,
        n_heads: HEADS,
        head_dim: HEAD_DIM,
        vocab: 512,
        n_ctx: 4096,
        window,
    };
    shapes.write(dir)
}

#[test]
fn a_token_attends_on_the_array_and_brings_its_own_row() {
    let dir = tempfile::tempdir().unwrap();
    let model = wide(None, dir.path());
    let prompt: Vec<u32> = noise(40, 5).into_iter().map(|t| t % 512).collect();
    let [array, host] = both(&model, 64).map(|npu| {
        let mut session = NpuSession::new(&npu).unwrap();
        session.prefill(&prompt).unwrap();
        session.decode(77).unwrap();
        let first = session.counters().decode;
        let logits = session.decode(78).unwrap().to_vec();
        let second = session.counters().decode;
        let n_dispatches = second.n_dispatches - first.n_dispatches;
        (
            logits,
            n_dispatches,
            second.traffic - first.traffic,
            first.traffic,
        )
    });
    assert_close(&array.0, &host.0);
    assert_eq!(array.1 - host.1, 1);
    // The first token found nothing of the cache on the device and brought the prompt's rows, the
    // second only its own.
    let row = 4 * HEADS * HEAD_DIM;
    let other = 16 * 1024;
    assert!(
        (row..row + other).contains(&array.2.to_device_bytes),
        "{:?}",
        array.2
    );
    let all = 41 * row;
    assert!(
        (all..all + other).contains(&array.3.to_device_bytes),
        "{:?}",
        array.3
    );
}

#[test]
fn sessions_take_turns_with_the_devices_cache() {
    let model = demo();
    let npu = load(&model, Features::of(Mode::Fast), 64);
    let alone = |salt: u32| {
        let mut session = NpuSession::new(&npu).unwrap();
        session.prefill(&noise(100, salt)).unwrap();
        session.prefill(&noise(50, salt + 1)).unwrap().to_vec()
    };
    let (first, second) = (alone(1), alone(2));
    assert!(first != second);
    let [mut a, mut b] = [1, 2].map(|salt| {
        let mut session = NpuSession::new(&npu).unwrap();
        session.prefill(&noise(100, salt)).unwrap();
        session
    });
    assert!(a.prefill(&noise(50, 2)).unwrap() == first);
    assert!(b.prefill(&noise(50, 3)).unwrap() == second);
    // Tokens cut off and computed again, from another position, leave nothing behind.
    a.truncate(30).unwrap();
    a.prefill(&noise(80, 9)).unwrap();
    a.truncate(0).unwrap();
    a.prefill(&noise(100, 1)).unwrap();
    assert!(a.prefill(&noise(50, 2)).unwrap() == first);
}

/// Rows that have left a window are dropped on the host. When a sequence comes back to the device they
/// are not brought there again, and rows of another sequence in their place are not seen.
#[test]
fn a_window_moves_on_over_the_devices_cache() {
    let dir = tempfile::tempdir().unwrap();
    let model = wide(Some(400), dir.path());
    let tokens = |salt| -> Vec<u32> { noise(600, salt).into_iter().map(|t| t % 512).collect() };
    let [array, host] = both(&model, 256).map(|npu| {
        let [mut a, mut b, mut alone] = [0; 3].map(|_| NpuSession::new(&npu).unwrap());
        alone.prefill(&tokens(1)).unwrap();
        let expected = [7, 8].map(|token| alone.decode(token).unwrap().to_vec());
        a.prefill(&tokens(1)).unwrap();
        b.prefill(&tokens(2)).unwrap();
        let mut logits = Vec::new();
        let mut traffic = Vec::new();
        for token in [7, 8] {
            let before = a.counters().decode;
            logits.push(a.decode(token).unwrap().to_vec());
            traffic.push(a.counters().decode.traffic - before.traffic);
            b.decode(token).unwrap();
        }
        assert!(logits == expected);
        (logits, traffic, a.counters().decode.n_dispatches)
    });
    assert_eq!(array.2, host.2 + 2);
    for (array, host) in array.0.iter().zip(&host.0) {
        assert_close(array, host);
    }
    let row = 4 * HEADS * HEAD_DIM;
    for traffic in array.1 {
        let n_rows = traffic.to_device_bytes / row;
        assert!((400..=480).contains(&n_rows), "{n_rows} rows");
    }
}

/// Later passes of a layer with a window read the rows within it, including those of a sequence shorter than the
/// window: every op is within its tolerance, and compared with the host's.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn a_window_is_reached_from_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let model = wide(Some(400), dir.path());
    let tokens = |n: u32| -> Vec<u32> {
        let tokens = noise(n, n).into_iter();
        tokens.map(|t| t % 512).collect()
    };
    let [array, host] = both(&model, 256).map(|npu| {
        let mut session = NpuSession::new(&npu).unwrap();
        let (check, observer) = OpCheck::new(&npu);
        session.observe(Some(observer));
        let passes = [10, 200, 256, 33].map(|n| {
            let logits = session.prefill(&tokens(n)).unwrap();
            logits.to_vec()
        });
        let summary = check.summary().unwrap();
        assert!(summary.finding.is_none(), "{:?}", summary.finding);
        (passes, session.counters().prefill.n_dispatches)
    });
    assert_eq!(array.1, host.1 + 3);
    for (array, host) in array.0.iter().zip(&host.0).skip(1) {
        assert_close(array, host);
    }
}
