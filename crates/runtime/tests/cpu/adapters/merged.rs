//! `quantize --merge-lora`: a converted model with a merged adapter computes the same as base and adapter.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::Checkpoint;
use millrace_model::adapter::Adapter;
use millrace_model::convert::{
    Conversion, ConversionOptions, ConversionTarget, Error, OutputContainer,
};
use millrace_model::recipe::Recipe;
use millrace_quant::DType;
use millrace_runtime::{AdapterSet, LoadedModel, LoraAdapter};
use millrace_testkit::golden::Golden;

use super::fixture::*;

/// Beside the range of the logits.
const MERGED: f32 = 1e-5;

pub(super) fn convert(
    base: &Checkpoint,
    adapters: &[(Adapter, f32)],
    recipe: &str,
    out: &Path,
) -> Result<(), Error> {
    let recipe = Recipe::from_name(recipe).unwrap();
    let container = OutputContainer::of(out, recipe);
    let target = ConversionTarget { container, recipe };
    let options = ConversionOptions {
        adapters,
        ..ConversionOptions::default()
    };
    let conversion = Conversion::with_options(base, target, &options)?;
    conversion.write(out, 2, &mut |_| ControlFlow::Continue(()))?;
    Ok(())
}

fn open(path: &Path) -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(path).unwrap())
}

/// The adapters of these files for a model, in the form for sequences and in the form for conversions.
fn opened(files: &[(PathBuf, f32)], model: &LoadedModel) -> (AdapterSet, Vec<(Adapter, f32)>) {
    let to_merge: Vec<(Adapter, f32)> = files
        .iter()
        .map(|(file, scale)| {
            let adapter = Adapter::open(file, model.model(), model.checkpoint());
            (adapter.unwrap(), *scale)
        })
        .collect();
    let beside = to_merge.iter().map(|(adapter, scale)| {
        let adapter = LoraAdapter::new(adapter.clone(), model);
        (Arc::new(adapter), *scale)
    });
    (AdapterSet::new(beside.collect::<Vec<_>>()), to_merge)
}

/// Merges into F32 files of either layout, and compares.
fn check(name: &str, source: &Path, files: &[(PathBuf, f32)], dir: &Path) {
    let model = open(source);
    let (beside, to_merge) = opened(files, &model);
    let expected = logits(&model, beside);
    let base = logits(&model, AdapterSet::default());
    assert!(distance(&expected, &base) > FAR, "{name}: nothing changes");
    for out in ["f32.gguf", "f32"] {
        let out = dir.join(format!("{name} {out}"));
        convert(model.checkpoint(), &to_merge, "F32", &out).unwrap();
        let distance = distance(&expected, &logits(&open(&out), AdapterSet::default()));
        assert!(distance < MERGED, "{}: {distance}", out.display());
    }
}

#[test]
fn merged_models_compute_what_base_and_adapters_do() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::named("llama-llama3");
    let peft = write_peft(dir.path(), "peft", &halves(1, false), &config());
    let gguf = write_gguf(dir.path(), "a.gguf", &halves(7, true), "llama");
    for (source, layout) in [
        (golden.hf().to_owned(), "hf"),
        (golden.gguf().unwrap(), "gguf"),
    ] {
        for (name, files) in [
            ("peft", vec![(peft.clone(), 1.0)]),
            ("gguf", vec![(gguf.clone(), -0.5)]),
            ("both", vec![(peft.clone(), 0.75), (gguf.clone(), 1.5)]),
        ] {
            check(&format!("{layout} {name}"), &source, &files, dir.path());
        }
    }
}

#[test]
fn rows_of_joined_matrices_are_merged_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::named("phi3");
    let base = open(golden.hf());
    let mut halves = Vec::new();
    let joined = base.checkpoint().tensors().iter().filter(|info| {
        ["qkv_proj.weight", "gate_up_proj.weight"]
            .iter()
            .any(|end| info.name.ends_with(end))
    });
    for (seed, info) in joined.enumerate() {
        let (n, k) = (info.shape[0], info.shape[1]);
        let module = info.name.trim_end_matches(".weight");
        for (half, shape) in [("A", [RANK, k]), ("B", [n, RANK])] {
            let seed = 2 * seed as u64 + u64::from(half == "B");
            halves.push(Half {
                name: format!("base_model.model.{module}.lora_{half}.weight"),
                shape,
                data: numbers(shape[0] * shape[1], seed + 50),
            });
        }
    }
    assert!(halves.len() >= 8);
    let peft = write_peft(dir.path(), "peft", &halves, &config());
    check("phi3", golden.hf(), &[(peft, 1.0)], dir.path());
}

/// Data already in the target's format is not copied if an adapter changes it, whatever reads it.
#[test]
fn blocks_are_encoded_of_merged_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let peft = write_peft(dir.path(), "peft", &halves(1, false), &config());
    convert(folder().checkpoint(), &[], "Q8_0", &at("base.gguf")).unwrap();
    let base = open(&at("base.gguf"));
    let (_, adapters) = opened(&[(peft, 1.0)], &base);
    convert(base.checkpoint(), &adapters, "Q8_0", &at("merged.gguf")).unwrap();
    convert(base.checkpoint(), &adapters, "F32", &at("f32.gguf")).unwrap();
    convert(
        open(&at("f32.gguf")).checkpoint(),
        &[],
        "Q8_0",
        &at("after.gguf"),
    )
    .unwrap();
    let files = ["base.gguf", "merged.gguf", "after.gguf"].map(|name| open(&at(name)));
    let name = "blk.0.attn_output.weight";
    let [before, merged] = [&files[0], &files[1]].map(|file| file.checkpoint().require(name));
    let (before, merged) = (before.unwrap(), merged.unwrap());
    assert_eq!(merged.dtype().unwrap(), DType::Q8_0);
    assert_ne!(merged.bytes, before.bytes);
    for tensor in files[1].checkpoint().iter() {
        let after = files[2].checkpoint().require(&tensor.info.name).unwrap();
        assert!(tensor.bytes == after.bytes, "{}", tensor.info.name);
    }
}

#[test]
fn adapters_of_other_models_are_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let peft = write_peft(dir.path(), "peft", &halves(1, false), &config());
    let (_, adapters) = opened(&[(peft, 1.0)], &folder());
    let other = Checkpoint::open(Golden::named("phi3").hf()).unwrap();
    let error = convert(&other, &adapters, "F32", &dir.path().join("x.gguf")).unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
}
