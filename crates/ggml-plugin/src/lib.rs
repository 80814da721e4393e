//! A shared library that unmodified llama.cpp loads as a backend: `GGML_BACKEND_PATH=…/libggml_millrace.so llama-bench …`.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | the border to C: structures, the host's functions by name, the objects that the host sees; all `unsafe` |
//! | `device` | the interface of a device |
//! | `product` | ggml's products of matrices, checked |
//! | `gate` | ggml's gated activations, checked and computed |
//! | `cpu`, `rows` | the device `Millrace`: the CPU's kernels; from how many tokens on they are taken |
//! | `node` | the device `MillraceNode`: those kernels, and the host's CPU backend for every other op |
//! | `npu` | NPUs of the registry of targets as devices |
//! | `report` | ops that were computed, and reasons why others were not |
//! | `settings` | variables of the environment |
//!
//! [docs/llama-cpp.md](https://github.com/millrace/millrace/blob/main/docs/llama-cpp.md) describes its use and has measurements.
#![deny(unsafe_code)]

mod cpu;
mod device;
mod gate;
mod load;
mod node;
mod npu;
mod product;
mod report;
mod rows;
mod settings;
mod sys;
#[cfg(test)]
mod tests;
