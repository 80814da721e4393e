//! The one error type of this crate.

use crate::level::Level;
use millrace_quant::DType;

/// An error found before a kernel runs. Kernels themselves do not fail: their inputs are checked
/// here first. Slices whose lengths contradict each other are a caller's bug (documented panics).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested level needs instructions this CPU does not have.
    #[error("this CPU cannot run level `{asked}`; the best it can run is `{best}`")]
    UnsupportedLevel {
        /// The requested level.
        asked: Level,
        /// The best level of this CPU.
        best: Level,
    },
    /// No level has this name.
    #[error("unknown level `{name}`; the levels are {}", Level::names())]
    UnknownLevel {
        /// The name given.
        name: String,
    },
    /// A thread count of zero, or one beyond [`crate::pool::MAX_THREADS`].
    #[error("a thread pool needs 1 to {max} threads, {asked} were asked for", max = crate::pool::MAX_THREADS)]
    ThreadCount {
        /// The requested count.
        asked: usize,
    },
    /// The operating system refused to start a worker.
    #[error("cannot start worker thread {index} of {n_threads}: {source}")]
    Spawn {
        /// Index of the worker that failed.
        index: usize,
        /// Threads requested.
        n_threads: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A weight matrix whose bytes do not match its shape and format.
    #[error("a [{n}, {k}] matrix in {} takes {expected} bytes, {found} were given", dtype.name())]
    MatrixBytes {
        /// Block format.
        dtype: DType,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
        /// Bytes the shape needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// A weight matrix whose shape the block format cannot hold.
    #[error(
        "a [{n}, {k}] matrix cannot be stored in {}: rows must be a multiple of {}, columns of {}",
        dtype.name(), dtype.block_rows(), dtype.block_elems()
    )]
    MatrixShape {
        /// Block format.
        dtype: DType,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
    },
    /// Weights that their format cannot decode.
    #[error(transparent)]
    Quant(#[from] millrace_quant::Error),
    /// A token id beyond the embedding table.
    #[error("token {token} is beyond the embedding table of {n_vocab} rows")]
    Token {
        /// The id.
        token: u32,
        /// Rows of the table.
        n_vocab: usize,
    },
    /// No KV cache type has this name.
    #[error("unknown KV cache type `{name}`; the types are f32, f16, bf16, q8_0")]
    UnknownKvType {
        /// The name given.
        name: String,
    },
    /// The system refused memory.
    #[error("cannot allocate {n_bytes} bytes")]
    Memory {
        /// Bytes requested.
        n_bytes: usize,
    },
    /// A KV cache layout or attention shape that contradicts itself.
    #[error("unusable attention geometry: {what} (found {found}, needs {needs})")]
    Geometry {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The condition that it must satisfy.
        needs: String,
    },
}
