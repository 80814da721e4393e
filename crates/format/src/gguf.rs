//! GGUF: ggml's single-file container. Reader for versions 2 and 3, split files, writer.
//!
//! A file is a header (magic, version, counts), metadata (typed key–value pairs), a table of
//! tensors (name, dimensions, type, offset) and, from the next multiple of `general.alignment`,
//! the tensors' bytes. Everything is little-endian; strings and arrays carry 64-bit lengths.

mod metadata;
mod read;
mod split;
mod types;
mod value;
mod write;

pub use metadata::Metadata;
pub use read::Header;
pub use split::{SplitName, keys as split_keys};
pub use value::{GgufArray, GgufValue};
pub use write::Writer;

pub(crate) use split::open_split;

/// The first four bytes of a file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// Tensor bytes start at multiples of this unless the file says otherwise.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// The metadata key of another alignment.
pub const ALIGNMENT_KEY: &str = "general.alignment";
/// ggml's limit on the dimensions of a tensor.
pub const MAX_DIMS: usize = 4;
