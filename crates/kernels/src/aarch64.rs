//! AArch64 leaves: Advanced SIMD, and the byte products of its levels.
//!
//! The levels share one body for each kernel, generic over [`products::ByteProducts`]. Kernels without byte products (plain numbers,
//! attention, ops between products) are written for [`crate::Level::Neon`] and serve all levels. Half-precision arithmetic is not
//! used: sums in f16 would not meet the oracle, and every AArch64 converts to f32.

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
