//! Orders that are made to find dependence on speed: one actor moves only when no other can.
//!
//! A slow channel still takes the lock that it waits for as soon as the lock allows it. Its request is at the lock, and
//! no actor that has to move a block of words first overtakes it there.

use super::{Board, BoardError, Turn};
use crate::tile::Tile;
use crate::txn::TxnStream;
use crate::writer::ChannelAt;

/// The actor that moves only when no other can. This is as slow as it may be on hardware, where no source states
/// anyone's speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowActor {
    /// All actors have equal turns.
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

/// Rounds in which cores turn in loops and nothing else moves, after which the run is given up.
const MOST_TURNING: u32 = 1 << 18;

impl SlowActor {
    /// Description of the slow actor.
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

impl Turn {
    /// The part of a slow actor's turn that does not wait: the lock that a channel waits for.
    fn at_lock(self) -> Option<Turn> {
        match self {
            Turn::Channel(tile, direction, number) => Some(Turn::Lock(tile, direction, number)),
            _ => None,
        }
    }
}

impl Board<'_> {
    /// Whether firmware waits before an operation until all others have stopped.
    pub(super) fn is_settling(&self, next: usize) -> bool {
        self.settling.is_some() && self.options.settle == Some(next)
    }

    /// Ends a round in which the others moved or did not. Firmware goes on once they have stopped, or have had their
    /// time. Returns whether it waited for them.
    pub(super) fn settle(&mut self, next: usize, moved: bool) -> bool {
        if !self.is_settling(next) {
            return false;
        }
        self.settling = self
            .settling
            .map(|rounds| rounds + 1)
            .filter(|&rounds| moved && rounds < MOST_ROUNDS_WITHOUT);
        true
    }

    /// Gives every actor its turn. The starved one has a turn only if nothing else moved, except for the lock that a
    /// channel waits for. Returns whether anything was done.
    pub(super) fn turns(
        &mut self,
        order: &[Turn],
        stream: &TxnStream,
        next: &mut usize,
    ) -> Result<bool, BoardError> {
        let starved = self.options.starved;
        let others = order.iter().filter_map(|&turn| match starved.is(turn) {
            true => turn.at_lock(),
            false => Some(turn),
        });
        let (mut moved, mut works) = self.some_turns(others, stream, next)?;
        if starved != SlowActor::Nobody {
            self.starved_for += 1;
            // A core that only turns in a loop keeps no one waiting.
            if !works || self.starved_for >= MOST_ROUNDS_WITHOUT {
                self.starved_for = 0;
                let slow = order.iter().copied().filter(|&turn| starved.is(turn));
                let (more, more_works) = self.some_turns(slow, stream, next)?;
                moved |= more;
                works |= more_works;
            }
        }
        self.turning = if works { 0 } else { self.turning + 1 };
        Ok(moved && self.turning < MOST_TURNING)
    }

    /// Turns of some actors. Returns whether any did something, and whether it was more than turning in a loop.
    fn some_turns(
        &mut self,
        order: impl Iterator<Item = Turn>,
        stream: &TxnStream,
        next: &mut usize,
    ) -> Result<(bool, bool), BoardError> {
        let (mut moved, mut works) = (false, false);
        for turn in order {
            let turned = self.n_turned;
            let moves = self.turn(turn, stream, next)?;
            moved |= moves;
            works |= moves && self.n_turned == turned;
        }
        Ok((moved, works))
    }
}
