//! Devices that fail during an engine's step: the tokens that its sequences hold then, and that they continue from there.

use crate::support::{append, demo, noise};
use millrace_npu::{Inject, Injection};
use millrace_runtime::npu::{NpuOptions, PlannedEngine};
use millrace_runtime::{BatchItem, Engine, Error, ItemRows, LoadedModel, PAGE_TOKENS};
use millrace_xdna2::lower::{Features, Mode};
use millrace_xdna2_machine::device::VirtualDevice;
use std::sync::Arc;

/// Prompts go in passes of 64 tokens; later ones attend over the cache on the array.
fn failing() -> (Arc<VirtualDevice>, PlannedEngine) {
    let device = crate::support::device();
    let options = NpuOptions {
        n_ctx: Some(8000),
        max_sequences: 4,
        ..crate::support::padded_to(64)
    };
    let npu = crate::support::on(&demo(), &device, Features::of(Mode::Fast), options);
    (device, PlannedEngine::new(&npu.unwrap()).unwrap())
}

/// A device that fails in the second pass of the second item.
#[test]
fn a_failure_amid_a_step_leaves_sequences_at_their_last_complete_pass() {
    let (device, mut engine) = failing();
    let [a, b] = [0; 2].map(|_| engine.create().unwrap());
    let (short, long) = (noise(10, 1), noise(150, 2));
    append(&mut engine, a, &short);
    let n_calls = engine.phases().prefill.n_dispatches;
    let expected_a = append(&mut engine, a, &[5]);
    append(&mut engine, b, &long[..64]);
    let expected_b = append(&mut engine, b, &long[64..]);
    for seq in [a, b] {
        engine.truncate(seq, 0).unwrap();
    }
    for injection in [Injection::Timeout, Injection::StopAfter(3), Injection::Lose] {
        let counters = engine.counters();
        let used_bytes = engine.kv_usage().used_bytes;
        // A pass of each item, and some of the next.
        device.inject_after(2 * n_calls + 2, injection.clone());
        let batch = [BatchItem::last(a, &short), BatchItem::last(b, &long)];
        let mut n_rows = 0;
        let mut sink = |_: ItemRows<'_>| n_rows += 1;
        let error = engine.step(&batch, &mut sink).unwrap_err();
        assert!(matches!(error, Error::Device(_)), "{error}");
        assert_eq!(n_rows, 1, "the first item was complete");
        assert_eq!(engine.tokens(a).unwrap(), short, "{injection:?}");
        assert_eq!(engine.tokens(b).unwrap(), &long[..64], "{injection:?}");
        assert_eq!(engine.counters().n_steps, counters.n_steps);
        assert_eq!(engine.counters().n_tokens, counters.n_tokens + 74);
        let pages = engine.kv_usage().used_bytes - used_bytes;
        assert_eq!(pages, page_bytes(engine.model()) * 2, "{injection:?}");
        if injection == Injection::Lose {
            let error = engine.compute(&batch[..1]).unwrap_err();
            assert!(matches!(error, Error::Device(_)), "{error}");
            device.revive();
        }
        let on_b = append(&mut engine, b, &long[64..]);
        assert!(on_b == expected_b, "{injection:?}");
        assert!(append(&mut engine, a, &[5]) == expected_a, "{injection:?}");
        for seq in [a, b] {
            engine.truncate(seq, 0).unwrap();
        }
    }
}

/// Bytes of a page of all layers, in bf16.
fn page_bytes(model: &LoadedModel) -> usize {
    let config = &model.model().config;
    2 * 2 * PAGE_TOKENS * config.kv_width() * config.n_layers
}

/// Pages prepared for a failed pass belong to no sequence: a fork shares none of them.
#[test]
fn a_fork_after_a_failure_is_as_any_other() {
    let (device, mut engine) = failing();
    // In one pass, to the page after that of the past.
    let (past, one, other) = (noise(5, 1), noise(62, 2), noise(62, 3));
    let parent = engine.create().unwrap();
    append(&mut engine, parent, &past);
    append(&mut engine, parent, &one);
    let expected = append(&mut engine, parent, &[7]);
    engine.truncate(parent, 5).unwrap();
    device.inject(Injection::Timeout);
    assert!(engine.compute(&[BatchItem::last(parent, &one)]).is_err());
    let child = engine.fork(parent).unwrap();
    append(&mut engine, parent, &one);
    append(&mut engine, child, &other);
    assert!(append(&mut engine, parent, &[7]) == expected);
}
