//! Conversions of small random models, end to end.

mod failures;
mod files;
mod layouts;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;
use millrace_quant::decode_rows;

use super::{Container, Error, Plan, Recipe, Summary, Target};
use crate::synth::{self, Geometry, SynthOptions};

/// A temporary folder with a random model in it.
struct Model {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Model {
    fn new(geometry: &str, recipe: &str, file: &str) -> Model {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file);
        let geometry = Geometry::named(geometry).unwrap();
        let options = SynthOptions {
            recipe: Recipe::from_name(recipe).unwrap(),
            n_layers: Some(3),
            ..SynthOptions::default()
        };
        synth::write(geometry, &path, &options, &mut |_, _| {}).unwrap();
        Model { dir, path }
    }

    fn open(&self) -> Checkpoint {
        Checkpoint::open(&self.path).unwrap()
    }

    /// Converts the model to `file` in the same folder and opens the result.
    fn convert(&self, file: &str, recipe: &str) -> Checkpoint {
        convert(&self.open(), &self.dir.path().join(file), recipe).unwrap();
        Checkpoint::open(&self.dir.path().join(file)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        names_in(self.dir.path())
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn target(out: &Path, recipe: &str) -> Target {
    let recipe = Recipe::from_name(recipe).unwrap();
    Target { container: Container::of(out, recipe), recipe }
}

fn convert(source: &Checkpoint, out: &Path, recipe: &str) -> Result<Summary, Error> {
    let plan = Plan::new(source, target(out, recipe))?;
    plan.write(out, 2, &mut |_| ControlFlow::Continue(()))
}

/// The numbers of a tensor, `[n, k]` where the file does not say.
fn numbers(checkpoint: &Checkpoint, tensor: &str, shape: [usize; 2]) -> Vec<f32> {
    let [n, k] = shape;
    let tensor = checkpoint.require(tensor).unwrap();
    let mut out = vec![0.0; n * k];
    decode_rows(tensor.dtype().unwrap(), tensor.bytes, n, k, 0..n, &mut out).unwrap();
    out
}
