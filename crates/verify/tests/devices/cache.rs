//! Devices that go wrong in attention over a cache: the check of ops names the program and the op.

use crate::support::{OneLayer, noise, random};
use millrace_npu::{Corruption, Inject, Injection};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuOptions, NpuSession};
use millrace_verify::ops::OpCheck;
use millrace_xdna2::lower::{Features, Mode};
use std::path::Path;
use std::sync::Arc;

/// A model with a cache so wide that the array is faster from the first keys on.
fn wide(window: Option<u64>, dir: &Path) -> Arc<LoadedModel> {
    let shapes = OneLayer {
        d_model: 64,
        d_ff: 64,
        n_heads: 32,
        head_dim: 128,
        vocab: 512,
        n_ctx: 4096,
        window,
    };
    shapes.write(dir)
}

/// A device that reads wrong rows is found: of a whole cache in decoding, and within the window in a prompt's later
/// passes.
#[test]
fn wrong_rows_of_the_cache_are_found() {
    let cases = [
        (None, ["k_cache", "v_cache"]),
        (Some(400), ["k_reached", "v_reached"]),
    ];
    for (window, slots) in cases {
        let dir = tempfile::tempdir().unwrap();
        let model = wide(window, dir.path());
        let device = crate::support::device();
        let options = NpuOptions {
            n_ctx: Some(8000),
            prefill_tokens: Some(64),
            ..NpuOptions::default()
        };
        let features = Features::of(Mode::Fast);
        let npu = crate::support::on(&model, &device, features, options).unwrap();
        let tokens: Vec<u32> = noise(40, 5).into_iter().map(|t| t % 512).collect();
        let finding = || {
            let mut session = NpuSession::new(&npu).unwrap();
            let (check, observer) = OpCheck::new(&npu);
            session.observe(Some(observer));
            session.prefill(&tokens).unwrap();
            match window {
                Some(_) => session.prefill(&tokens).unwrap(),
                None => session.decode(7).unwrap(),
            };
            check.summary().unwrap().finding
        };
        assert_eq!(finding(), None, "{window:?}");
        for slot in slots {
            device.inject(Injection::Corrupt {
                program: "cached_attn".to_owned(),
                slot: slot.to_owned(),
                how: Corruption::Some,
            });
            let found = finding().unwrap_or_else(|| panic!("{slot}: not found"));
            assert_eq!(found.program, "cached_attn", "{slot}: {found:?}");
            assert_eq!(found.op, Some("attn"), "{slot}: {found:?}");
            device.clear();
        }
    }
}

/// Wrong content of any slot of attention or the head is found: the check of ops names the op or the one that feeds it.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn wrong_slots_are_found() {
    let model = random("gemma-tiny", None);
    let options = NpuOptions {
        n_ctx: Some(600),
        prefill_tokens: Some(64),
        ..NpuOptions::default()
    };
    let vocab = model.model().config.vocab_size as u32;
    let prompt: Vec<u32> = noise(40, 7).into_iter().map(|t| t % vocab).collect();
    let device = crate::support::device();
    let npu = crate::support::on(&model, &device, Features::of(Mode::Int4), options).unwrap();
    let finding = || {
        let mut session = NpuSession::new(&npu).unwrap();
        let (check, observer) = OpCheck::new(&npu);
        session.observe(Some(observer));
        session.prefill(&prompt).unwrap();
        session.decode(7).unwrap();
        check.summary().unwrap().finding
    };
    assert_eq!(finding(), None);
    for slot in [
        "k_cache",
        "v_cache",
        "attn_parts",
        "attn",
        "position",
        "output_norm",
        "output_norm_w",
        "lm_head_w",
        "lm_head_logits",
    ] {
        device.inject(Injection::Corrupt {
            program: "token_layers".to_owned(),
            slot: slot.to_owned(),
            how: Corruption::Row,
        });
        let found = finding().unwrap_or_else(|| panic!("{slot}: not found"));
        assert_eq!(found.program, "token_layers", "{slot}: {found:?}");
        device.clear();
    }
    assert_eq!(finding(), None, "a wrong slot left its trace");
}
