//! A short head has the bits of the whole one, for the tokens that have a row.

use std::sync::Arc;

use millrace_testkit::draft::DraftGolden;

use super::*;
use crate::cpu_engine::{CpuEngine, EngineOptions};
use crate::engine::{BatchItem, Engine, LogitsFor};
use millrace_kernels::Level;

const SIZE: ShortHeadSize = ShortHeadSize {
    n_first: 17,
    n_recent: 7,
};

/// The draft layer of a fixture.
fn layer() -> Arc<LoadedModel> {
    let path = DraftGolden::named("qwen35").files().pop().unwrap();
    let model = LoadedModel::open(&path).unwrap();
    Arc::new(model.draft_layer().unwrap())
}

/// Logits after a row by the whole head, and those by a short one.
fn both(layer: &Arc<LoadedModel>, head: &mut ShortHead, level: Level) -> [Vec<f32>; 2] {
    let options = EngineOptions {
        level: Some(level),
        ..EngineOptions::default()
    };
    let given = vec![0.25; layer.model().config.d_model];
    [LogitsFor::Last, LogitsFor::None].map(|logits| {
        let mut engine = CpuEngine::new(Arc::clone(layer), options.clone()).unwrap();
        let seq = engine.create().unwrap();
        let item = BatchItem {
            given: &given,
            head_input: true,
            ..BatchItem::new(seq, &[3], logits)
        };
        let mut output = engine.compute(&[item]).unwrap();
        if logits == LogitsFor::None {
            head.complete(engine.cpu(), layer, &mut output);
        }
        output.logits(0).to_vec()
    })
}

fn check(layer: &Arc<LoadedModel>, head: &mut ShortHead, listed: &[u32]) {
    for level in Level::supported() {
        let [whole, short] = both(layer, head, level);
        assert_eq!(whole.len(), short.len());
        for (token, (whole, short)) in whole.iter().zip(&short).enumerate() {
            let is_listed = token < SIZE.n_first || listed.contains(&(token as u32));
            let expected = if is_listed { *whole } else { f32::NEG_INFINITY };
            let same = short.to_bits() == expected.to_bits();
            assert!(same, "{level}, token {token}: {short} for {expected}");
        }
    }
}

#[test]
fn listed_tokens_have_the_bits_of_the_whole_head_and_others_are_never_best() {
    let layer = layer();
    let mut head = ShortHead::new(&layer, SIZE).unwrap();
    let control = head.recent.clone();
    assert!(control.len() <= SIZE.n_recent / 2, "{control:?}");
    check(&layer, &mut head, &control);
    for token in [30, 2, 41, 30, 55] {
        head.read(&layer, token);
    }
    check(&layer, &mut head, &[&control[..], &[30, 41, 55]].concat());
}

#[test]
fn the_oldest_tokens_give_up_their_rows_and_control_tokens_keep_them() {
    let layer = layer();
    let mut head = ShortHead::new(&layer, SIZE).unwrap();
    let control = head.recent.clone();
    let n = head.n as u32;
    for token in (n - 40)..n {
        head.read(&layer, token);
    }
    let n_others = (SIZE.n_recent - control.len()) as u32;
    let newest: Vec<u32> = (n - n_others..n).collect();
    check(&layer, &mut head, &[&control[..], &newest].concat());
    assert_eq!(head.slots.len(), SIZE.n_recent);
    // An image's row is no token.
    head.read(&layer, u32::MAX);
    check(&layer, &mut head, &[&control[..], &newest].concat());
}

#[test]
fn texts_of_other_tokens_end_its_use_until_they_repeat() {
    let layer = layer();
    let mut head = ShortHead::new(&layer, SIZE).unwrap();
    assert!(head.is_useful());
    let n = head.n as u32;
    (0..400).for_each(|i| head.read(&layer, 20 + i % (n - 20)));
    assert!(!head.is_useful());
    (0..400).for_each(|i| head.read(&layer, 20 + i % 3));
    assert!(head.is_useful());
}

#[test]
fn a_short_head_is_less_than_half_of_the_whole_one() {
    let layer = layer();
    let n = layer.model().config.vocab_size;
    let head = |n_first| ShortHead::new(&layer, ShortHeadSize { n_first, ..SIZE });
    assert!(head(n / 2).is_none());
    assert!(head((n - 1) / 2 - SIZE.n_recent).is_some());
    // The default is for real vocabularies.
    assert!(ShortHead::new(&layer, ShortHeadSize::default()).is_none());
}
