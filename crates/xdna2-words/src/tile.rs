//! Tiles of the array: their places, their kinds, and the resources of each kind.
//!
//! Source: mlir-aie `AIETargetModel` (npu2) and aie-rt `xaie2pgbl_params.h`.

use std::fmt;

/// Columns of the array.
pub const COLUMNS: u8 = 8;
/// Rows: a shim, a memory tile, four cores.
pub const ROWS: u8 = 6;
/// Bits of an address within a tile.
const OFFSET_BITS: u32 = 20;

/// The kinds of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileKind {
    /// Row 0: DMA to DDR.
    Shim,
    /// Row 1: L2.
    Memory,
    /// Rows 2 to 5: L1 and a processor.
    Core,
}

/// The two directions of a DMA channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From a stream to memory; 0 in words.
    S2mm,
    /// From memory to a stream; 1 in words.
    Mm2s,
}

impl Direction {
    /// Name in text.
    pub fn name(self) -> &'static str {
        match self {
            Direction::S2mm => "S2MM",
            Direction::Mm2s => "MM2S",
        }
    }
}

/// A tile by column and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Column, 0 to 7.
    pub col: u8,
    /// Row, 0 the shim's.
    pub row: u8,
}

impl Tile {
    /// The tile there; `None` outside of the array.
    pub fn new(col: u32, row: u32) -> Option<Tile> {
        let (col, row) = (u8::try_from(col).ok()?, u8::try_from(row).ok()?);
        (col < COLUMNS && row < ROWS).then_some(Tile { col, row })
    }

    /// All tiles, column by column.
    pub fn all() -> impl Iterator<Item = Tile> {
        (0..COLUMNS).flat_map(|col| (0..ROWS).map(move |row| Tile { col, row }))
    }

    /// Position in [`all`](Tile::all).
    pub fn index(self) -> usize {
        usize::from(self.col) * usize::from(ROWS) + usize::from(self.row)
    }

    /// Its kind.
    pub fn kind(self) -> TileKind {
        match self.row {
            0 => TileKind::Shim,
            1 => TileKind::Memory,
            _ => TileKind::Core,
        }
    }

    /// The address of a byte of the tile: `column << 25 | row << 20 | offset`.
    pub fn address(self, offset: u32) -> u32 {
        u32::from(self.col) << 25 | u32::from(self.row) << 20 | offset & ((1 << OFFSET_BITS) - 1)
    }

    /// The tile and the offset in it that an address names; `None` outside of the array.
    pub fn of_address(address: u32) -> Option<(Tile, u32)> {
        let tile = Tile::new(address >> 25, address >> OFFSET_BITS & 31)?;
        Some((tile, address & ((1 << OFFSET_BITS) - 1)))
    }

    /// The tile so many columns east and rows north.
    pub fn neighbour(self, east: i32, north: i32) -> Option<Tile> {
        let col = u32::try_from(i32::from(self.col) + east).ok()?;
        Tile::new(col, u32::try_from(i32::from(self.row) + north).ok()?)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            TileKind::Shim => "shim",
            TileKind::Memory => "memory",
            TileKind::Core => "core",
        };
        write!(f, "{kind} ({}, {})", self.col, self.row)
    }
}

impl TileKind {
    /// DMA channels of a direction.
    pub fn channels(self) -> u8 {
        if self == TileKind::Memory { 6 } else { 2 }
    }

    /// Buffer descriptors.
    pub fn descriptors(self) -> u8 {
        if self == TileKind::Memory { 48 } else { 16 }
    }

    /// Locks.
    pub fn locks(self) -> u8 {
        if self == TileKind::Memory { 64 } else { 16 }
    }

    /// Bytes of data memory.
    pub fn data_bytes(self) -> u32 {
        match self {
            TileKind::Shim => 0,
            TileKind::Memory => 512 << 10,
            TileKind::Core => 64 << 10,
        }
    }

    /// Whether a channel reaches a descriptor: of a memory tile's, even channels reach 0 to 23 and
    /// odd ones 24 to 47.
    pub fn reaches(self, channel: u8, descriptor: u8) -> bool {
        descriptor < self.descriptors()
            && (self != TileKind::Memory || (descriptor >= 24) == (channel % 2 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_back() {
        let mut seen = 0;
        for tile in Tile::all() {
            assert_eq!(tile.index(), seen);
            seen += 1;
            assert_eq!(
                Tile::of_address(tile.address(0xF_FFFC)),
                Some((tile, 0xF_FFFC))
            );
        }
        assert_eq!(seen, 48);
        assert_eq!(Tile::of_address(8 << 25), None);
        assert_eq!(Tile::of_address(6 << 20), None);
        assert_eq!(Tile { col: 1, row: 1 }.address(0x64), 0x0210_0064);
    }
}
