//! AArch64 leaves: Advanced SIMD, and what its levels multiply bytes with.
//!
//! The levels share one body for each kernel, generic over [`products::ByteProducts`]; what needs no product of bytes (plain numbers,
//! attention, ops between products) is written for [`crate::Level::Neon`] and serves all of them. Half-precision arithmetic is not
//! used: sums in f16 would not meet the oracle, and conversion to f32 is in every AArch64.

pub(crate) mod attention;
pub(crate) mod block32;
mod block32_levels;
pub(crate) mod elementwise;
pub(crate) mod float;
mod lines;
mod products;
pub(crate) mod quantize;
pub(crate) mod recurrent;
pub(crate) mod roof;
pub(crate) mod superblock;
mod superblock_levels;
pub(crate) mod tile_f32;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
