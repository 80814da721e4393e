//! The MODEL argument: built-in name, path, hub reference, or cached repository.

use crate::embedded::{self, Embedded};
use crate::exit::{Failure, Outcome};
use crate::hub::{Hub, Reference, Settings};
use crate::output::{Ui, printable};
use millrace_format::Checkpoint;
use millrace_format::hf::Files;
use millrace_model::Model;
use millrace_runtime::{LoadedModel, tokenizer_of, tokenizer_of_files};
use millrace_text::{Tokenizer, Warning};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Help of the model's argument, wherever it stands.
pub(crate) const MODEL_HELP: &str =
    "Model: `demo` (built in), a file or folder, hf:OWNER/REPO[:QUANT], or OWNER/REPO if pulled";

/// What commands that read a model take.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    /// What the user wrote.
    #[arg(value_name = "MODEL", value_hint = clap::ValueHint::AnyPath, help = MODEL_HELP)]
    pub(crate) model: String,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Where a model is.
enum Place {
    BuiltIn(Embedded),
    Path(PathBuf),
}

impl ModelArgs {
    /// Opens the model's files, downloading them first if it is an `hf:` model that is not here.
    pub(crate) fn open(&self, ui: Ui) -> Outcome<Checkpoint> {
        match self.place(ui)? {
            Place::BuiltIn(model) => model.open(),
            Place::Path(path) => Ok(Checkpoint::open(&path)?),
        }
    }

    /// Opens the model to run it, and says what of its files is left aside or overruled.
    pub(crate) fn load(&self, ui: Ui) -> Outcome<Arc<LoadedModel>> {
        let checkpoint = self.open(ui)?;
        if checkpoint.tensors().is_empty() {
            let message = format!(
                "{} holds no weights, only what is said of them",
                checkpoint.name()
            );
            return Err(Failure::bad_input(message).hint(
                "running takes the model's own file; `millrace tokenize` reads a vocabulary alone",
            ));
        }
        let loaded = LoadedModel::from_checkpoint(checkpoint)?;
        warn_of(loaded.checkpoint(), loaded.model(), ui);
        Ok(Arc::new(loaded))
    }

    /// Only the tokenizer: no weights are needed, and the architecture may be any.
    pub(crate) fn tokenizer(&self, ui: Ui) -> Outcome<Tokenizer> {
        let path = match self.place(ui)? {
            Place::BuiltIn(model) => return Ok(tokenizer_of(&model.open()?)?),
            Place::Path(path) => path,
        };
        let folder = match path.file_name() {
            Some(name) if name == "tokenizer.json" => Some(folder_of(&path)),
            _ => Some(path.as_path()).filter(|path| path.is_dir()),
        };
        if let Some(folder) = folder
            && let Some(tokenizer) = tokenizer_of_files(&Files::read(folder)?)?
        {
            return Ok(tokenizer);
        }
        let checkpoint = Checkpoint::open(&path)?;
        match tokenizer_of(&checkpoint) {
            Err(error @ millrace_runtime::Error::NoTokenizer { .. }) => {
                // What is no model at all has something better to say.
                millrace_model::check_kind(&checkpoint)?;
                Err(error.into())
            }
            found => Ok(found?),
        }
    }

    fn place(&self, ui: Ui) -> Outcome<Place> {
        let text = self.model.as_str();
        if let Some(model) = embedded::find(text) {
            return Ok(Place::BuiltIn(model));
        }
        if text.starts_with("hf:") || text.starts_with("http://") || text.starts_with("https://") {
            return self.fetch(&Reference::parse(text)?, ui).map(Place::Path);
        }
        // A link to nowhere is what was asked for, and opening it says where it leads.
        if Path::new(text).exists() || Path::new(text).is_symlink() {
            return Ok(Place::Path(PathBuf::from(text)));
        }
        let hub = Settings::from_env(true).map(Hub::new).ok();
        let reference = Reference::parse(text)
            .ok()
            .filter(|name| name.repo.contains('/'));
        if let (Some(hub), Some(reference)) = (&hub, &reference)
            && let Ok(cached) = hub.cached(reference)
        {
            return Ok(Place::Path(cached.path));
        }
        Err(unknown(
            text,
            reference.as_ref(),
            hub.map(|hub| hub.cached_repos()).unwrap_or_default(),
        ))
    }

