//! Vision encoders that support images of any size, and text models whose positions have three axes.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_runtime::vision::EncodedImage;
use millrace_runtime::vision::image::{PixelValues, RgbImage};
use millrace_runtime::{
    BatchItem, Cpu, CpuEngine, Engine, Error, Image, ImageSight, Level, LogitsFor, VisionEncoder,
};
use millrace_testkit::compare::assert_logits_close;
use millrace_testkit::golden::GoldenMatrix;
use millrace_testkit::vision::{ExpectedImage, PLACEHOLDER, VisionGolden};

use crate::{assert_as_transformers, cpu, engine, logits, open, rows};

/// Pixel values as transformers' processor has them.
fn pixels(image: &ExpectedImage) -> PixelValues {
    let (width, data) = (image.pixel_values.width, image.pixel_values.data.clone());
    let height = data.len() / 3 / width;
    PixelValues {
        width,
        height,
        data,
    }
}

fn encode(encoder: &VisionEncoder, cpu: &Cpu, image: &ExpectedImage) -> EncodedImage {
    let watch = &mut |_, _| ControlFlow::Continue(());
    encoder.encode(cpu, &pixels(image), watch).unwrap().unwrap()
}

#[test]
fn encoders_of_any_size_are_those_of_transformers() {
    for golden in VisionGolden::on_grids() {
        let model = open(golden.hf());
        let own = VisionEncoder::open(&model, None).unwrap();
        let mmproj = VisionEncoder::open(&model, Some(&golden.mmproj())).unwrap();
        assert_eq!(own.placeholder(), PLACEHOLDER);
        for (i, image) in golden.images().iter().enumerate() {
            let rgb = RgbImage::new(image.width, image.height, image.rgb.clone());
            let found = own.preprocess().apply(&rgb).unwrap().remove(0);
            let expected = pixels(image);
            assert_eq!(
                (found.width, found.height),
                (expected.width, expected.height)
            );
            for (found, expected) in found.data.iter().zip(&expected.data) {
                assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
            }
            let n_rows = own.rows_of_image(image.width, image.height).unwrap();
            assert_eq!(n_rows * image.projected.width, image.projected.data.len());
            for level in Level::supported() {
                for (encoder, of) in [(&own, "folder"), (&mmproj, "mmproj")] {
                    let what = format!("{}, {of}, image {i} at {level}", golden.name);
                    check(&encode(encoder, &cpu(level), image), image, &what);
                }
            }
        }
    }
}

/// Compares the output of the blocks, the rows, and the rows added later.
fn check(found: &EncodedImage, expected: &ExpectedImage, what: &str) {
    let encoder = rows(expected.encoder.width, &found.encoder);
    assert_logits_close(&encoder, &expected.encoder, &format!("{what}, encoder"));
    let width = found.image.width();
    let projected = rows(width, found.image.rows());
    assert_logits_close(
        &projected,
        &expected.projected,
        &format!("{what}, projected"),
    );
    assert_eq!(
        found.image.n_layers_added(),
        expected.deepstack.len(),
        "{what}"
    );
    for (k, expected) in expected.deepstack.iter().enumerate() {
        let added = rows(width, found.image.summands(k).unwrap());
        assert_logits_close(&added, expected, &format!("{what}, deepstack {k}"));
    }
}

/// The prompt with the ids of the images, and the images.
fn prompt(golden: &VisionGolden, encoder: &VisionEncoder) -> (Vec<u32>, Vec<Arc<Image>>) {
    let cpu = cpu(Level::preferred());
    let images = golden.images();
    let images = images
        .iter()
        .map(|image| encode(encoder, &cpu, image).image);
    let images: Vec<Arc<Image>> = images.collect();
    let mut ids = images.iter().flat_map(|image| image.ids());
    let tokens = golden.expected().tokens.into_iter();
    let tokens = tokens.map(|token| match token {
        PLACEHOLDER => ids.next().unwrap(),
        token => token,
    });
    (tokens.collect(), images)
}

#[test]
fn logits_with_places_are_those_of_transformers() {
    for golden in VisionGolden::on_grids() {
        let model = open(golden.hf());
        let encoder = VisionEncoder::open(&model, None).unwrap();
        let (tokens, images) = prompt(&golden, &encoder);
        assert_as_transformers(&golden, &model, &tokens, &images);
    }
}

