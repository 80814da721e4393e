//! Conversions of small random models, end to end.

mod experts;
mod failures;
mod files;
mod layouts;
mod mixtures;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use millrace_format::safetensors::ShardedWriter;
use millrace_format::{Checkpoint, TensorSpec};
use millrace_quant::{DType, decode_rows};

use super::{Conversion, ConversionSummary, ConversionTarget, Error, OutputContainer, Recipe};
use crate::ModelConfig;
use crate::arch::{self, WeightConvention};
use crate::config::hf;
use crate::synth::{self, ModelGeometry, SynthOptions};

/// A temporary folder with a model in it.
struct ModelFolder {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl ModelFolder {
    /// Three layers of random weights.
    fn random(geometry: &str, recipe: &str, file: &str) -> ModelFolder {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file);
        let recipe = Recipe::from_name(recipe).unwrap();
        let options = SynthOptions {
            recipe,
            vocab: None,
            vision: false,
            n_layers: Some(3),
            seed: 1,
            n_threads: Some(1),
        };
        synth::write(
            ModelGeometry::named(geometry).unwrap(),
            &path,
            &options,
            &mut |_, _| ControlFlow::Continue(()),
        )
        .unwrap();
        ModelFolder { dir, path }
    }

    /// A Hugging Face folder of a configuration; every weight is a half.
    fn flat(config: &ModelConfig) -> ModelFolder {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flat");
        std::fs::create_dir(&path).unwrap();
        let spelling = arch::by_name(config.family).hf_names();
        let names = config.tensors(WeightConvention::HuggingFace);
        let specs: Vec<TensorSpec> = names
            .iter()
            .map(|name| {
                let shape = config.shape_of(*name);
                TensorSpec::new(name.hf("model.", spelling).unwrap(), DType::F32, &shape)
            })
            .collect();
        let mut writer = ShardedWriter::create(&path, &BTreeMap::new(), &specs, 1 << 30).unwrap();
        for spec in &specs {
            let n_elems: usize = spec.shape.iter().product();
            writer
                .write(&spec.name, &0.5f32.to_le_bytes().repeat(n_elems))
                .unwrap();
        }
        writer.commit().unwrap();
        let json = hf::write(config).unwrap().to_string();
        std::fs::write(path.join("config.json"), json).unwrap();
        ModelFolder { dir, path }
    }

    fn open(&self) -> Checkpoint {
        Checkpoint::open(&self.path).unwrap()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Converts the model to `name` beside it and opens the result.
    fn convert(&self, name: &str, recipe: &str) -> Checkpoint {
        convert(&self.open(), &self.beside(name), recipe).unwrap();
        Checkpoint::open(&self.beside(name)).unwrap()
    }
}

/// A configuration of two layers that the test then changes.
fn config_of(geometry: &str) -> ModelConfig {
    ModelGeometry::named(geometry).unwrap().config(Some(2))
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn target(out: &Path, recipe: &str) -> ConversionTarget {
    let recipe = Recipe::from_name(recipe).unwrap();
    ConversionTarget {
        container: OutputContainer::of(out, recipe),
        recipe,
    }
}

fn convert(source: &Checkpoint, out: &Path, recipe: &str) -> Result<ConversionSummary, Error> {
    let plan = Conversion::new(source, target(out, recipe))?;
    plan.write(out, 2, &mut |_| ControlFlow::Continue(()))
}

/// The numbers of a tensor of this shape.
fn numbers(checkpoint: &Checkpoint, tensor: &str, [n, k]: [usize; 2]) -> Vec<f32> {
    let tensor = checkpoint.require(tensor).unwrap();
    let mut out = vec![0.0; n * k];
    decode_rows(tensor.dtype().unwrap(), tensor.bytes, n, k, 0..n, &mut out).unwrap();
    out
}
