//! AVX2 + FMA + F16C leaves.

pub(crate) mod attention;
pub(crate) mod block32;
mod block32_lines;
mod direct;
pub(crate) mod elementwise;
pub(crate) mod float;
mod lines;
pub(crate) mod q4nx;
pub(crate) mod quantize;
mod reduce;
pub(crate) mod roof;
pub(crate) mod superblock;
mod superblock_rows;
pub(crate) mod tile_f32;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
pub(crate) mod tile_wide;
