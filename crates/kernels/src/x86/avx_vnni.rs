//! AVX-VNNI leaves: AVX2's, with dot products of bytes.
//!
//! Panels are AVX2's except for formats of signed bytes, which have 128 added. Sums of whole numbers are exact, so the bits are those of
//! every other level.

pub(crate) mod block32;
pub(crate) mod levels;
pub(crate) mod roof;
pub(crate) mod superblock;
pub(crate) mod tile_i8x256;
pub(crate) mod tile_i8x32;
