//! Keyword arguments of a generation.

use crate::cancel::CancelToken;
use crate::errors::{bad_value, exception};
use crate::prompts::Texts;
use crate::watch::WorkWatch;
use millrace::sampling::Mirostat;
use millrace::{Options, RgbImage, read_image};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Every argument, for messages. The type stubs list them too, and a test compares the lists.
const NAMES: [&str; 19] = [
    "cancel",
    "frequency_penalty",
    "ignore_end",
    "images",
    "logit_bias",
    "max_tokens",
    "min_p",
    "mirostat",
    "penalty_last_n",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "show_special",
    "stop",
    "stop_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
];

/// The keyword arguments of a call.
#[derive(Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) options: Options,
    pub(crate) watch: WorkWatch,
    pub(crate) images: Vec<RgbImage>,
}

impl CallOptions {
    /// Reads the arguments; `None` leaves the choice to the model's files.
    pub(crate) fn of(py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<CallOptions> {
        let (mut options, mut token, mut images) = (Options::new(), None, Vec::new());
        for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
            let name: String = name.extract()?;
            if !NAMES.contains(&name.as_str()) {
                return Err(unexpected(&name, &NAMES));
            }
            if value.is_none() {
                continue;
            }
            match name.as_str() {
                "cancel" => token = Some(of_type::<CancelToken>(&name, &value)?),
                "images" => images = image_list(py, &value)?,
                name => options = set(options, name, &value)?,
            }
        }
        let watch = WorkWatch::new(token);
        Ok(CallOptions {
            options: options.cancel(&watch.cancel),
            watch,
            images,
        })
    }
}

/// The options with one argument more.
fn set(options: Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Options> {
    Ok(match name {
        "temperature" => options.temperature(of_type(name, value)?),
        "top_k" => options.top_k(of_type(name, value)?),
        "top_p" => options.top_p(of_type(name, value)?),
        "min_p" => options.min_p(of_type(name, value)?),
        "mirostat" => {
            let (tau, eta) = of_type(name, value)?;
            options.mirostat(Mirostat { tau, eta })
        }
        "typical_p" => options.typical_p(of_type(name, value)?),
        "repetition_penalty" => options.repetition_penalty(of_type(name, value)?),
        "presence_penalty" => options.presence_penalty(of_type(name, value)?),
        "frequency_penalty" => options.frequency_penalty(of_type(name, value)?),
        "penalty_last_n" => options.penalty_last_n(of_type(name, value)?),
        "seed" => options.seed(of_type(name, value)?),
        "max_tokens" => options.max_tokens(of_type(name, value)?),
        "ignore_end" => options.ignore_end(of_type(name, value)?),
        "show_special" => options.show_special(of_type(name, value)?),
        "stop" => match Texts::of(name, value)? {
            Texts::One(text) => options.stop(text),
            Texts::Many(texts) => texts.into_iter().fold(options, Options::stop),
        },
        "stop_tokens" => {
            let tokens: Vec<u32> = of_type(name, value)?;
            tokens.into_iter().fold(options, Options::stop_token)
        }
        "logit_bias" => {
            let biases: BTreeMap<u32, f32> = of_type(name, value)?;
            let add = |options: Options, (token, bias)| options.logit_bias(token, bias);
            biases.into_iter().fold(options, add)
        }
        unknown => return Err(unexpected(unknown, &NAMES)),
    })
}

/// Converts a value to an argument's type.
pub(crate) fn of_type<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let extracted = value.extract::<T>().map_err(Into::into);
    extracted.map_err(|why: PyErr| {
        let wrong = format!("`{name}`: {}", why.value(value.py()));
        match why.is_instance_of::<PyTypeError>(value.py()) {
            true => PyTypeError::new_err(wrong),
            false => bad_value(value.py(), &wrong, None),
        }
    })
}

/// The exception for an argument that a call does not have.
pub(crate) fn unexpected(name: &str, known: &[&str]) -> PyErr {
    let near = |known: &&&str| strsim::jaro_winkler(known, name) > 0.8;
    let hint = match known.iter().find(near) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    };
    PyTypeError::new_err(format!("unexpected argument `{name}`: {hint}"))
}

/// Images: paths, or the bytes of files.
fn image_list(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Vec<RgbImage>> {
    let is_one = value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>();
    if is_one {
        let what = "`images` is a list of paths and bytes, also for one image";
        return Err(PyTypeError::new_err(what));
    }
    let mut images = Vec::new();
    for (index, image) in value.try_iter()?.enumerate() {
        let image = image?;
        let image = if let Ok(bytes) = image.cast::<PyBytes>() {
            let name = format!("image {index}");
            RgbImage::decode(&name, bytes.as_bytes()).map_err(millrace::Error::from)
        } else {
            read_image(&of_type::<PathBuf>("images", &image)?)
        };
        images.push(image.map_err(|error| exception(py, &error))?);
    }
    Ok(images)
}
