//! AVX-512 leaves.

pub(crate) mod attention;
pub(crate) mod block32;
mod block32_lines;
mod block32_rows;
pub(crate) mod elementwise;
pub(crate) mod float;
pub(crate) mod float_columns;
pub(crate) mod levels;
pub(crate) mod points;
mod q4nx;
pub(crate) mod quantize;
pub(crate) mod recurrent;
pub(crate) mod roof;
mod streams;
pub(crate) mod sums;
pub(crate) mod superblock;
mod superblock_lines;
mod superblock_rows;
pub(crate) mod tile_f32;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
mod transpose;
