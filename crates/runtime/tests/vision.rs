//! Vision encoders, projectors and text models with images against Hugging Face transformers: at every level,
//! from every spelling of files; in one pass, in chunks, in ragged batches and after a kept prefix.
#![allow(clippy::unwrap_used)] // A test may panic.

#[path = "vision/grids.rs"]
mod grids;
#[path = "vision/plain.rs"]
mod plain;
#[path = "vision/refused.rs"]
mod refused;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use millrace_format::{Checkpoint, TensorSpec, safetensors};
use millrace_kernels::CpuOptions;
use millrace_runtime::vision::EncodedImage;
use millrace_runtime::vision::image::RgbImage;
use millrace_runtime::{
    BatchItem, Cpu, CpuEngine, Engine, EngineOptions, Error, Image, KvType, Level, LoadedModel,
    LogitsFor, VisionEncoder,
};
use millrace_testkit::compare::assert_logits_close;
use millrace_testkit::golden::GoldenMatrix;
use millrace_testkit::vision::{ExpectedImage, PLACEHOLDER, VisionGolden};

fn open(path: &Path) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}")))
}

fn cpu(level: Level) -> Cpu {
    let options = CpuOptions {
        n_threads: Some(2),
        level: Some(level),
    };
    Cpu::new(options).unwrap()
}

fn engine(model: &Arc<LoadedModel>, level: Option<Level>, max_chunk: usize) -> CpuEngine {
    let options = EngineOptions {
        level,
        kv_type: KvType::F32,
        max_sequences: 4,
        max_chunk,
        n_threads: Some(2),
        keep_prefixes: true,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::clone(model), options).unwrap()
}

fn encode(encoder: &VisionEncoder, cpu: &Cpu, image: &ExpectedImage) -> EncodedImage {
    let rgb = RgbImage::new(image.width, image.height, image.rgb.clone());
    let pixels = encoder.preprocess().apply(&rgb).unwrap().remove(0);
    for (found, expected) in pixels.data.iter().zip(&image.pixel_values.data) {
        assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
    }
    let watch = &mut |_, _| ControlFlow::Continue(());
    encoder.encode(cpu, &pixels, watch).unwrap().unwrap()
}

fn rows(width: usize, data: &[f32]) -> GoldenMatrix {
    let data = data.to_vec();
    GoldenMatrix { width, data }
}

/// Encoder output and projected rows of a vision encoder against the golden.
fn check_encoder(encoder: &VisionEncoder, level: Level, images: &[ExpectedImage], what: &str) {
    let cpu = cpu(level);
    for (i, image) in images.iter().enumerate() {
        let what = format!("{what}, image {i} at {level}");
        let found = encode(encoder, &cpu, image);
        let encoder = rows(encoder.config().d_model, &found.encoder);
        assert_logits_close(&encoder, &image.encoder, &format!("{what}, encoder"));
        let projected = rows(found.image.width(), found.image.rows());
        assert_logits_close(&projected, &image.projected, &format!("{what}, projected"));
    }
}

#[test]
fn encoders_are_those_of_transformers() {
    for golden in VisionGolden::all() {
        let model = open(golden.hf());
        let encoder = VisionEncoder::open(&model, None).unwrap();
        let own = VisionEncoder::open(&model, Some(&golden.mmproj())).unwrap();
        assert_eq!(encoder.config(), own.config());
        assert_eq!(encoder.placeholder(), PLACEHOLDER);
        for level in Level::supported() {
            check_encoder(&encoder, level, &golden.images(), golden.name);
            check_encoder(&own, level, &golden.images(), "mmproj");
        }
    }
}

