//! The border to C: everything `unsafe` of this crate is here.
#![allow(unsafe_code)]

pub(crate) mod abi;
pub(crate) mod border;
mod entry;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod log;
mod memory;
pub(crate) mod objects;
pub(crate) mod openmp;
pub(crate) mod probe;
pub(crate) mod tensor;
