//! `--lora` of the commands that run one model, and `--merge-lora` of the command that converts one.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use millrace_format::Checkpoint;
use millrace_model::Model;
use millrace_model::adapter::Adapter;
use millrace_runtime::{AdapterSet, LoadedModel, LoraAdapter};
use std::path::Path;
use std::sync::Arc;

/// Adapters beside the model.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct LoraArgs {
    /// LoRA adapter, a GGUF file or a PEFT folder, with a scale factor [default: 1]. May be repeated
    #[arg(long, value_name = "FILE[:SCALE]", value_hint = clap::ValueHint::AnyPath)]
    lora: Vec<String>,
}

impl LoraArgs {
    /// Opens the adapters for a model.
    pub(crate) fn open(&self, model: &LoadedModel, ui: Ui) -> CommandResult<AdapterSet> {
        let adapters = self.lora.iter().map(|text| {
            let (file, scale) = file_and_scale("--lora", text)?;
            let adapter = LoraAdapter::open(Path::new(file), model)?;
            ui.detail(format_args!("adapter {file}, times {scale}"));
            Ok((Arc::new(adapter), scale))
        });
        let adapters = adapters.collect::<CommandResult<Vec<_>>>()?;
        Ok(AdapterSet::new(adapters))
    }
}

/// Adapters that become part of the weights.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct MergeArgs {
    /// LoRA adapter to merge into the weights, a GGUF file or a PEFT folder, with a scale factor [default: 1]. May be repeated
    #[arg(long, value_name = "FILE[:SCALE]", value_hint = clap::ValueHint::AnyPath)]
    merge_lora: Vec<String>,
}

impl MergeArgs {
    /// Opens the adapters for the model of a checkpoint, each with its factor.
    pub(crate) fn open(&self, base: &Checkpoint, ui: Ui) -> CommandResult<Vec<(Adapter, f32)>> {
        if self.merge_lora.is_empty() {
            return Ok(Vec::new());
        }
        let model = Model::from_checkpoint(base)?;
        let adapters = self.merge_lora.iter().map(|text| {
            let (file, scale) = file_and_scale("--merge-lora", text)?;
            let adapter = Adapter::open(Path::new(file), &model, base)?;
            let n_matrices = adapter.products.len();
            ui.note(format_args!(
                "{file} changes {n_matrices} matrices, times {scale}"
            ));
            Ok((adapter, scale))
        });
        adapters.collect()
    }
}

/// Splits `FILE[:SCALE]` into the file and the factor. A path that exists has no factor after it.
fn file_and_scale<'a>(option: &str, text: &'a str) -> CommandResult<(&'a str, f32)> {
    let named = text.rsplit_once(':').filter(|_| !Path::new(text).exists());
    let Some((file, scale)) = named else {
        return Ok((text, 1.0));
    };
    let number = scale.parse().ok().filter(|scale: &f32| scale.is_finite());
    match number {
        Some(number) => Ok((file, number)),
        None => {
            let message = format!(
                "{option} {text}: expected FILE or FILE:SCALE, found no number in \"{scale}\""
            );
            Err(CommandFailure::usage(message).hint("as in adapter.gguf:0.5"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::file_and_scale;

    #[test]
    fn a_factor_stands_behind_the_file() {
        for (text, found) in [
            ("a.gguf", Some(("a.gguf", 1.0))),
            ("a.gguf:0.5", Some(("a.gguf", 0.5))),
            ("a:b:-2", Some(("a:b", -2.0))),
            ("a.gguf:x", None),
            ("a.gguf:", None),
            ("a.gguf:inf", None),
        ] {
            assert_eq!(file_and_scale("--lora", text).ok(), found, "{text}");
        }
        // An existing path is a file, whatever its name.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a:2");
        std::fs::write(&path, "").unwrap();
        let text = path.to_str().unwrap();
        assert_eq!(file_and_scale("--lora", text).ok(), Some((text, 1.0)));
    }
}
