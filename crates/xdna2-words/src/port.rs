//! Ports of the stream switches.
//!
//! A *slave* port leads into a switch, a *master* port out of it. Numbers are those of the registers.
//! Sources: aie-rt `xaie2pgbl_params.h` for the order, `xaie_ss_aieml.c` and mlir-aie's
//! `isLegalTileConnection` for legal joins, aie-sim `ShimMux.cpp` for the shim's south.

use crate::tile::{COLUMNS, Direction, ROWS, Tile, TileKind};
use std::fmt;

/// Kinds of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // Their names say all.
pub enum Bundle {
    Core,
    Dma,
    TileControl,
    Fifo,
    South,
    West,
    North,
    East,
    Trace,
}

use Bundle::{Core, Dma, East, Fifo, North, South, TileControl, Trace, West};

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchPort {
    /// Its kind.
    pub bundle: Bundle,
    /// Its number among them.
    pub index: u8,
}

impl fmt::Display for SwitchPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.bundle, self.index)
    }
}

/// A port.
pub const fn port(bundle: Bundle, index: u8) -> SwitchPort {
    SwitchPort { bundle, index }
}

/// Master ports of a kind of tile, in the order of their registers.
pub fn masters(kind: TileKind) -> &'static [(Bundle, u8)] {
    match kind {
        TileKind::Core => &[
            (Core, 1),
            (Dma, 2),
            (TileControl, 1),
            (Fifo, 1),
            (South, 4),
            (West, 4),
            (North, 6),
            (East, 4),
        ],
        TileKind::Memory => &[(Dma, 6), (TileControl, 1), (South, 4), (North, 6)],
        TileKind::Shim => &[
            (TileControl, 1),
            (Fifo, 1),
            (South, 6),
            (West, 4),
            (North, 6),
            (East, 4),
        ],
    }
}

/// Slave ports of a kind of tile, in the order of their registers.
pub fn slaves(kind: TileKind) -> &'static [(Bundle, u8)] {
    match kind {
        TileKind::Core => &[
            (Core, 1),
            (Dma, 2),
            (TileControl, 1),
            (Fifo, 1),
            (South, 6),
            (West, 4),
            (North, 4),
            (East, 4),
            (Trace, 2),
        ],
        TileKind::Memory => &[
            (Dma, 6),
            (TileControl, 1),
            (South, 6),
            (North, 4),
            (Trace, 1),
        ],
        TileKind::Shim => &[
            (TileControl, 1),
            (Fifo, 1),
            (South, 8),
            (West, 4),
            (North, 4),
            (East, 4),
            (Trace, 1),
        ],
    }
}

/// The number of a port in such an order.
pub fn number(order: &[(Bundle, u8)], port: SwitchPort) -> Option<u8> {
    let mut first = 0;
    for &(bundle, count) in order {
        if bundle == port.bundle {
            return (port.index < count).then_some(first + port.index);
        }
        first += count;
    }
    None
}

/// The port of a number in such an order.
pub fn at(order: &[(Bundle, u8)], number: u8) -> Option<SwitchPort> {
    let mut index = number;
    for &(bundle, count) in order {
        if index < count {
            return Some(port(bundle, index));
        }
        index -= count;
    }
    None
}

/// Ports of such an order.
pub fn count(order: &[(Bundle, u8)]) -> u8 {
    order.iter().map(|row| row.1).sum()
}

/// Whether a switch can join a slave to a master.
pub fn is_legal(kind: TileKind, slave: SwitchPort, master: SwitchPort) -> bool {
    let same = slave.index == master.index;
    let (from, to) = (slave.bundle, master.bundle);
    match kind {
        TileKind::Core => match (from, to) {
            (Core, Core) | (TileControl, Dma | TileControl) => false,
            (Trace, to) => matches!(to, Fifo | South) || master == port(Dma, 0),
            (from, to) => from != to || same,
        },
        TileKind::Memory => match (from, to) {
            (Dma, Dma) => same,
            (Dma, TileControl | North | South) => true,
            (North | South, North | South) => same,
            (North | South, Dma | TileControl) => true,
            (TileControl, North | South) => true,
            (TileControl, Dma) => master.index == 5,
            (Trace, South) => true,
            (Trace, Dma) => master.index == 5,
            _ => false,
        },
        TileKind::Shim => match (from, to) {
            (South | Fifo, _) => true,
            (West | North | East, to) => from != to || same,
            (TileControl, to) => to != TileControl,
            (Trace, Fifo | South) => true,
            (Trace, West | East) => master.index == 0,
            _ => false,
        },
    }
}

