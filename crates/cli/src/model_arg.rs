//! The MODEL argument: a built-in name, path, hub reference, or cached repository.

use crate::download::DownloadBar;
use crate::exit::{CommandFailure, CommandResult};
use crate::image_args::VisionArgs;
use crate::interrupt;
use crate::output::{Ui, printable};
use millrace::{ModelFiles, OpenOptions};
use millrace_format::Checkpoint;
use millrace_model::Model;
use millrace_runtime::LoadedModel;
use millrace_text::{Tokenizer, Warning};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Help text of the MODEL argument.
pub(crate) const MODEL_HELP: &str =
    "Model: `demo` (built in), a file or folder, hf:OWNER/REPO[:QUANT], or OWNER/REPO if pulled";

/// Arguments of commands that read a model.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    /// The user's text.
    #[arg(value_name = "MODEL", value_hint = clap::ValueHint::AnyPath, help = MODEL_HELP)]
    pub(crate) model: String,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    pub(crate) offline: bool,
}

impl ModelArgs {
    /// Finds the model's files, downloading them first if it is an `hf:` model that is not here.
    fn files(&self, ui: Ui) -> CommandResult<ModelFiles> {
        let bar = DownloadBar::new(ui);
        let options = OpenOptions::new()
            .offline(self.offline)
            .cancel(interrupt::cancel())
            .progress(move |progress| bar.tell(progress));
        Ok(ModelFiles::find(&self.model, &options)?)
    }

    /// Opens the model's files, whatever they hold.
    pub(crate) fn open(&self, ui: Ui) -> CommandResult<Checkpoint> {
        Ok(self.files(ui)?.checkpoint()?)
    }

    /// Opens the model to run it, and warns about parts of its files that are ignored or overruled.
    pub(crate) fn load(&self, ui: Ui) -> CommandResult<Arc<LoadedModel>> {
        let loaded = self.files(ui)?.load()?;
        warn_of(loaded.checkpoint(), loaded.model(), ui);
        Ok(loaded)
    }

    /// The same for a model to draft with, which may be the assistant of another one.
    pub(crate) fn load_draft(&self, ui: Ui) -> CommandResult<Arc<LoadedModel>> {
        let loaded = self.files(ui)?.load_draft()?;
        warn_of(loaded.checkpoint(), loaded.model(), ui);
        Ok(loaded)
    }

    /// As [`load`](ModelArgs::load), with the options for reading images.
    pub(crate) fn model(&self, vision: &VisionArgs, ui: Ui) -> CommandResult<millrace::Model> {
        let loaded = self.load(ui)?;
        Ok(millrace::Model::new(loaded, &vision.options()))
    }

    /// Opens only the tokenizer: no weights are needed, and any architecture will do.
    pub(crate) fn tokenizer(&self, ui: Ui) -> CommandResult<Tokenizer> {
        Ok(self.files(ui)?.tokenizer()?)
    }
}

/// Warns about parts of a checkpoint that the model ignores or overrules.
pub(crate) fn warn_of(checkpoint: &Checkpoint, model: &Model, ui: Ui) {
    for warning in millrace_model::warnings(checkpoint, model) {
        ui.warn(printable(&warning));
    }
}

/// Prints warnings about a vocabulary or a prompt. They may contain text from files.
pub(crate) fn warn<'a>(warnings: impl IntoIterator<Item = &'a Warning>, ui: Ui) {
    for warning in warnings {
        ui.warn(printable(&warning.to_string()));
    }
}

/// Refuses an output that would replace something the command reads: a file of the model or their folder, or one of `others`, by any name.
pub(crate) fn refuse_input(out: &Path, model: &Checkpoint, others: &[&Path]) -> CommandResult {
    let Ok(target) = out.canonicalize() else {
        return Ok(());
    };
    let files = model.files().iter().map(PathBuf::as_path);
    let folders = model
        .hf()
        .into_iter()
        .flat_map(|_| files.clone().filter_map(Path::parent));
    let mut inputs = files.clone().chain(folders).chain(others.iter().copied());
    if inputs.any(|input| input.canonicalize().is_ok_and(|input| input == target)) {
        let message = format!(
            "{} is an input of this command, which it would replace",
            out.display()
        );
        return Err(CommandFailure::usage(message).hint("name another output"));
    }
    Ok(())
}