/// The tensors of a folder under other names.
fn renamed(folder: &Path, rename: impl Fn(&str) -> String) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let file = Checkpoint::open(folder).unwrap();
    let specs: Vec<TensorSpec> = file
        .tensors()
        .iter()
        .map(|info| TensorSpec {
            name: rename(&info.name),
            tensor_type: info.tensor_type,
            shape: info.shape.clone(),
        })
        .collect();
    let path = out.path().join("model.safetensors");
    let mut writer = safetensors::Writer::create(&path, &BTreeMap::new(), &specs).unwrap();
    for (info, spec) in file.tensors().iter().zip(&specs) {
        let bytes = file.tensor(&info.name).unwrap().bytes;
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
    for name in ["config.json", "preprocessor_config.json"] {
        std::fs::copy(folder.join(name), out.path().join(name)).unwrap();
    }
    out
}

#[test]
fn all_spellings_of_names_are_read() {
    let golden = &VisionGolden::all()[1];
    let hub = |name: &str| match name.strip_prefix("vision_tower.") {
        Some(rest) => format!("vision_tower.vision_model.{rest}"),
        None => name.to_owned(),
    };
    let nested = |name: &str| {
        let name = name.replace("language_model.model.", "language_model.");
        format!("model.{}", hub(&name))
    };
    for folder in [renamed(golden.hf(), hub), renamed(golden.hf(), nested)] {
        let model = open(folder.path());
        let encoder = VisionEncoder::open(&model, None).unwrap();
        check_encoder(&encoder, Level::preferred(), &golden.images(), "renamed");
    }
    // The error for a missing weight of a vision encoder names it.
    let gap = renamed(golden.hf(), |name| match hub(name) {
        name if name.contains("layers.1.layer_norm2.bias") => "other".into(),
        name => name,
    });
    let error = VisionEncoder::open(&open(gap.path()), None).err().unwrap();
    assert!(
        error.to_string().contains("layers.1.layer_norm2.bias"),
        "{error}"
    );
}

