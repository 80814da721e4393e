//! AVX-512 leaves.

pub(crate) mod attention;
pub(crate) mod block32;
mod block32_lines;
pub(crate) mod elementwise;
pub(crate) mod float;
mod q4nx;
pub(crate) mod quantize;
pub(crate) mod roof;
pub(crate) mod superblock;
mod superblock_lines;
mod superblock_rows;
pub(crate) mod tile_bf16;
pub(crate) mod tile_f32;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
mod transpose;
