//! Published measurements of NPUs, compared with predictions. Nothing that runs a model needs this crate.
//!
//! Each target has a module with its rows (`data/<target>/measured.csv`), the report on them, and other figures
//! published of it. A command line gets [`ALL`] along with the registry of targets.
//!
//! | module | holds |
//! |---|---|
//! | [`xdna2`] | AMD NPU2: rows of kernels and of whole models, constants fitted anew, a page, a paper's tables |
//! | [`rk3588`] | Rockchip RK3588: rows of products and of whole models |
//! | [`tcp`] | FuriosaAI RNGD: rows of kernels and of whole models, tables of its document |
#![forbid(unsafe_code)]

pub mod rk3588;
pub mod tcp;
pub mod xdna2;

use millrace_plan::Evidence;

/// Evidence for every target.
pub static ALL: &[&dyn Evidence] = &[
    &xdna2::Xdna2Evidence,
    &rk3588::Rk3588Evidence,
    &tcp::TcpEvidence,
];