/// Images whose rows look back are cut wherever a chunk ends. However a prompt is cut, in company, after forks, rollbacks and kept
/// prefixes, the logits have the same bits.
#[test]
fn cuts_forks_and_prefixes_change_no_bit() {
    for golden in VisionGolden::on_grids() {
        let model = open(golden.hf());
        let encoder = VisionEncoder::open(&model, None).unwrap();
        let (tokens, images) = prompt(&golden, &encoder);
        let whole = logits(&mut engine(&model, None, 512), &[&tokens], &images);
        // Rows that see each other are computed together.
        let is_cut = model.model().config.image_sight() == ImageSight::Before;
        let max_chunks = if is_cut { [1, 7, 16] } else { [21, 24, 40] };
        for max_chunk in max_chunks {
            let mut engine = engine(&model, None, max_chunk);
            let found = logits(&mut engine, &[&tokens], &images);
            assert!(found == whole, "{} in chunks of {max_chunk}", golden.name);
        }
        let n_first = if is_cut {
            2
        } else {
            images[0].n_rows() as u32 - 1
        };
        let last_first = images[0].ids().start + n_first;
        let inside = tokens.iter().position(|t| *t == last_first).unwrap() + usize::from(!is_cut);
        let mut engine = engine(&model, None, 512);
        let parts = [
            &tokens[..inside],
            &tokens[inside..inside + 1],
            &tokens[inside + 1..],
        ];
        assert!(
            logits(&mut engine, &parts, &images) == whole,
            "{} in parts",
            golden.name
        );
        forks_agree(&mut engine, (&tokens, inside), &images, &whole);
        // A prefix that other sequences left, together with text.
        for n_kept in [tokens.len() - 1, 33, 17, inside] {
            let [seq, other] = [0; 2].map(|_| engine.create().unwrap());
            let held = engine.reuse_prefix(seq, &tokens[..n_kept + 1]).unwrap();
            let batch = [
                BatchItem::new(other, &[1, 2, 3], LogitsFor::Last),
                BatchItem::new(seq, &tokens[held..], LogitsFor::All).with_images(&images),
            ];
            let found = engine.compute(&batch).unwrap();
            let rest = &whole.data[held * whole.width..];
            assert!(
                held <= n_kept && found.logits(1) == rest,
                "{} of {n_kept}",
                golden.name
            );
            for seq in [seq, other] {
                engine.release(seq).unwrap();
            }
        }
    }
}

/// A sequence in the middle of an image is forked, and both go on; text after images is cut back and computed again.
fn forks_agree(
    engine: &mut CpuEngine,
    (tokens, inside): (&[u32], usize),
    images: &[Arc<Image>],
    whole: &GoldenMatrix,
) {
    let width = whole.width;
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, &tokens[..inside], LogitsFor::None).with_images(images);
    engine.compute(&[item]).unwrap();
    let fork = engine.fork(seq).unwrap();
    for seq in [fork, seq] {
        let item = BatchItem::new(seq, &tokens[inside..], LogitsFor::All).with_images(images);
        let found = engine.compute(&[item]).unwrap();
        assert!(found.logits(0) == &whole.data[inside * width..]);
    }
    let last = tokens.len() - 1;
    match engine.truncate(fork, last) {
        Ok(()) => {
            // The images are far back, and are not passed again.
            let item = BatchItem::new(fork, &tokens[last..], LogitsFor::All);
            let found = engine.compute(&[item]).unwrap();
            assert!(found.logits(0) == &whole.data[last * width..]);
        }
        // States after rows of images are not computed again.
        Err(error) => {
            let is_recurrent = engine.model().model().config.recurrent.is_some();
            assert!(
                is_recurrent && matches!(error, Error::WindowGone { .. }),
                "{error}"
            );
        }
    }
    for seq in [seq, fork] {
        engine.release(seq).unwrap();
    }
}

/// Rows of the same numbers on another grid rotate differently, and so does text after them.
#[test]
fn places_are_seen() {
    let golden = VisionGolden::named("qwen3vl-vision");
    let model = open(golden.hf());
    let encoder = VisionEncoder::open(&model, None).unwrap();
    let (tokens, images) = prompt(&golden, &encoder);
    let found = logits(&mut engine(&model, None, 512), &[&tokens], &images);
    let flat = images.iter().map(|image| {
        let (n, width) = (image.n_rows(), image.width());
        let added = (0..image.n_layers_added()).map(|k| image.summands(k).unwrap().to_vec());
        Image::on_grid(width, image.rows().to_vec(), (1, n), added.collect()).unwrap()
    });
    let flat: Vec<Arc<Image>> = flat.collect();
    let mut ids = flat.iter().flat_map(|image| image.ids());
    let tokens: Vec<u32> = golden.expected().tokens.into_iter().collect();
    let tokens = tokens.into_iter().map(|token| match token {
        PLACEHOLDER => ids.next().unwrap(),
        token => token,
    });
    let tokens: Vec<u32> = tokens.collect();
    let other = logits(&mut engine(&model, None, 512), &[&tokens], &flat);
    assert!(found != other);
}

#[test]
fn encoders_of_other_families_and_images_of_no_height_are_refused() {
    let golden = VisionGolden::named("qwen3vl-vision");
    let model = open(golden.hf());
    let refused = |mmproj: VisionGolden| {
        let error = VisionEncoder::open(&model, Some(&mmproj.mmproj()))
            .err()
            .unwrap();
        error.to_string()
    };
    let error = refused(VisionGolden::named("qwen2vl-vision"));
    assert!(
        error.contains("qwen2vl") && error.contains("qwen3vl"),
        "{error}"
    );
    let error = refused(VisionGolden::named("gemma3-vision"));
    assert!(error.contains("gemma3"), "{error}");
    let encoder = VisionEncoder::open(&model, None).unwrap();
    let error = encoder.rows_of_image(201, 1).unwrap_err();
    assert!(matches!(error, Error::BadImage { .. }), "{error}");
    let line = RgbImage::new(201, 1, vec![0; 603]);
    encoder.preprocess().apply(&line).unwrap_err();
    // Pixels that are not whole squares.
    let cpu = cpu(Level::preferred());
    for (width, height) in [(12, 16), (0, 8), (8, 8 * 2500)] {
        let pixels = PixelValues {
            width,
            height,
            data: vec![0.0; 3 * width * height],
        };
        let watch = &mut |_, _| ControlFlow::Continue(());
        let error = encoder.encode(&cpu, &pixels, watch).unwrap_err();
        assert!(matches!(error, Error::BadImage { .. }), "{error}");
    }
}
