//! The one error type of this crate.

use crate::level::Level;
use millrace_quant::DType;

/// What can go wrong before a kernel runs. Kernels themselves do not fail: their inputs are checked
/// here first, and slices whose lengths contradict each other are a caller's bug (documented
/// panics).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The level asked for needs instructions this CPU does not have.
    #[error("this CPU cannot run level `{asked}`; the best it can run is `{best}`")]
    UnsupportedLevel {
        /// The level asked for.
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
        /// The count asked for.
        asked: usize,
    },
    /// The operating system refused to start a worker.
    #[error("cannot start worker thread {index} of {n_threads}: {source}")]
    Spawn {
        /// Index of the worker that failed.
        index: usize,
        /// Threads asked for.
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
        /// Bytes asked for.
        n_bytes: usize,
    },
    /// A KV cache layout or attention shape that contradicts itself.
    #[error("unusable attention geometry: {what} (found {found}, needs {needs})")]
    Geometry {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: usize,
        /// What it must satisfy.
        needs: String,
    },
}