    /// The cached copy if there is a whole one: a run must not change because the hub did.
    fn fetch(&self, reference: &Reference, ui: Ui) -> Outcome<PathBuf> {
        let hub = Hub::new(Settings::from_env(self.offline)?);
        if let Ok(cached) = hub.cached(reference) {
            return Ok(cached.path);
        }
        Ok(hub.pull(reference, ui)?.path)
    }
}

/// Says what of a checkpoint the model leaves aside or overrules.
pub(crate) fn warn_of(checkpoint: &Checkpoint, model: &Model, ui: Ui) {
    for warning in millrace_model::warnings(checkpoint, model) {
        ui.warn(printable(&warning));
    }
}

/// Says what a user should know of a vocabulary or a prompt. Files wrote parts of it.
pub(crate) fn warn(warnings: &[Warning], ui: Ui) {
    for warning in warnings {
        ui.warn(printable(&warning.to_string()));
    }
}

/// The folder a file lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Nothing has that name: say so, and name what comes close.
fn unknown(text: &str, reference: Option<&Reference>, cached: Vec<String>) -> Failure {
    let failure = Failure::not_found(format!(
        "no model `{text}`: not built in, no such file or folder"
    ));
    let similar = similar(text, candidates(text, cached));
    if !similar.is_empty() {
        return failure.hint(format!("did you mean {}?", similar.join(" or ")));
    }
    match reference {
        Some(reference) if !text.ends_with(".gguf") && !text.ends_with(".safetensors") => failure
            .hint(format!(
                "if it is on the Hugging Face Hub, `millrace pull {reference}` gets it"
            )),
        _ => failure.hint("try `demo`, a path, or hf:OWNER/REPO"),
    }
}

/// Names that exist: built-in models, cached repositories, and models in the folder that was named.
fn candidates(text: &str, cached: Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = embedded::MODELS
        .iter()
        .map(|model| model.name.to_owned())
        .chain(cached)
        .collect();
    let folder = Path::new(text).parent().unwrap_or(Path::new(""));
    let listed = if folder == Path::new("") {
        Path::new(".")
    } else {
        folder
    };
    for entry in std::fs::read_dir(listed).into_iter().flatten().flatten() {
        let path = entry.path();
        let by_name = path.extension().is_some_and(|ext| {
            ["gguf", "safetensors", "q4nx"]
                .iter()
                .any(|known| ext.eq_ignore_ascii_case(known))
        });
        if by_name || path.join("config.json").is_file() {
            names.push(folder.join(entry.file_name()).display().to_string());
        }
    }
    names
}

/// The candidates nearest to `text`, at most three, best first.
fn similar(text: &str, candidates: Vec<String>) -> Vec<String> {
    const ENOUGH: f64 = 0.85;
    let score = |name: &String| strsim::jaro_winkler(&text.to_lowercase(), &name.to_lowercase());
    let mut scored: Vec<(f64, String)> = candidates
        .into_iter()
        .map(|name| (score(&name), name))
        .collect();
    scored.retain(|(score, _)| *score >= ENOUGH);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.truncate(3);
    scored
        .into_iter()
        .map(|(_, name)| format!("`{name}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_suggested_and_strangers_are_not() {
        let names = || {
            vec![
                "demo".to_owned(),
                "models/tiny-Q4_0.gguf".to_owned(),
                "acme/tiny".to_owned(),
            ]
        };
        for (typo, name) in [
            ("dmeo", "`demo`"),
            ("models/tiny-Q4_O.gguf", "`models/tiny-Q4_0.gguf`"),
            ("acme/tinny", "`acme/tiny`"),
        ] {
            assert_eq!(
                similar(typo, names()).first().map(String::as_str),
                Some(name),
                "{typo}"
            );
        }
        assert!(similar("something-else", names()).is_empty());
    }
}
