//! Block quantisation formats: bytes to numbers and back.
#![forbid(unsafe_code)]

mod dtype;
pub use dtype::DType;
