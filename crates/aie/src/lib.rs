//! Others' designs for AMD's NPU2: MLIR's `aie` dialect as text, lowered to the words that the hardware reads, and run
//! on the board of `millrace-xdna2-words`.
//!
//! ```text
//! text ─► ops ─► design ─► words ─► board ─► bytes, or who waits for whom
//!                   └────► programs of cores ──┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `syntax` | MLIR's text: words, types, attributes, the forms of all known ops |
//! | `design` | tiles, buffers, locks, descriptors, flows; object FIFOs in these terms |
//! | `lower` | places, routes, fields of descriptors, the sequence, one transaction stream |
//! | `core` | programs of cores, interpreted; kernels of other files by their names |
//! | `run` | a design on the board, with several orders of its actors; the ring of a hang |
//! | `time` | the board's events with a clock for each actor: modelled time, traces |
//!
//! Unknown input is refused with line, column and op. A run passes only if all waits of the sequence are met and all
//! writes of shims are complete. A run that stops earlier is a hang or a failure.

#![forbid(unsafe_code)]

mod core;
mod design;
mod footprint;
mod lower;
mod ring;
mod run;
mod sample;
mod syntax;
mod time;

pub use design::{Design, HostNumber, ReadOptions};
pub use footprint::{Footprint, TileUse};
pub use run::{OutputBytes, RunOptions, RunReport, Verdict, run};
pub use syntax::{Location, SyntaxError};
pub use time::{ActorTime, DesignTime, TimeModel, time};

pub use millrace_npu::Trace;

pub use millrace_xdna2_words::board::UnsetMemory;
pub use millrace_xdna2_words::listing::listing;
pub use millrace_xdna2_words::{Listing, ListingLine, TxnStream};

/// The transaction stream of a design: set-up, sequence, and waits for all that shims write.
///
/// # Errors
/// The first part without words, with its place.
pub fn words(design: &Design) -> Result<TxnStream, SyntaxError> {
    design.is_one("a transaction stream")?;
    Ok(lower::lower(design)?.stream)
}
