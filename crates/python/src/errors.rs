//! The library's errors as Python's exceptions.

use millrace::{Error, engine};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The module that defines the classes.
const MODULE: &str = "millrace._errors";

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let advice = error.advice().map(|advice| in_python(&advice));
    raise(py, class(error), &in_python(&message(error)), advice)
}

/// The text of an error. Those of the engine end with a remedy in the command line's words; where there is other advice, they end before it.
fn message(error: &Error) -> String {
    let text = error.to_string();
    match error {
        Error::Engine(engine::Error::BadOption {
            option,
            found,
            expected,
        }) => format!("{} is {found}; it must be {expected}", argument(option)),
        Error::Engine(_) if error.advice().is_some() => match text.split_once("; ") {
            Some((what, _)) => what.to_owned(),
            None => text,
        },
        _ => text,
    }
}

/// The argument for an option of the engine, whose names are those of the command line.
fn argument(option: &str) -> String {
    match option {
        "ctx" => "`context`".to_owned(),
        "max-sequences" => "`sequences`".to_owned(),
        words if words.contains(' ') => words.to_owned(),
        option => format!("`{}`", option.replace('-', "_")),
    }
}

/// An exception for a caller's value that this module checks itself.
pub(crate) fn bad_value(py: Python<'_>, message: &str, advice: Option<String>) -> PyErr {
    raise(py, "InvalidValueError", message, advice)
}

/// An exception for a call on a closed object.
pub(crate) fn closed(py: Python<'_>, message: &str) -> PyErr {
    raise(py, "ClosedError", message, None)
}

fn raise(py: Python<'_>, class: &str, message: &str, advice: Option<String>) -> PyErr {
    let made = py
        .import(MODULE)
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message, advice)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        // Without the package's Python files, the module still reports the error.
        Err(missing) => {
            let error = PyRuntimeError::new_err(message.to_owned());
            error.set_cause(py, Some(missing));
            error
        }
    }
}

/// The class for an error, by what the caller can do about it.
fn class(error: &Error) -> &'static str {
    use engine::Error as Inner;
    match error {
        Error::NoModel { .. } | Error::NoHub { .. } => "ModelNotFoundError",
        Error::File(_) | Error::Model(_) | Error::NoWeights { .. } => "ModelFileError",
        Error::NoDevice { .. } | Error::Device(_) | Error::Lower(_) => "DeviceError",
        Error::Engine(Inner::ContextOverflow { .. }) => "ContextOverflowError",
        Error::Cancelled => "CancelledError",
        Error::NoFacts { .. }
        | Error::Facts { .. }
        | Error::NpuSetting { .. }
        | Error::KvType { .. }
        | Error::BiasBeyond { .. }
        | Error::EmptyStop
        | Error::Setting(_)
        | Error::Placeholders { .. }
        | Error::OtherImage { .. }
        | Error::Image(_)
        | Error::Text(_) => "InvalidValueError",
        Error::Engine(
            Inner::BadOption { .. }
            | Inner::BadToken { .. }
            | Inner::BeyondRope { .. }
            | Inner::CacheTooLarge { .. }
            | Inner::EmptyPrompt
            | Inner::Kernels(_),
        ) => "InvalidValueError",
        _ => "Error",
    }
}

/// A sentence of the library in Python's words: a builder's method in Rust and an option of the command line are arguments here.
fn in_python(text: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("`Device::", "`"),
        ("`OpenOptions::", "`"),
        ("`Options::", "`"),
        ("--ctx", "`context`"),
        ("--device", "`device`"),
        ("--kv-type", "`kv_type`"),
        ("--max-tokens", "`max_tokens`"),
        ("--mmproj FILE", "`mmproj`"),
    ];
    WORDS
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
