//! The border to C: everything `unsafe` of this crate is here.
#![allow(unsafe_code)]

pub(crate) mod abi;
mod backends;
pub(crate) mod border;
mod cpu_backend;
mod entry;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod log;
mod memory;
pub(crate) mod objects;
pub(crate) mod openmp;
pub(crate) mod probe;
pub(crate) mod tensor;
