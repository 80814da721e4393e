//! Tests of the crate as its users see it: real files, hostile files, mutated files.
// Tests unwrap in their helpers too: a panic is how they fail.
#![allow(clippy::unwrap_used)]

mod allocation;
mod checkpoint;
mod hostile_folders;
mod hostile_gguf;
mod hostile_safetensors;
mod metadata;
mod mutate;
mod mutations;
mod output;
mod raw;
mod reference_files;
mod round_trip;
