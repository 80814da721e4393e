//! Orders that are made to find what depends on speed: somebody moves only when nobody else can.

use super::{Board, BoardError, Turn};
use crate::tile::Tile;
use crate::txn::TxnStream;
use crate::writer::ChannelAt;

/// Who moves only when nobody else can: as slow as it may be on hardware, where nothing says how fast anybody is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowActor {
    /// All have turns alike.
    #[default]
    Nobody,
    /// The sequence.
    Firmware,
    /// The programs of all cores.
    Cores,
    /// All DMA channels.
    Channels,
    /// The program of a core.
    Core(Tile),
    /// A DMA channel.
    Channel(ChannelAt),
}

/// Rounds after which the starved have a turn although others move: a core may wait by turning in a loop.
const MOST_ROUNDS_WITHOUT: u32 = 1 << 12;

impl SlowActor {
    /// In words: what is slow.
    pub fn name(self) -> String {
        match self {
            SlowActor::Nobody => "at random".to_owned(),
            SlowActor::Firmware => "the sequence slowest".to_owned(),
            SlowActor::Cores => "all cores slowest".to_owned(),
            SlowActor::Channels => "all DMA slowest".to_owned(),
            SlowActor::Core(tile) => format!("{tile} slowest"),
            SlowActor::Channel(at) => {
                format!("{} {} {} slowest", at.tile, at.direction.name(), at.number)
            }
        }
    }

    fn is(self, turn: Turn) -> bool {
        match (self, turn) {
            (SlowActor::Firmware, Turn::Firmware)
            | (SlowActor::Cores, Turn::Core(_))
            | (SlowActor::Channels, Turn::Channel(..)) => true,
            (SlowActor::Core(slow), Turn::Core(tile)) => slow.index() == tile,
            (SlowActor::Channel(slow), Turn::Channel(tile, direction, number)) => {
                slow.tile.index() == tile && (slow.direction, slow.number) == (direction, number)
            }
            _ => false,
        }
    }
}

impl Board<'_> {
    /// Everybody's turn, the starved's only where nobody else moved; says whether anything was done.
    pub(super) fn turns(
        &mut self,
        order: &[Turn],
        stream: &TxnStream,
        next: &mut usize,
    ) -> Result<bool, BoardError> {
        let starved = self.options.starved;
        let mut moved = false;
        for &turn in order.iter().filter(|&&turn| !starved.is(turn)) {
            moved |= self.turn(turn, stream, next)?;
        }
        if starved == SlowActor::Nobody {
            return Ok(moved);
        }
        self.starved_for += 1;
        if moved && self.starved_for < MOST_ROUNDS_WITHOUT {
            return Ok(true);
        }
        self.starved_for = 0;
        for &turn in order.iter().filter(|&&turn| starved.is(turn)) {
            moved |= self.turn(turn, stream, next)?;
        }
        Ok(moved)
    }
}
