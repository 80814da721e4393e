//! Resolves a model's name to its files.

use crate::{Cancel, EmbeddedModel, Error, Result};
use millrace_format::Checkpoint;
use millrace_format::hf::Files;
use millrace_runtime::{LoadedModel, tokenizer_of, tokenizer_of_files};
use millrace_text::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "hub")]
use millrace_hub::{Hub, HubSettings, Progress, Reference, Watch};

/// Observer of a download.
#[cfg(feature = "hub")]
type Tell = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// How a model is opened.
///
/// ```no_run
/// use millrace::{Model, OpenOptions, hub::Progress};
///
/// # fn main() -> Result<(), millrace::Error> {
/// let options = OpenOptions::new().progress(|progress| {
///     if let Progress::Bytes { done, total } = progress {
///         eprintln!("{done} of {total} bytes");
///     }
/// });
/// let model = Model::open_with("hf:Qwen/Qwen3-0.6B", &options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    offline: bool,
    cancel: Cancel,
    pub(crate) mmproj: Option<PathBuf>,
    pub(crate) reading: millrace_runtime::vision::ReadOptions,
    #[cfg(feature = "hub")]
    tell: Option<Tell>,
}

impl OpenOptions {
    /// The defaults: models of the hub that are not in the cache are downloaded.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Whether to stay off the network, as with `HF_HUB_OFFLINE`: models of the hub must be in the cache.
    #[must_use]
    pub fn offline(mut self, offline: bool) -> OpenOptions {
        self.offline = offline;
        self
    }

    /// Handle that stops a download.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> OpenOptions {
        self.cancel = cancel.clone();
        self
    }

    /// Callback for a download's progress, called on the thread that opens the model.
    #[cfg(feature = "hub")]
    #[must_use]
    pub fn progress(mut self, tell: impl Fn(Progress<'_>) + Send + Sync + 'static) -> OpenOptions {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// The GGUF file with the model's vision encoder, if it is not the mmproj file beside the model's own.
    #[must_use]
    pub fn mmproj(mut self, file: impl Into<PathBuf>) -> OpenOptions {
        self.mmproj = Some(file.into());
        self
    }

    /// Which library's image preprocessing to follow; by default that of transformers.
    #[must_use]
    pub fn image_style(mut self, style: crate::ImageStyle) -> OpenOptions {
        self.reading.style = style;
        self
    }

    /// Whether long images are also viewed in parts, up to four.
    #[must_use]
    pub fn pan_and_scan(mut self, pan_and_scan: bool) -> OpenOptions {
        self.reading.pan_and_scan = pan_and_scan;
        self
    }
}

/// The files of a model that was found by name: built in, or at a path.
#[derive(Clone, Debug)]
pub struct ModelFiles(ModelLocation);

#[derive(Clone, Debug)]
enum ModelLocation {
    BuiltIn(EmbeddedModel),
    Path(PathBuf),
}

impl ModelFiles {
    /// Finds a model: the name of a [built-in](EmbeddedModel) one, a file or folder, `hf:OWNER/REPO[@REVISION][:QUANT]` or
    /// its web address, or `OWNER/REPO[…]` that is in the cache. One of the hub that is not in the cache is downloaded.
    ///
    /// # Errors
    /// [`Error::NoModel`], with similar names; errors of the hub.
    pub fn find(name: &str, options: &OpenOptions) -> Result<ModelFiles> {
        if let Some(model) = EmbeddedModel::find(name) {
            return Ok(ModelFiles(ModelLocation::BuiltIn(model)));
        }
        let at = |path| Ok(ModelFiles(ModelLocation::Path(path)));
        if ["hf:", "http://", "https://"]
            .iter()
            .any(|start| name.starts_with(start))
        {
            return at(fetch(name, options)?);
        }
        // A dangling link was the request too; opening it reports where it points.
        if Path::new(name).exists() || Path::new(name).is_symlink() {
            return at(PathBuf::from(name));
        }
        cached(name).and_then(at)
    }

    /// Opens the files, of whatever kind they are.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        match &self.0 {
            ModelLocation::BuiltIn(model) => model.open(),
            ModelLocation::Path(path) => Ok(Checkpoint::open(path)?),
        }
    }

    /// Opens the model to run it.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::NoWeights`], [`Error::Model`].
    pub fn load(&self) -> Result<Arc<LoadedModel>> {
        let checkpoint = self.with_weights()?;
        Ok(Arc::new(LoadedModel::from_checkpoint(checkpoint)?))
    }

    /// Opens the model to draft with: any model, or the assistant of another one.
    ///
    /// # Errors
    /// As [`load`](ModelFiles::load).
    pub fn load_draft(&self) -> Result<Arc<LoadedModel>> {
        let checkpoint = self.with_weights()?;
        Ok(Arc::new(LoadedModel::from_draft_checkpoint(checkpoint)?))
    }

    fn with_weights(&self) -> Result<Checkpoint> {
        let checkpoint = self.checkpoint()?;
        if checkpoint.tensors().is_empty() {
            return Err(Error::NoWeights {
                model: checkpoint.name().to_owned(),
            });
        }
        Ok(checkpoint)
    }

    /// Loads only the tokenizer. No weights are needed, and any architecture is accepted.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Text`] or [`Error::Engine`] if there is no tokenizer or an unknown one.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let path = match &self.0 {
            ModelLocation::BuiltIn(model) => return Ok(tokenizer_of(&model.open()?)?),
            ModelLocation::Path(path) => path,
        };
        let folder = match path.file_name() {
            Some(name) if name == "tokenizer.json" => Some(folder_of(path)),
            _ => Some(path.as_path()).filter(|path| path.is_dir()),
        };
        if let Some(folder) = folder
            && let Some(tokenizer) = tokenizer_of_files(&Files::read(folder)?)?
        {
            return Ok(tokenizer);
        }
        let checkpoint = Checkpoint::open(path)?;
        match tokenizer_of(&checkpoint) {
            Err(error @ millrace_runtime::Error::NoTokenizer { .. }) => {
                // For a file that is not a model, this gives the better message.
                millrace_model::check_kind(&checkpoint)?;
                Err(error.into())
            }
            found => Ok(found?),
        }
    }
}

