//! AVX2 + FMA + F16C leaves.

pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod tile_f32;
