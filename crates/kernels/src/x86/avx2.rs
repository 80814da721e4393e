//! AVX2 + FMA + F16C leaves.

pub(crate) mod attention;
pub(crate) mod block32;
pub(super) mod block32_lines;
mod block32_rows;
pub(super) mod direct;
pub(crate) mod elementwise;
pub(crate) mod float_columns;
pub(crate) mod levels;
pub(super) mod lines;
pub(crate) mod q4nx;
pub(crate) mod quantize;
pub(crate) mod recurrent;
pub(super) mod reduce;
pub(crate) mod roof;
pub(crate) mod superblock;
mod superblock_products;
mod superblock_rows;
pub(crate) mod tile_f32;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
pub(crate) mod tile_wide;