/// The golden's vision encoder with any number of heads that divides its width, 144 or 48: heads that kernels support and heads that are
/// padded for them agree with the formulas.
#[test]
fn heads_of_any_width_are_those_of_the_formulas() {
    for golden in VisionGolden::all() {
        let config = std::fs::read_to_string(golden.hf().join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let d_model = config["vision_config"]["hidden_size"].as_u64().unwrap();
        let mut n_padded = 0;
        for n_heads in (1..=d_model).filter(|n| d_model.is_multiple_of(*n)) {
            let folder = renamed(golden.hf(), str::to_owned);
            let mut config = config.clone();
            config["vision_config"]["num_attention_heads"] = n_heads.into();
            std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
            let model = open(folder.path());
            let encoder = VisionEncoder::open(&model, None).unwrap();
            let image = &golden.images()[0];
            let expected = plain::encoder(&encoder, model.checkpoint(), &image.pixel_values.data);
            n_padded += usize::from(!(d_model / n_heads).is_multiple_of(8));
            for level in Level::supported() {
                let found = encode(&encoder, &cpu(level), image);
                let what = format!("{}: {n_heads} heads at {level}", golden.name);
                let found = rows(encoder.config().d_model, &found.encoder);
                assert_logits_close(&found, &expected, &what);
            }
        }
        assert!(n_padded >= 4, "{}", golden.name);
    }
}

/// The prompt with the ids of the images, and the images.
fn prompt(golden: &VisionGolden, encoder: &VisionEncoder) -> (Vec<u32>, Vec<Arc<Image>>) {
    let images: Vec<Arc<Image>> = golden
        .images()
        .iter()
        .map(|image| encode(encoder, &cpu(Level::preferred()), image).image)
        .collect();
    let mut ids = images.iter().flat_map(|image| image.ids());
    let tokens = golden.expected().tokens;
    let tokens = tokens.into_iter().map(|token| match token {
        PLACEHOLDER => ids.next().unwrap(),
        token => token,
    });
    (tokens.collect(), images)
}

fn logits(engine: &mut CpuEngine, parts: &[&[u32]], images: &[Arc<Image>]) -> GoldenMatrix {
    let seq = engine.create().unwrap();
    let mut data = Vec::new();
    for part in parts {
        let item = BatchItem::new(seq, part, LogitsFor::All).with_images(images);
        data.extend_from_slice(engine.compute(&[item]).unwrap().logits(0));
    }
    engine.release(seq).unwrap();
    rows(engine.model().model().config.vocab_size, &data)
}

#[test]
fn logits_and_hidden_states_with_images_are_those_of_transformers() {
    for golden in VisionGolden::all() {
        let model = open(golden.hf());
        let encoder = VisionEncoder::open(&model, None).unwrap();
        let (tokens, images) = prompt(&golden, &encoder);
        assert_as_transformers(&golden, &model, &tokens, &images);
    }
}

/// Logits and hidden states of a prompt with images are those of transformers, at every level.
fn assert_as_transformers(
    golden: &VisionGolden,
    model: &Arc<LoadedModel>,
    tokens: &[u32],
    images: &[Arc<Image>],
) {
    let expected = golden.expected();
    for level in Level::supported() {
        let mut engine = engine(model, Some(level), 512);
        let what = format!("{} at {level}", golden.name);
        let found = logits(&mut engine, &[tokens], images);
        assert_logits_close(&found, &expected.logits, &what);
        let seq = engine.create().unwrap();
        let item = BatchItem {
            hidden: true,
            ..BatchItem::new(seq, tokens, LogitsFor::None).with_images(images)
        };
        let output = engine.compute(&[item]).unwrap();
        let states = output.hidden(0).iter().zip(&expected.hidden).enumerate();
        for (i, (found, expected)) in states {
            let found = rows(output.d_model(), found);
            assert_logits_close(&found, expected, &format!("{what}, hidden state {i}"));
        }
    }
}

#[test]
fn chunks_batches_and_prefixes_change_no_bit() {
    for golden in VisionGolden::all() {
        let model = open(golden.hf());
        let encoder = VisionEncoder::open(&model, None).unwrap();
        let (tokens, images) = prompt(&golden, &encoder);
        let expected = logits(&mut engine(&model, None, 512), &[&tokens], &images);
        // Chunks that hold an image at least: the engine cuts before one that does not fit.
        for max_chunk in [images[0].n_rows(), images[0].n_rows() + 3, 33] {
            let mut engine = engine(&model, None, max_chunk);
            let found = logits(&mut engine, &[&tokens], &images);
            assert!(
                found == expected,
                "{} in chunks of {max_chunk}",
                golden.name
            );
        }
        let mut engine = engine(&model, None, 24);
        let start = tokens
            .iter()
            .position(|t| *t == images[0].ids().start)
            .unwrap();
        let end = start + images[0].n_rows();
        let parts = [&tokens[..start], &tokens[start..end], &tokens[end..]];
        assert!(
            logits(&mut engine, &parts, &images) == expected,
            "{}",
            golden.name
        );
        // In company, and again after cached parts of it.
        let [seq, other] = [0; 2].map(|_| engine.create().unwrap());
        let batch = [
            BatchItem::new(other, &[1, 2, 3], LogitsFor::Last),
            BatchItem::new(seq, &tokens, LogitsFor::All).with_images(&images),
        ];
        let found = engine.compute(&batch).unwrap();
        assert!(
            found.logits(1) == expected.data,
            "{} in company",
            golden.name
        );
        engine.release(seq).unwrap();
        let width = expected.width;
        for n_kept in [end, end - 1, start + 1, start] {
            let seq = engine.create().unwrap();
            let first = BatchItem::new(seq, &tokens, LogitsFor::None).with_images(&images);
            engine.compute(&[first]).unwrap();
            // As if the last token to reuse were this one.
            let held = engine.reuse_prefix(seq, &tokens[..n_kept + 1]).unwrap();
            let rest = BatchItem::new(seq, &tokens[held..], LogitsFor::All).with_images(&images);
            let found = engine.compute(&[rest]).unwrap();
            assert!(held <= n_kept && found.logits(0) == &expected.data[held * width..]);
            engine.release(seq).unwrap();
        }
    }
}

/// Two images in the same text are not mistaken for each other.
#[test]
fn another_image_is_not_a_kept_prefix() {
    let golden = &VisionGolden::all()[0];
    let model = open(golden.hf());
    let encoder = VisionEncoder::open(&model, None).unwrap();
    let (tokens, images) = prompt(golden, &encoder);
    let (others, other_images) = prompt(golden, &encoder);
    let mut engine = engine(&model, None, 512);
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, &tokens, LogitsFor::None).with_images(&images);
    engine.compute(&[item]).unwrap();
    let start = tokens
        .iter()
        .position(|t| *t == images[0].ids().start)
        .unwrap();
    assert_eq!(engine.reuse_prefix(seq, &others).unwrap(), start);
    let same = logits(&mut engine, &[&others], &other_images);
    assert!(same == logits(&mut engine, &[&tokens], &images));
    // The order of images matters, which shows that they are seen at all.
    let (a, b) = (images[0].rows().to_vec(), images[1].rows().to_vec());
    let swapped = [b, a].map(|rows| Image::new(images[0].width(), rows).unwrap());
    let mut ids = swapped.iter().flat_map(|image| image.ids());
    let exchanged: Vec<u32> = golden.expected().tokens.into_iter().collect();
    let exchanged = exchanged.into_iter().map(|token| match token {
        PLACEHOLDER => ids.next().unwrap(),
        token => token,
    });
    let exchanged: Vec<u32> = exchanged.collect();
    assert!(same != logits(&mut engine, &[&exchanged], &swapped));
}