/// Uses the cached copy if it is complete: a run must not change because the hub did.
#[cfg(feature = "hub")]
fn fetch(name: &str, options: &OpenOptions) -> Result<PathBuf> {
    let reference = Reference::parse(name)?;
    let hub = Hub::new(HubSettings::from_env(options.offline)?);
    if let Ok(cached) = hub.cached(&reference) {
        return Ok(cached.path);
    }
    let watch = Watch {
        tell: &|progress| {
            if let Some(tell) = &options.tell {
                tell(progress);
            }
        },
        cancel: options.cancel.flag(),
    };
    match hub.pull(&reference, &watch) {
        Err(millrace_hub::Error::Interrupted) => Err(Error::Cancelled),
        pulled => Ok(pulled?.path),
    }
}

#[cfg(not(feature = "hub"))]
fn fetch(name: &str, _: &OpenOptions) -> Result<PathBuf> {
    let name = name.to_owned();
    Err(Error::NoHub { name })
}

/// A model from the cache, named without a prefix.
#[cfg(feature = "hub")]
fn cached(name: &str) -> Result<PathBuf> {
    let hub = HubSettings::from_env(true).map(Hub::new).ok();
    let reference = Reference::parse(name)
        .ok()
        .filter(|name| name.repo.contains('/'));
    if let (Some(hub), Some(reference)) = (&hub, &reference)
        && let Ok(cached) = hub.cached(reference)
    {
        return Ok(cached.path);
    }
    let cached = hub.map(|hub| hub.cached_repos()).unwrap_or_default();
    Err(unknown(name, reference.map(|r| r.to_string()), cached))
}

#[cfg(not(feature = "hub"))]
fn cached(name: &str) -> Result<PathBuf> {
    Err(unknown(name, None, Vec::new()))
}

/// The folder that contains a file.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The error for an unknown name, with similar names.
fn unknown(name: &str, reference: Option<String>, cached: Vec<String>) -> Error {
    let is_file = name.ends_with(".gguf") || name.ends_with(".safetensors");
    Error::NoModel {
        name: name.to_owned(),
        similar: similar(name, candidates(name, cached)),
        reference: reference.filter(|_| !is_file),
    }
}

/// Names that exist: built-in models, cached repositories, and models in the named folder.
fn candidates(text: &str, cached: Vec<String>) -> Vec<String> {
    let built_in = EmbeddedModel::all()
        .iter()
        .map(|model| model.name().to_owned());
    let mut names: Vec<String> = built_in.chain(cached).collect();
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
