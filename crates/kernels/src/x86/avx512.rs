//! AVX-512 leaves.

pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod pack_block32;
pub(crate) mod pack_float;
pub(crate) mod pack_q4nx;
pub(crate) mod pack_super;
pub(crate) mod quantize;
pub(crate) mod tile_bf16;
pub(crate) mod tile_f32;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
mod transpose;
