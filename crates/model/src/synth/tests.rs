use std::fs;
use std::ops::ControlFlow;

use millrace_format::gguf::GgufArray;
use millrace_format::{Checkpoint, Source, TensorInfo};
use tempfile::tempdir;

use super::plan::info_of;
use super::*;
use crate::{Model, VisionModel};

fn options(recipe: &str) -> SynthOptions<'static> {
    let recipe = Recipe::parse(recipe).unwrap();
    SynthOptions {
        recipe,
        vocab: None,
        vision: false,
        n_layers: Some(2),
        seed: 1,
        n_threads: Some(2),
    }
}

fn tiny(name: &str) -> ModelGeometry {
    ModelGeometry::named(name).unwrap()
}

fn make(geometry: &str, out: &Path, options: &SynthOptions<'_>) -> SynthSummary {
    write(tiny(geometry), out, options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn every_family_and_recipe_opens_as_gguf() {
    let folder = tempdir().unwrap();
    for geometry in ["llama-tiny", "gemma-tiny", "qwen-tiny", "qwen35-tiny"] {
        // Encoding and syncing take time: one family shows that every recipe can be written.
        let all = Recipe::all().filter(|recipe| !recipe.is_q4nx());
        let is_shown = |recipe: &Recipe| geometry == "llama-tiny" || recipe.name() == "Q4_K_M";
        for recipe in all.filter(is_shown) {
            let out = folder.path().join(format!("{geometry}-{recipe}.gguf"));
            let options = SynthOptions {
                n_layers: Some(1),
                ..options(recipe.name())
            };
            let written = make(geometry, &out, &options);
            let checkpoint = Checkpoint::open(&out).unwrap();
            let model = Model::from_checkpoint(&checkpoint).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(checkpoint.size_bytes(), written.size_bytes);
            let rope = model.config.rope.as_named(model.config.n_rot);
            let config = ModelConfig {
                rope: rope.unwrap_or(model.config.rope.clone()),
                ..model.config.clone()
            };
            assert_eq!(config, written.config, "{geometry} {recipe}");
        }
    }
}

#[test]
fn folders_and_bundles_open_with_the_same_configuration() {
    let folder = tempdir().unwrap();
    let cases = [
        ("llama-tiny", "F32"),
        ("gemma-tiny", "BF16"),
        ("qwen-tiny", "F16"),
        ("qwen35-tiny", "F16"),
        ("granitehybrid-tiny", "F16"),
        ("gemma-tiny", "Q4NX"),
    ];
    for (geometry, recipe) in cases {
        let out = folder.path().join(format!("{geometry}-{recipe}"));
        let written = make(geometry, &out, &options(recipe));
        let checkpoint = Checkpoint::open(&out).unwrap();
        let model = Model::from_checkpoint(&checkpoint).unwrap_or_else(|e| panic!("{e}"));
        // A bundle has a separate head where the table is already scaled.
        assert_eq!(
            model.config.tied_head,
            recipe != "Q4NX" && geometry != "qwen-tiny"
        );
        let tied_head = model.config.tied_head;
        let expected = ModelConfig {
            tied_head,
            ..written.config
        };
        assert_eq!(model.config, expected);
        assert!(checkpoint.hf().unwrap().tokenizer_json.is_some());
    }
}

#[test]
fn bytes_depend_on_the_seed_and_not_on_the_threads() {
    let folder = tempdir().unwrap();
    let file = |name: &str, seed: u64, n_threads: usize| {
        let out = folder.path().join(name);
        let options = SynthOptions {
            seed,
            n_threads: Some(n_threads),
            ..options("Q4_K_M")
        };
        make("llama-tiny", &out, &options);
        fs::read(out).unwrap()
    };
    let one = file("a.gguf", 5, 1);
    assert_eq!(one, file("b.gguf", 5, 3));
    let other = file("c.gguf", 6, 1);
    assert_eq!(one.len(), other.len());
    assert_ne!(one, other);
}

#[test]
fn weights_have_the_stated_spread() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("m");
    make("gemma-tiny", &out, &options("F32"));
    let checkpoint = Checkpoint::open(&out).unwrap();
    let moments = |name: &str| {
        let tensor = checkpoint.require(name).unwrap();
        let (numbers, _) = tensor.bytes.as_chunks::<4>();
        let x: Vec<f32> = numbers
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / x.len() as f32;
        (mean, variance.sqrt())
    };
    let (mean, std) = moments("model.layers.1.mlp.down_proj.weight");
    assert!(
        mean.abs() < 0.002 && (std - 512f32.sqrt().recip()).abs() < 0.002,
        "{mean} {std}"
    );
    // Gemma's files hold the norms less one.
    let (mean, std) = moments("model.layers.1.input_layernorm.weight");
    assert!(
        mean.abs() < 0.03 && (std - 0.1).abs() < 0.03,
        "{mean} {std}"
    );
}

#[test]
fn a_given_vocabulary_sets_the_size() {
    let folder = tempdir().unwrap();
    let first = folder.path().join("first.gguf");
    make("llama-tiny", &first, &options("F16"));
    let source = Checkpoint::open(&first).unwrap();
    let out = folder.path().join("second.gguf");
    let vocab = source.gguf();
    let written = make(
        "llama-3.2-1b",
        &out,
        &SynthOptions {
            vocab,
            ..options("Q4_0")
        },
    );
    assert_eq!(written.config.vocab_size, 512);
    let copy = Checkpoint::open(&out).unwrap();
    let tokens = |checkpoint: &Checkpoint| {
        let metadata = checkpoint.gguf().unwrap();
        metadata
            .get_str_array("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .to_vec()
    };
    assert_eq!(tokens(&copy), tokens(&source));
    let folder_out = folder.path().join("folder");
    let options = SynthOptions {
        vocab,
        ..options("F16")
    };
    assert!(
        write(tiny("llama-tiny"), &folder_out, &options, &mut |_, _| {
            ControlFlow::Continue(())
        })
        .is_err()
    );
}

#[test]
fn what_cannot_be_written_leaves_no_weights() {
    let folder = tempdir().unwrap();
    let cases = [
        ("q4nx.gguf", SynthOptions { ..options("Q4NX") }),
        (
            "blocks",
            SynthOptions {
                ..options("Q4_K_M")
            },
        ),
        (
            "none.gguf",
            SynthOptions {
                n_layers: Some(0),
                ..options("F16")
            },
        ),
        (
            "many.gguf",
            SynthOptions {
                n_layers: Some(usize::MAX),
                ..options("F16")
            },
        ),
        ("no/such/folder/x.gguf", options("F16")),
    ];
    for (name, options) in cases {
        let out = folder.path().join(name);
        let result = write(tiny("llama-tiny"), &out, &options, &mut |_, _| {
            ControlFlow::Continue(())
        });
        assert!(result.is_err(), "{name}");
        assert!(Checkpoint::open(&out).is_err(), "{name}");
    }
}

#[test]
fn progress_ends_at_the_total() {
    let folder = tempdir().unwrap();
    let mut seen = Vec::new();
    let out = folder.path().join("m.gguf");
    let written = write(
        tiny("qwen-tiny"),
        &out,
        &options("Q8_0"),
        &mut |done, total| {
            seen.push((done, total));
            ControlFlow::Continue(())
        },
    );
    let total = written.unwrap().size_bytes;
    assert!(seen.is_sorted() && seen.last() == Some(&(total, total)));
}

#[test]
fn geometries_are_consistent_and_named() {
    for geometry in ModelGeometry::all() {
        let config = geometry.config(None);
        config.validate(geometry.name()).unwrap();
        assert_eq!(
            ModelGeometry::named(&geometry.name().to_uppercase()),
            Some(geometry)
        );
    }
    let n_params = |name: &str| {
        let config = tiny(name).config(None);
        let n_elems = |name| config.shape_of(name).into_iter().product::<usize>() as u64;
        config
            .tensors(WeightConvention::HuggingFace)
            .into_iter()
            .map(n_elems)
            .sum::<u64>()
    };
    // The published numbers of parameters.
    assert_eq!(n_params("llama-3.2-1b"), 1_235_814_400);
    assert_eq!(n_params("llama-3.2-3b"), 3_212_749_824);
    assert_eq!(n_params("llama-3.1-8b"), 8_030_261_248);
    assert_eq!(n_params("llama-3.1-70b"), 70_553_706_496);
    assert_eq!(n_params("gemma-3-1b"), 999_885_952);
    assert_eq!(n_params("qwen3-0.6b"), 596_049_920);
    assert_eq!(n_params("qwen2.5-0.5b"), 494_032_768);
    assert_eq!(n_params("qwen2.5-1.5b"), 1_543_714_304);
    assert_eq!(n_params("qwen2.5-3b"), 3_085_938_688);
    assert_eq!(n_params("qwen3-30b-a3b"), 30_532_122_624);
    assert_eq!(n_params("olmoe-1b-7b"), 6_919_161_856);
    assert_eq!(n_params("gpt-oss-20b"), 20_914_757_184);
}

#[test]
fn stopping_leaves_nothing_behind() {
    for out in ["m.gguf", "folder"] {
        let folder = tempdir().unwrap();
        let kind = options(if out == "folder" { "F16" } else { "Q8_0" });
        let out = folder.path().join(out);
        let stop = &mut |_, _| ControlFlow::Break(());
        let found = write(tiny("llama-tiny"), &out, &kind, stop);
        assert!(matches!(found, Err(Error::Cancelled)), "{found:?}");
        let left = if out.is_dir() {
            fs::read_dir(&out)
        } else {
            fs::read_dir(folder.path())
        };
        let left: Vec<_> = left
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn encoders_open_in_folders_and_beside_files() {
    let folder = tempdir().unwrap();
    let options = |recipe| SynthOptions {
        vision: true,
        ..options(recipe)
    };
    let encoder = |path: &Path| VisionModel::of(&Checkpoint::open(path).unwrap());
    let expected = tiny("gemma-tiny").vision();
    let out = folder.path().join("m");
    let written = make("gemma-tiny", &out, &options("BF16"));
    assert_eq!(written.mmproj, None);
    let found = encoder(&out).unwrap();
    assert_eq!(found.map(|encoder| encoder.config), expected);
    let model = Model::from_checkpoint(&Checkpoint::open(&out).unwrap()).unwrap();
    assert_eq!(model.config, written.config);

    let out = folder.path().join("g").with_extension("gguf");
    let written = make("gemma-tiny", &out, &options("Q8_0"));
    let mmproj = written.mmproj.unwrap();
    assert_eq!(mmproj.file_name().unwrap(), "mmproj-g.gguf");
    assert_eq!(
        encoder(&mmproj).unwrap().map(|encoder| encoder.config),
        expected
    );
    assert_eq!(encoder(&out).unwrap(), None);
    let sizes = [&out, &mmproj].map(|path| Checkpoint::open(path).unwrap().size_bytes());
    assert_eq!(sizes.iter().sum::<u64>(), written.size_bytes);

    let no_encoder = write(tiny("llama-tiny"), &out, &options("F32"), &mut |_, _| {
        ControlFlow::Continue(())
    });
    let error = no_encoder.unwrap_err().to_string();
    assert!(error.contains("gemma-3-4b, gemma-tiny"), "{error}");
}

/// The published vision encoder without its bytes: sizes as published, and that of the projector.
#[test]
fn the_encoder_of_the_4b_has_the_published_size() {
    let vision = tiny("gemma-3-4b").vision().unwrap();
    vision.validate("test").unwrap();
    let n_elems = |name| {
        vision
            .shape_of(name, Source::HuggingFace)
            .iter()
            .product::<usize>()
    };
    let n_params: usize = vision.names().into_iter().map(n_elems).sum();
    assert_eq!(n_params, 416_866_032 + 1152 * 2560 + 1152);
    let plan = vision::plan_folder(&vision, DType::BF16);
    let tensors: Vec<TensorInfo> = plan.into_iter().map(info_of).collect();
    let catalog = crate::catalog::Catalog::new("test", Source::HuggingFace, &tensors);
    let encoder = VisionModel::build(vision, Source::HuggingFace, &catalog).unwrap();
    assert_eq!((encoder.layers.len(), encoder.config.head_dim()), (27, 72));
}

/// A file and a folder with a draft layer record it, open as before, and have a layer that reads all of its tensors.
#[test]
fn files_with_a_draft_layer_open_with_and_without_it() {
    let dir = tempdir().unwrap();
    for (file, recipe) in [("draft.gguf", "Q8_0"), ("folder", "BF16")] {
        let path = dir.path().join(file);
        let go_on = &mut |_, _| ControlFlow::Continue(());
        write_with_draft_layer(tiny("qwen35-tiny"), &path, (&options(recipe), 0.9), go_on).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        let whole = Model::from_checkpoint(&checkpoint).unwrap();
        assert_eq!(whole.config, tiny("qwen35-tiny").config(Some(2)), "{file}");
        assert!(crate::warnings(&checkpoint, &whole).is_empty(), "{file}");
        let layer = Model::draft_layer(&checkpoint).unwrap();
        assert_eq!(layer.config.n_layers, 1);
        let n_own = layer.graph.weights.iter().filter(|own| {
            let mut of_whole = whole.graph.weights.iter();
            !of_whole.any(|weight| weight.name == own.name)
        });
        let (all, n_shared) = (checkpoint.tensors().len(), whole.graph.weights.len());
        assert_eq!(n_own.count(), all - n_shared, "{file}");
    }
}

/// With a draft layer, the rows of tokens from 32,768 on are smaller; without one, all have one size.
#[test]
fn rows_of_rare_tokens_are_smaller_beside_a_draft_layer() {
    let dir = tempdir().unwrap();
    let n_vocab = draft::N_FREQUENT + 5_000;
    let mut vocab = Metadata::default();
    let tokens = (0..n_vocab).map(|i| format!("t{i}")).collect();
    let tokens = GgufValue::Array(GgufArray::Str(tokens));
    vocab.insert("tokenizer.ggml.tokens", tokens);
    let options = SynthOptions {
        vocab: Some(&vocab),
        ..options("F32")
    };
    let ratio = |has_layer: bool| {
        let path = dir.path().join("model.gguf");
        let go_on = &mut |_, _| ControlFlow::Continue(());
        let tiny = tiny("qwen35-tiny");
        match has_layer {
            true => write_with_draft_layer(tiny, &path, (&options, 0.9), go_on).unwrap(),
            false => write(tiny, &path, &options, go_on).unwrap(),
        };
        let checkpoint = Checkpoint::open(&path).unwrap();
        let table = checkpoint.tensor("token_embd.weight").unwrap();
        let numbers: Vec<f32> = table
            .bytes
            .chunks_exact(4)
            .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
            .collect();
        let (frequent, rare) = numbers.split_at(numbers.len() / n_vocab * draft::N_FREQUENT);
        let size = |x: &[f32]| (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt();
        size(rare) / size(frequent)
    };
    assert!((ratio(true) - draft::RARE_SCALE).abs() < 0.02);
    assert!((ratio(false) - 1.0).abs() < 0.02);
}
