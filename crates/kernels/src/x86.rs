//! x86-64 leaves, a folder a level.

pub(crate) mod amx;
pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod avx_vnni;
mod float_formats;
mod recurrent;
mod streams;
