//! AMX leaves: products of whole tiles, 16 tokens × 16 rows × 64 bytes an instruction.
//!
//! Whole numbers are exact, so tiles of bytes give the bits of every other level, and a few tokens use AVX-512's kernels. So do blocks of
//! 32 columns with one scale. Such a block is half a tile deep, and scaling its sums costs more than tiles gain. Tiles of bf16 round in a
//! different order, which the kernels for a few tokens repeat ([`crate::matmul::PanelLayout::Bf16Tiles`]).
//!
//! Everything but the unit's eight instructions is generic over [`unit::TileUnit`]: tests use [`EmulatedUnit`] on processors without AMX.

pub(crate) mod attention;
pub(crate) mod bf16;
pub(crate) mod detect;
mod emulated;
pub(crate) mod planes;
pub(crate) mod roof;
#[cfg(test)]
mod tests;
mod unit;

#[cfg(test)]
pub(crate) use emulated::EmulatedUnit;
pub(crate) use unit::{Amx, TileUnit};
