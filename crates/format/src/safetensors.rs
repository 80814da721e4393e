//! safetensors: a JSON header and the tensors' bytes. Reader, writer, sharded models with an
//! index, and the Q4NX bundles that use the same container.
//!
//! A file is the header's length (u64, little-endian), the header, and the data, which the tensors
//! fill without gaps. The header maps each name to `dtype`, `shape` (slowest dimension first) and
//! `data_offsets` (begin and end, from the start of the data); `__metadata__` maps strings to
//! strings.
//!
//! # Q4NX
//!
//! Tensors of 5120-byte Q4NX blocks come in two spellings:
//!
//! - type `Q4NX` with the matrix's shape `[n, k]`: the subtractive reading;
//! - type `I8` with shape `[blocks, 5120]`: the additive reading. The matrix is not recorded; the reader
//!   of the tensor must know it ([`crate::Tensor::as_matrix`]). Only files named `*.q4nx` are read so,
//!   since elsewhere such a tensor may be plain bytes.
//!
//! This crate writes the second with one addition: the metadata entry `millrace.shape.NAME` = `n,k`,
//! with which the file needs no name and no configuration.

mod header;
mod index;
mod sharded;
mod types;
mod write;

pub use header::Header;
pub use index::Index;
pub use sharded::ShardedWriter;
pub use write::Writer;

/// The file name of a model in one file.
pub const MODEL_FILE: &str = "model.safetensors";
/// The file name of a sharded model's index.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// The file name of a Q4NX bundle.
pub const Q4NX_FILE: &str = "model.q4nx";
/// Metadata keys that record the matrix behind Q4NX blocks start with this, and end with the
/// tensor's name.
pub const SHAPE_KEY_PREFIX: &str = "millrace.shape.";
/// The longest header that is read; the reference implementation has the same limit.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
