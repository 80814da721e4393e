//! A failed conversion leaves nothing behind, and its error describes the fault.

use super::*;
use crate::convert::{ConversionOptions, TensorTypeRule};
use crate::importance::ImportanceMatrix;

#[test]
fn containers_refuse_formats_they_cannot_hold() {
    let model = ModelFolder::random("llama-tiny", "F16", "in.gguf");
    let source = model.open();
    let cases = [
        (OutputContainer::Gguf, "Q4NX", "every type but Q4NX"),
        (OutputContainer::Safetensors, "Q4_K_M", "F32, F16, BF16"),
        (OutputContainer::Q4nx, "BF16", "Q4NX"),
    ];
    for (container, recipe, possible) in cases {
        let recipe = Recipe::from_name(recipe).unwrap();
        let error = Conversion::new(&source, ConversionTarget { container, recipe })
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(possible) && error.contains(recipe.name()),
            "{error}"
        );
    }
}

/// As llama-quantize does for its formats of one and two bits. A tensor that is in them already is copied.
#[test]
fn formats_of_two_bits_ask_for_an_importance_matrix() {
    let model = ModelFolder::random("llama-tiny", "IQ2_XS", "in.gguf");
    let source = model.open();
    let plan = |recipe: &str| Conversion::new(&source, target(&model.beside("out.gguf"), recipe));
    for recipe in ["IQ2_XXS", "IQ2_M", "IQ1_S", "IQ1_M", "IQ1_M_PURE"] {
        let error = plan(recipe).unwrap_err().to_string();
        let says = error.contains(recipe) && error.contains("needs an importance matrix");
        assert!(says && error.contains("choose IQ3_S"), "{error}");
    }
    for recipe in ["IQ2_XS", "IQ3_XXS", "IQ3_XS", "IQ4_XS", "Q2_K_S", "TQ1_0"] {
        plan(recipe).unwrap();
    }
}

/// With the importance of every matrix the same formats are written, and the bytes follow it. A matrix of another width,
/// or without an entry that is needed, is refused.
#[test]
fn importance_matrices_are_used_and_checked() {
    let model = ModelFolder::random("llama-tiny", "F32", "in.gguf");
    let source = model.open();
    let entries = |width: usize, skipped: &str| {
        let mut matrix = ImportanceMatrix::default();
        for info in source.tensors() {
            let &[_, k] = &info.shape[..] else { continue };
            let row: Vec<f32> = (0..k + width).map(|i| ((i * 37) % 11) as f32).collect();
            if info.name.starts_with("blk.") && info.name != skipped {
                matrix.add_row(&info.name, (0, 1), &row);
            }
        }
        matrix
    };
    let plan = |matrix: &ImportanceMatrix, recipe: &str, name: &str| {
        let out = model.beside(name);
        let options = ConversionOptions {
            importance: Some(matrix),
            ..ConversionOptions::default()
        };
        let plan = Conversion::with_options(&source, target(&out, recipe), &options)?;
        plan.write(&out, 2, &mut |_| ControlFlow::Continue(()))?;
        Ok::<Vec<u8>, Error>(std::fs::read(out).unwrap())
    };
    let whole = entries(0, "");
    plan(&whole, "IQ2_XXS", "a.gguf").unwrap();
    let weighted = plan(&whole, "Q2_K", "b.gguf").unwrap();
    convert(&source, &model.beside("c.gguf"), "Q2_K").unwrap();
    let plain = std::fs::read(model.beside("c.gguf")).unwrap();
    assert!(weighted.len() == plain.len() && weighted != plain);
    let name = "blk.1.attn_q.weight";
    let error = plan(&entries(1, ""), "Q4_K_M", "d.gguf").unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
    let error = plan(&entries(0, name), "IQ2_XXS", "e.gguf").unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
    assert!(!model.beside("d.gguf").exists() && !model.beside("e.gguf").exists());
}

/// Names choose types before the recipe does, the first pattern first; vectors stay. Differences with an importance matrix
/// are llama.cpp's choices.
#[test]
fn types_follow_names_and_the_importance_matrix() {
    let model = ModelFolder::random("llama-tiny", "F32", "in.gguf");
    let source = model.open();
    let rule = |pattern: &str, dtype| TensorTypeRule {
        pattern: fancy_regex::Regex::new(pattern).unwrap(),
        dtype,
    };
    let mut matrix = ImportanceMatrix::default();
    for info in source.tensors() {
        if let ([_, k], true) = (&info.shape[..], info.name.starts_with("blk.")) {
            matrix.add_row(&info.name, (0, 1), &vec![1.0; *k]);
        }
    }
    let own = ConversionOptions {
        tensor_types: vec![
            rule(r"blk\.1\.ffn_down", DType::Q6K),
            rule("ffn|norm", DType::Q5_0),
        ],
        token_embedding: Some(DType::Q5K),
        ..ConversionOptions::default()
    };
    let weighted = ConversionOptions {
        importance: Some(&matrix),
        ..ConversionOptions::default()
    };
    let plain = ConversionOptions::default();
    for (options, recipe, name, expected) in [
        (&own, "Q4_0", "blk.1.ffn_down", DType::Q6K),
        (&own, "Q4_0", "blk.2.ffn_down", DType::Q5_0),
        (&own, "Q4_0", "blk.2.attn_q", DType::Q4_0),
        (&own, "Q4_0", "blk.2.ffn_norm", DType::F32),
        (&own, "Q4_0", "token_embd", DType::Q5K),
        (&plain, "IQ3_XXS", "blk.2.attn_q", DType::Iq3Xxs),
        (&plain, "IQ3_XXS", "blk.2.ffn_down", DType::Q3K),
        (&weighted, "IQ3_XXS", "blk.2.attn_q", DType::Iq2S),
        (&weighted, "IQ3_XXS", "blk.2.attn_k", DType::Iq2S),
        (&weighted, "IQ3_XXS", "blk.2.ffn_down", DType::Iq3Xxs),
    ] {
        let target = target(&model.beside("x.gguf"), recipe);
        let plan = Conversion::with_options(&source, target, options).unwrap();
        let name = format!("{name}.weight");
        let found = plan.tensors().iter().find(|tensor| tensor.name == name);
        let found = found.unwrap().tensor_type;
        assert_eq!(
            found,
            millrace_format::TensorType::Weights(expected),
            "{recipe} {name}"
        );
    }
    let folder = target(&model.beside("x"), "BF16");
    let error = Conversion::with_options(&source, folder, &own).unwrap_err();
    assert!(
        error.to_string().contains("types of single tensors"),
        "{error}"
    );
}

