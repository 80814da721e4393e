//! The words that an AMD XDNA2 (NPU2) reads: registers, buffer descriptors, and the transaction stream that firmware
//! executes.
//!
//! | module | holds |
//! |---|---|
//! | [`tile`] | tiles, their kinds and addresses |
//! | [`field`] | records of bit fields: words to values and back, nothing lost, nothing cut |
//! | [`descriptor`] | buffer descriptors of cores, memory tiles and shims |
//! | [`register`] | register blocks of each kind of tile, with their fields |
//! | [`port`] | ports of the stream switches, their legal joins, and their neighbours |
//! | [`txn`] | the transaction stream, format 0.1 |
//! | [`router`] | ways of streams through the switches |
//! | [`writer`] | streams written part by part |
//! | [`listing`] | a stream as text |
//! | [`board`] | a register-level NPU2 that executes streams |
//! | [`probe`] | programs of DMA alone, with their data |
//!
//! Numbers and names come from aie-rt (`xaie2pgbl_params.h`, `xaie2pgbl_reginit.c`), mlir-aie
//! (`TxnEncoding.h`, `AIETargetModel`, `AIEDialect`) and xdna-driver, as published; each table says
//! which. No code of theirs is here.

#![forbid(unsafe_code)]

pub mod board;
pub mod descriptor;
pub mod field;
pub mod listing;
pub mod port;
pub mod probe;
pub mod register;
pub mod router;
pub mod tile;
pub mod txn;
pub mod writer;

pub use field::{FieldError, Layout, Record, WordField};
pub use listing::{Listing, ListingLine};
pub use tile::{Tile, TileKind};
pub use txn::{StreamError, StreamHeader, TxnOperation, TxnStream};
