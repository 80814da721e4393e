//! Prompts with images: their passes have attention on the host. The chip's copy of the cache is brought up to date
//! behind them for later passes, even where the chip appends for itself.

use crate::target::{best, load, random, settings, tokens};
use millrace_runtime::npu::PlannedEngine;
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, Image, KvType, LogitsFor};
use std::sync::Arc;

/// Logits of all tokens of the parts, one after the other; single ones are written by decode.
fn logits(engine: &mut dyn Engine, parts: &[&[u32]], images: &[Arc<Image>]) -> Vec<Vec<f32>> {
    let seq = engine.create().unwrap();
    let mut rows = Vec::new();
    for part in parts {
        let item = BatchItem::new(seq, part, LogitsFor::All).with_images(images);
        let output = engine.compute(&[item]).unwrap();
        let width = output.vocab_size();
        rows.extend(output.logits(0).chunks_exact(width).map(<[f32]>::to_vec));
    }
    engine.release(seq).unwrap();
    rows
}

#[test]
fn what_follows_an_image_sees_it() {
    let model = random("gemma-tiny");
    let d_model = model.model().config.d_model;
    // As large as scaled embeddings are.
    let element = |i: usize| (i * 7919 % 401) as f32 / 100.0 - 2.0;
    let image = Image::new(d_model, (0..40 * d_model).map(element).collect()).unwrap();
    let rows: Vec<u32> = image.ids().collect();
    let text = tokens(60, 512);
    let whole = [&text[..9], &rows, &text[9..29]].concat();
    let parts = [
        &whole[..],
        &text[30..31],
        &text[31..32],
        &text[32..50],
        &text[50..51],
    ];
    let images = [image];
    let options = EngineOptions {
        n_ctx: Some(300),
        kv_type: KvType::BF16,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let mut cpu = CpuEngine::new(Arc::clone(&model), options).unwrap();
    let expected = logits(&mut cpu, &parts, &images);
    for settings in [settings("bf16"), best("bf16")] {
        let mut engine = PlannedEngine::new(&load(&model, &settings)).unwrap();
        let found = logits(&mut engine, &parts, &images);
        assert_eq!(found.len(), expected.len());
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let range = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            let worst = apart.fold(0.0_f32, f32::max) / range;
            assert!(worst < 0.04, "{worst} at {at}, {settings:?}");
        }
    }
}
