//! Model files as one memory-mapped [`Checkpoint`].
//!
//! Input: GGUF files (also split), safetensors (also sharded), Hugging Face model folders and Q4NX
//! bundles. Output: a list of tensors with names, types, shapes and bytes, which are the file's own
//! and not copied, and the metadata that came with them. Writers go the other way.
//!
//! Nothing read is trusted. For any file, the outcome is a checkpoint whose every tensor is inside
//! its file, or an [`Error`] that names file, tensor, offset, expected and found value. It is never a
//! panic, and never an allocation that the file's own length does not justify.
//!
//! ```
//! use std::{io::Cursor, path::Path};
//! use millrace_format::{TensorSpec, gguf};
//! use millrace_quant::DType;
//!
//! let name = Path::new("tiny.gguf");
//! let mut metadata = gguf::Metadata::new();
//! metadata.insert("general.architecture", "llama");
//! let specs = [TensorSpec::new("token_embd.weight", DType::F32, &[2, 4])];
//! let mut writer = gguf::Writer::new(Cursor::new(vec![]), name, &metadata, &specs)?;
//! writer.write("token_embd.weight", &[0; 32])?;
//! let bytes = writer.finish()?.into_inner();
//!
//! let header = gguf::Header::parse(&bytes, name)?;
//! assert_eq!(header.metadata.get_str("general.architecture")?, Some("llama"));
//! assert_eq!(header.tensors[0].shape, [2, 4]);
//! # Ok::<(), millrace_format::Error>(())
//! ```
#![deny(unsafe_code)] // `mmap` alone is exempt: mapping a file is unsafe by nature.

mod bytes;
mod checkpoint;
mod error;
mod extents;
pub mod gguf;
pub mod hf;
#[allow(unsafe_code)]
mod mmap;
mod opaque;
mod open;
pub mod output;
mod packed;
mod recognize;
pub mod safetensors;
mod tensor;

pub use checkpoint::{Checkpoint, Source};
pub use error::Error;
pub use mmap::Advice;
pub use opaque::OpaqueType;
pub use open::is_mmproj;
pub use packed::{Packing, UnsupportedPacking};
pub use tensor::{PlainType, Tensor, TensorInfo, TensorSpec, TensorType};
