//! The native half of the Python package `millrace`: a binding of the crate of that name.
//!
//! The interpreter's lock is released during all work. The Python half (`python/millrace`) has the exceptions, the
//! types and code that needs no speed.
#![forbid(unsafe_code)]

mod cancel;
mod embed;
mod errors;
mod generation;
mod logits;
mod model;
mod model_arguments;
mod options;
mod process;
mod prompts;
mod stream;
mod tokens;
mod watch;

use millrace::{Device, Level};
use pyo3::prelude::*;

/// The native half of `millrace`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<cancel::CancelToken>()?;
    module.add_class::<generation::Completion>()?;
    module.add_class::<logits::LogitRows>()?;
    module.add_class::<model::PythonModel>()?;
    module.add_class::<stream::TextStream>()?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(levels, module)?)
}

/// Devices that a model can run on: names and titles.
#[pyfunction]
fn devices() -> Vec<(&'static str, &'static str)> {
    Device::names()
}

/// Instruction sets of this computer's CPU that have kernels, the least first.
#[pyfunction]
fn levels() -> Vec<&'static str> {
    Level::supported().into_iter().map(Level::name).collect()
}