/// The slave port of the next tile that a master port leads to; `None` for ports that lead nowhere
/// outside of the tile, and at the array's edges.
pub fn next(tile: Tile, master: SwitchPort) -> Option<(Tile, SwitchPort)> {
    let (east, north, bundle) = match master.bundle {
        North => (0, 1, South),
        South => (0, -1, North),
        East => (1, 0, West),
        West => (-1, 0, East),
        _ => return None,
    };
    let to = tile.neighbour(east, north)?;
    // A shim's ports to the south leave the array.
    let slave = port(bundle, master.index);
    number(slaves(to.kind()), slave).map(|_| (to, slave))
}

/// Whether a switch has such a master port: at the edges some are missing.
pub fn has_master(tile: Tile, master: SwitchPort) -> bool {
    let missing = match master.bundle {
        West => tile.col == 0,
        East => tile.col + 1 == COLUMNS,
        North => tile.row + 1 == ROWS,
        _ => false,
    };
    !missing && number(masters(tile.kind()), master).is_some()
}

/// The port of a DMA channel at its tile's switch: a slave for MM2S, a master for S2MM.
pub fn of_dma(kind: TileKind, direction: Direction, channel: u8) -> Option<SwitchPort> {
    if channel >= kind.channels() {
        return None;
    }
    Some(match (kind, direction) {
        (TileKind::Shim, Direction::Mm2s) => port(South, [3, 7][usize::from(channel)]),
        (TileKind::Shim, Direction::S2mm) => port(South, 2 + channel),
        _ => port(Dma, channel),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ports_agree() {
        for kind in [TileKind::Shim, TileKind::Memory, TileKind::Core] {
            for order in [masters(kind), slaves(kind)] {
                for i in 0..count(order) {
                    assert_eq!(at(order, i).and_then(|p| number(order, p)), Some(i));
                }
                assert_eq!(at(order, count(order)), None);
            }
        }
        let counts = [TileKind::Shim, TileKind::Memory, TileKind::Core]
            .map(|kind| (count(masters(kind)), count(slaves(kind))));
        assert_eq!(counts, [(22, 23), (17, 18), (23, 25)]);
    }

    #[test]
    fn neighbours_have_the_ports_that_lead_to_them() {
        for tile in Tile::all() {
            for i in 0..count(masters(tile.kind())) {
                let Some(master) = at(masters(tile.kind()), i) else {
                    panic!("{tile}: master {i}");
                };
                let leads = matches!(master.bundle, North | East | West)
                    || (master.bundle == South && tile.row > 0);
                // Memory tiles have no ports to the side.
                let leads = leads && has_master(tile, master);
                assert_eq!(next(tile, master).is_some(), leads, "{tile} {master}");
            }
        }
    }

    #[test]
    fn a_memory_tile_passes_streams_at_their_own_index_alone() {
        let memory = |from, to| is_legal(TileKind::Memory, from, to);
        assert!(memory(port(South, 3), port(North, 3)) && !memory(port(South, 3), port(North, 2)));
        assert!(memory(port(South, 3), port(Dma, 0)) && memory(port(Dma, 1), port(North, 5)));
        assert!(memory(port(Dma, 1), port(Dma, 1)) && !memory(port(Dma, 1), port(Dma, 2)));
        let core = |from, to| is_legal(TileKind::Core, from, to);
        assert!(core(port(South, 3), port(North, 2)) && !core(port(North, 1), port(North, 2)));
        assert!(!core(port(TileControl, 0), port(Dma, 0)) && core(port(Trace, 0), port(Dma, 0)));
        let shim = |from, to| is_legal(TileKind::Shim, from, to);
        assert!(shim(port(TileControl, 0), port(South, 0)) && shim(port(South, 7), port(North, 0)));
        assert!(!shim(port(East, 1), port(East, 0)) && !shim(port(Trace, 0), port(West, 1)));
    }
}