#[test]
fn the_path_and_the_recipe_name_the_container() {
    let cases = [
        ("a.gguf", "Q8_0", OutputContainer::Gguf),
        ("a.GGUF", "Q4NX", OutputContainer::Gguf),
        ("folder", "F16", OutputContainer::Safetensors),
        ("folder", "Q4NX", OutputContainer::Q4nx),
    ];
    for (path, recipe, expected) in cases {
        let recipe = Recipe::from_name(recipe).unwrap();
        assert_eq!(
            OutputContainer::of(Path::new(path), recipe),
            expected,
            "{path} {recipe}"
        );
    }
}

#[test]
fn stopping_leaves_nothing() {
    let model = ModelFolder::random("llama-tiny", "F32", "in");
    let source = model.open();
    for (out, recipe) in [("out.gguf", "Q4_0"), ("out", "F16"), ("bundle", "Q4NX")] {
        let out = model.beside(out);
        let plan = Conversion::new(&source, target(&out, recipe)).unwrap();
        let (mut calls, mut elems) = (0, 0);
        let result = plan.write(&out, 2, &mut |progress| {
            assert!(progress.elems_done > elems && progress.elems_done <= progress.elems_total);
            (calls, elems) = (calls + 1, progress.elems_done);
            if calls < 5 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        assert!(matches!(result, Err(Error::Cancelled)));
        assert_eq!(names_in(model.dir.path()), ["in"], "{recipe}");
    }
}

#[test]
fn progress_ends_at_the_total() {
    let model = ModelFolder::random("llama-tiny", "Q4_K_M", "in.gguf");
    let source = model.open();
    let out = model.beside("out.gguf");
    let plan = Conversion::new(&source, target(&out, "Q8_0")).unwrap();
    let mut last = 0;
    plan.write(&out, 1, &mut |progress| {
        last = progress.elems_done;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(last, plan.n_elems());
}

#[test]
fn a_damaged_weight_is_named_and_the_old_file_stays() {
    let model = ModelFolder::random("llama-tiny", "F32", "in.gguf");
    let tensor = model
        .open()
        .require("blk.1.ffn_up.weight")
        .unwrap()
        .info
        .clone();
    let mut bytes = std::fs::read(&model.path).unwrap();
    let at = tensor.offset as usize + 4 * (3 * 256 + 17);
    bytes[at..at + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    std::fs::write(&model.path, bytes).unwrap();
    let out = model.beside("out.gguf");
    std::fs::write(&out, "what was there").unwrap();
    let error = convert(&model.open(), &out, "Q4_0")
        .unwrap_err()
        .to_string();
    for part in ["blk.1.ffn_up.weight", "element 17 of row 3", "inf"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(std::fs::read(&out).unwrap(), b"what was there");
    assert_eq!(names_in(model.dir.path()), ["in.gguf", "out.gguf"]);
}

#[test]
fn output_paths_that_cannot_be_are_refused_before_any_work() {
    let model = ModelFolder::random("llama-tiny", "F16", "in.gguf");
    let source = model.open();
    let full = model.beside("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("model.q4nx"), "").unwrap();
    let cases = [
        (model.beside("model.safetensors"), "F16", "is a folder"),
        (model.path.clone(), "Q4NX", "every type but"),
        (full, "F16", "model.q4nx"),
        (model.beside("no/such/folder.gguf"), "Q8_0", "no/such"),
        (model.beside("no/such/folder"), "BF16", "make the folder"),
    ];
    for (out, recipe, part) in cases {
        let error = convert(&source, &out, recipe).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(names_in(model.dir.path()), ["full", "in.gguf"]);
}

#[test]
fn a_folder_without_a_configuration_is_refused() {
    let model = ModelFolder::flat(&config_of("llama-tiny"));
    std::fs::remove_file(model.path.join("config.json")).unwrap();
    let error = convert(&model.open(), &model.beside("out.gguf"), "F16").unwrap_err();
    assert!(error.to_string().contains("config.json"), "{error}");
}
