//! Keyword arguments of `Model`.

use crate::cancel::CancelToken;
use crate::errors::{bad_value, exception};
use crate::options::{of_type, unexpected};
use crate::watch::WorkWatch;
use millrace::engine::{AdapterSet, EngineOptions, LoraAdapter};
use millrace::{Device, Error, Model, OpenOptions, Session};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Every argument, for messages. The type stubs list them too, and a test compares the lists.
const NAMES: [&str; 13] = [
    "cancel",
    "context",
    "device",
    "draft",
    "kv_type",
    "level",
    "lora",
    "mmproj",
    "mode",
    "offline",
    "sequences",
    "set",
    "threads",
];

/// The draft without a model: repetitions in the text.
const NGRAM: &str = "ngram";

/// The draft by the model's own layer.
const MTP: &str = "mtp";

/// How a model is opened and put on a device.
#[derive(Debug, Default)]
pub(crate) struct ModelArguments {
    device: Option<String>,
    options: EngineOptions,
    draft: Option<String>,
    mode: Option<String>,
    set: Vec<String>,
    offline: bool,
    mmproj: Option<PathBuf>,
    lora: Vec<(PathBuf, f32)>,
    watch: WorkWatch,
}

impl ModelArguments {
    /// Reads the arguments; `None` counts as not given.
    pub(crate) fn of(
        py: Python<'_>,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ModelArguments> {
        let mut arguments = ModelArguments {
            options: EngineOptions {
                max_sequences: Device::DEFAULT_SEQUENCES,
                keep_prefixes: true,
                ..EngineOptions::default()
            },
            ..ModelArguments::default()
        };
        for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
            let name: String = name.extract()?;
            if !NAMES.contains(&name.as_str()) {
                return Err(unexpected(&name, &NAMES));
            }
            if !value.is_none() {
                arguments.set(py, &name, &value)?;
            }
        }
        Ok(arguments)
    }

    fn set(&mut self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match name {
            "cancel" => self.watch = WorkWatch::new(Some(of_type::<CancelToken>(name, value)?)),
            "context" => self.options.n_ctx = Some(of_type(name, value)?),
            "device" => self.device = Some(of_type(name, value)?),
            "draft" => self.draft = Some(of_type(name, value)?),
            "kv_type" => self.options.kv_type = parsed(py, name, value)?,
            "level" => self.options.level = Some(parsed(py, name, value)?),
            "lora" => self.lora = adapters(name, value)?,
            "mmproj" => self.mmproj = Some(of_type(name, value)?),
            "mode" => self.mode = Some(of_type(name, value)?),
            "offline" => self.offline = of_type(name, value)?,
            "sequences" => self.options.max_sequences = of_type(name, value)?,
            "set" => self.set = of_type(name, value)?,
            "threads" => self.options.n_threads = Some(of_type(name, value)?),
            _ => return Err(unexpected(name, &NAMES)),
        }
        Ok(())
    }

    /// Opens a model, with a download if needed, and places it on the device.
    pub(crate) fn open(self, py: Python<'_>, model: &Path) -> PyResult<Session> {
        let name = model.to_string_lossy().into_owned();
        let watch = self.watch.clone();
        let session = watch.run(py, move || self.session(&name))?;
        session.map_err(|error| exception(py, &error))
    }

    fn session(self, name: &str) -> Result<Session, Error> {
        let mut open = OpenOptions::new().offline(self.offline);
        open = open.cancel(&self.watch.cancel);
        if let Some(mmproj) = &self.mmproj {
            open = open.mmproj(mmproj);
        }
        let model = Model::open_with(name, &open)?;
        let name = self.device.as_deref().unwrap_or(millrace::CPU);
        let mut device = Device::named(name).engine_options(self.options);
        let adapters = self.lora.iter().map(|(path, scale)| {
            let adapter = LoraAdapter::open(path, model.loaded())?;
            Ok((Arc::new(adapter), *scale))
        });
        let adapters = adapters.collect::<Result<Vec<_>, Error>>()?;
        device = device.adapters(AdapterSet::new(adapters));
        device = match self.draft.as_deref() {
            None => device,
            Some(NGRAM) => device.draft_ngram(),
            Some(MTP) => device.draft_mtp(),
            Some(draft) => device.draft(&Model::open_draft(draft, &open)?),
        };
        if let Some(mode) = &self.mode {
            device = device.mode(mode);
        }
        let device = self
            .set
            .iter()
            .fold(device, |device, change| device.set(change));
        model.on(device)
    }
}

/// A LoRA adapter as given in Python: a path, or a path and a scale factor.
#[derive(FromPyObject)]
enum AdapterArgument {
    Scaled(PathBuf, f32),
    Plain(PathBuf),
}

/// One adapter or several.
#[derive(FromPyObject)]
enum AdapterArguments {
    One(AdapterArgument),
    Many(Vec<AdapterArgument>),
}

fn adapters(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<(PathBuf, f32)>> {
    let adapters = match of_type(name, value)? {
        AdapterArguments::One(adapter) => vec![adapter],
        AdapterArguments::Many(adapters) => adapters,
    };
    let adapters = adapters.into_iter().map(|adapter| match adapter {
        AdapterArgument::Scaled(path, scale) => (path, scale),
        AdapterArgument::Plain(path) => (path, 1.0),
    });
    Ok(adapters.collect())
}

/// A value by its name.
fn parsed<T: FromStr<Err: Display>>(
    py: Python<'_>,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<T> {
    let value: String = of_type(name, value)?;
    let parsed = value.parse();
    parsed.map_err(|error: T::Err| bad_value(py, &format!("`{name}`: {error}"), None))
}