#[test]
fn what_cannot_be_computed_is_refused_before_any_work() {
    let golden = &VisionGolden::all()[0];
    let model = open(golden.hf());
    let encoder = VisionEncoder::open(&model, None).unwrap();
    let (tokens, images) = prompt(golden, &encoder);
    let mut small = engine(&model, None, images[0].n_rows() - 1);
    let seq = small.create().unwrap();
    let item = BatchItem::new(seq, &tokens, LogitsFor::Last).with_images(&images);
    let error = small.compute(&[item]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadOption {
                option: "max-chunk",
                ..
            }
        ),
        "{error}"
    );
    let mut engine = engine(&model, None, 512);
    let seq = engine.create().unwrap();
    let start = tokens
        .iter()
        .position(|t| *t == images[0].ids().start)
        .unwrap();
    for (tokens, images) in [
        (&tokens[..], &images[1..]),
        (&tokens[..start + 3], &images),
        (&tokens[start + 3..], &images),
    ] {
        let item = BatchItem::new(seq, tokens, LogitsFor::Last).with_images(images);
        let error = engine.compute(&[item]).unwrap_err();
        assert!(matches!(error, Error::BadImage { .. }), "{error}");
        assert_eq!(engine.len(seq).unwrap(), 0);
    }
    // Nor can a sequence be cut within an image.
    let item = BatchItem::new(seq, &tokens, LogitsFor::None).with_images(&images);
    engine.compute(&[item]).unwrap();
    let error = engine.truncate(seq, start + 2).unwrap_err();
    assert!(matches!(error, Error::BadImage { .. }), "{error}");
    engine.truncate(seq, start).unwrap();
    // A text model, and another model's vision encoder.
    let text = millrace_testkit::golden::Golden::named("gemma3-pattern");
    let text = open(text.hf());
    let error = VisionEncoder::open(&text, None).err().unwrap();
    assert!(matches!(error, Error::NoVision { .. }), "{error}");
    let refused = |name: &str| {
        let other = millrace_testkit::golden::Golden::named(name);
        let encoder = VisionEncoder::open(&open(other.hf()), Some(&golden.mmproj()));
        encoder.err().unwrap()
    };
    let error = refused("gemma3-256");
    assert!(matches!(error, Error::OtherVisionEncoder { .. }), "{error}");
    let error = refused("llama-mha");
    assert!(
        matches!(error, Error::ForeignVisionEncoder { .. }),
        "{error}"
    );
}
