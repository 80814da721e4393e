//! Prompts with images. Rows of one image see each other: on the array if a prompt's first pass has one image, on the host in
//! other passes. Products stay on the device. The logits equal those of the CPU's engine within the effect of rounding to bf16.

use crate::support::{apart, load, random};
use millrace_runtime::npu::{NpuModel, NpuOptions, PlannedEngine};
use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, Error, Image, LogitsFor};
use millrace_testkit::rng::Rng;
use millrace_xdna2::lower::{Features, Mode};
use std::sync::Arc;

/// Rows of an image: more than the model's window, and more than the logits that a pass of text returns.
const N_ROWS: usize = 140;

fn image(d_model: usize) -> Arc<Image> {
    Image::new(d_model, Rng::new(5).normals(N_ROWS * d_model, 1.0)).unwrap()
}

fn text(n: u32, salt: u32) -> impl Iterator<Item = u32> {
    (0..n).map(move |i| (i * 41 + salt) % 512)
}

/// Logits of every token of the parts, which are computed one after the other.
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

fn most_apart(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let rows = found.iter().zip(expected);
    rows.map(|(f, e)| apart(f, e)).fold(0.0, f32::max)
}

struct Setup {
    cpu: CpuEngine,
    npu: Arc<NpuModel>,
    image: Arc<Image>,
}

fn setup() -> Setup {
    let model = random("gemma-tiny", Some(7));
    let options = EngineOptions {
        n_ctx: Some(512),
        ..EngineOptions::default()
    };
    let on_npu = NpuOptions {
        n_ctx: Some(512),
        ..NpuOptions::default()
    };
    let features = Features::of(Mode::Fast);
    Setup {
        cpu: CpuEngine::new(Arc::clone(&model), options).unwrap(),
        npu: load(&model, features, on_npu),
        image: image(model.model().config.d_model),
    }
}

#[test]
fn rows_of_an_image_see_each_other_as_on_the_cpu() {
    let Setup {
        mut cpu,
        npu,
        image,
    } = setup();
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let (before, after): (Vec<u32>, Vec<u32>) = (text(9, 3).collect(), text(20, 7).collect());
    let (rows, token) = (image.ids().collect::<Vec<_>>(), [11]);
    let whole = [&before[..], &rows, &after].concat();
    let images = [Arc::clone(&image)];
    let expected = logits(&mut cpu, &[&whole, &token], &images);
    for parts in [
        vec![&whole[..], &token],
        vec![&before[..], &whole[before.len()..], &token],
        // Then a later pass of text over the rows of the image.
        vec![&whole[..before.len() + N_ROWS], &after, &token],
    ] {
        let n_dispatches = engine.phases().prefill.n_dispatches;
        let found = logits(&mut engine, &parts, &images);
        let worst = most_apart(&found, &expected);
        assert!(worst < 0.04, "{worst} in {} parts", parts.len());
        assert!(
            engine.phases().prefill.n_dispatches + engine.phases().check.n_dispatches
                > n_dispatches
        );
    }
    // As many images of one row each, which see nothing after them, are beyond that.
    let width = image.width();
    let single = image.rows().chunks_exact(width);
    let singles: Vec<Arc<Image>> = single
        .map(|row| Image::new(width, row.to_vec()).unwrap())
        .collect();
    let ids = singles.iter().flat_map(|image| image.ids());
    let causal: Vec<u32> = (before.iter().copied())
        .chain(ids)
        .chain(after.iter().copied())
        .collect();
    let found = logits(&mut engine, &[&causal, &token], &singles);
    let worst = most_apart(&found, &expected);
    assert!(worst > 0.1, "only {worst} where rows look back alone");
}

/// A prompt whose only pass has the image: the array attends. The last token and the next one see the cache, so
/// their logits cover every row.
#[test]
fn a_first_pass_with_an_image_is_the_arrays() {
    let Setup {
        mut cpu,
        npu,
        image,
    } = setup();
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let (before, after): (Vec<u32>, Vec<u32>) = (text(9, 3).collect(), text(20, 7).collect());
    let rows: Vec<u32> = image.ids().collect();
    let whole = [&before[..], &rows, &after].concat();
    let images = [Arc::clone(&image)];
    let last = |engine: &mut dyn Engine, images: &[Arc<Image>], whole: &[u32]| {
        let seq = engine.create().unwrap();
        let parts = [whole, &[11][..]];
        let rows = parts.map(|part| {
            let item = BatchItem::last(seq, part).with_images(images);
            engine.compute(&[item]).unwrap().logits(0).to_vec()
        });
        engine.release(seq).unwrap();
        rows.to_vec()
    };
    let expected = last(&mut cpu, &images, &whole);
    let found = last(&mut engine, &images, &whole);
    let worst = most_apart(&found, &expected);
    assert!(worst < 0.04, "{worst}");
    // Every layer's attention is a separate dispatch, with halves of blocks between them.
    let n_layers = 7;
    assert!(engine.phases().prefill.n_dispatches > 2 * n_layers);
}

#[test]
fn images_are_never_cut() {
    let Setup { npu, image, .. } = setup();
    let mut engine = PlannedEngine::new(&npu).unwrap();
    let images = [Arc::clone(&image)];
    let rows: Vec<u32> = image.ids().collect();
    let seq = engine.create().unwrap();
    let bad = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::BadImage { .. }), "{error}");
    };
    let compute = |engine: &mut PlannedEngine, tokens: &[u32], images: &[Arc<Image>]| {
        let item = BatchItem::last(seq, tokens).with_images(images);
        engine.compute(&[item]).map(|_| ())
    };
    bad(compute(&mut engine, &rows[..4], &images));
    bad(compute(&mut engine, &rows, &[]));
    compute(&mut engine, &rows, &images).unwrap();
    bad(engine.truncate(seq, 5));
    engine.truncate(seq, 0).unwrap();
    assert_eq!(engine.tokens(seq).unwrap(), [0; 0]);
}
