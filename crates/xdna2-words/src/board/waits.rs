//! Waits of actors when nothing moves, as data.

use super::state::{CoreState, STREAM_WORDS};
use super::{Board, FIRST_CORE};
use crate::register::BlockKind;
use crate::tile::{Direction, Tile};
use crate::txn::TxnOperation;
use crate::writer::ChannelAt;

/// An actor that can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BoardActor {
    /// The executor of the stream.
    Firmware,
    /// A DMA channel.
    Channel(ChannelAt),
    /// A core.
    Core(Tile),
}

/// Cause of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// So much of a lock.
    Lock {
        /// Whose lock.
        tile: Tile,
        /// Its number.
        lock: u8,
        /// The requested amount.
        amount: u8,
        /// Whether the lock has to hold exactly that much.
        is_equal: bool,
        /// The amount that it holds.
        held: u8,
    },
    /// Words that a stream brings.
    Words {
        /// Channels whose streams lead here, if they have one.
        from: Vec<ChannelAt>,
    },
    /// Room where a stream leads.
    Room {
        /// Channels that take no words.
        at: Vec<ChannelAt>,
    },
    /// Arbiters that others hold.
    Arbiters {
        /// The holders.
        held_by: Vec<BoardActor>,
    },
    /// Tokens of channels.
    Tokens {
        /// Those that sent none.
        of: Vec<ChannelAt>,
    },
    /// A place in a channel's queue.
    Place {
        /// The channel.
        channel: ChannelAt,
    },
    /// The end of a channel's tasks.
    Idle {
        /// The channel.
        channel: ChannelAt,
    },
    /// A reason that its program gives; the caller of the run knows more.
    Own(String),
}

/// A party that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardWait {
    /// The party.
    pub actor: BoardActor,
    /// The descriptor at work, of a channel.
    pub descriptor: Option<u8>,
    /// The cause.
    pub waits_for: WaitFor,
}

impl Board<'_> {
    /// All waits and their causes. They are those of a [standstill](super::BoardError::Standstill), in a form for
    /// programs.
    pub fn waits(&self) -> Vec<BoardWait> {
        let mut waits: Vec<BoardWait> = self.firmware_wait().into_iter().collect();
        for (tile, state) in self.tiles.iter().enumerate() {
            for direction in [Direction::S2mm, Direction::Mm2s] {
                for number in 0..state.tile.kind().channels() {
                    waits.extend(self.channel_wait(tile, direction, number));
                }
            }
            if state.core == CoreState::Running {
                waits.push(BoardWait {
                    actor: BoardActor::Core(state.tile),
                    descriptor: None,
                    waits_for: WaitFor::Own(self.core_waits[tile].clone()),
                });
            }
        }
        waits
    }

    fn firmware_wait(&self) -> Option<BoardWait> {
        let waits_for = match self.stalled_at.as_ref()? {
            &TxnOperation::Sync {
                direction,
                col,
                row,
                channel,
                n_cols,
                n_rows,
            } => {
                let direction = [Direction::S2mm, Direction::Mm2s][usize::from(direction & 1)];
                let tiles =
                    (0..n_cols).flat_map(|east| (0..n_rows).map(move |north| (east, north)));
                let at = |(east, north): (u8, u8)| ChannelAt {
                    tile: Tile {
                        col: col.saturating_add(east),
                        row: row.saturating_add(north),
                    },
                    direction,
                    number: channel,
                };
                let missing = |at: &ChannelAt| {
                    let key = (at.tile.index(), at.direction, at.number);
                    self.tokens.get(&key).is_none_or(|&n| n == 0)
                };
                WaitFor::Tokens {
                    of: tiles.map(at).filter(missing).collect(),
                }
            }
            TxnOperation::MaskPoll { address, mask, .. } => match super::firmware::locate(*address)
            {
                Ok((tile, found)) => match found.block.kind {
                    BlockKind::Status(direction) => {
                        const FULL: u32 = 1 << 22;
                        let channel = ChannelAt {
                            tile,
                            direction,
                            number: found.number as u8,
                        };
                        match *mask {
                            FULL => WaitFor::Place { channel },
                            _ => WaitFor::Idle { channel },
                        }
                    }
                    kind => WaitFor::Own(format!("polls {} of {tile}", kind.name(found.number))),
                },
                Err(_) => return None,
            },
            _ => return None,
        };
        Some(BoardWait {
            actor: BoardActor::Firmware,
            descriptor: None,
            waits_for,
        })
    }

    fn channel_wait(&self, tile: usize, direction: Direction, number: u8) -> Option<BoardWait> {
        let state = &self.tiles[tile];
        let channel = &state.channels[direction as usize][usize::from(number)];
        let actor = BoardActor::Channel(ChannelAt {
            tile: state.tile,
            direction,
            number,
        });
        if channel.execution().is_none() && channel.is_busy() && channel.is_out_of_order() {
            return Some(BoardWait {
                actor,
                descriptor: None,
                waits_for: WaitFor::Words {
                    from: self.sources(tile, number),
                },
            });
        }
        let execution = channel.execution()?;
        let waits_for = match (execution.awaited_lock(), direction) {
            (Some((of, lock, value)), _) => WaitFor::Lock {
                tile: self.tiles[of].tile,
                lock,
                amount: value.unsigned_abs() as u8,
                is_equal: value >= 0,
                held: self.tiles[of].locks[usize::from(lock)].unwrap_or(0),
            },
            (None, Direction::S2mm) => WaitFor::Words {
                from: self.sources(tile, number),
            },
            (None, Direction::Mm2s) => match execution.next_arbiter() {
                Some(next) => self.arbiter(next, actor),
                None => self.room(execution.route()?),
            },
        };
        Some(BoardWait {
            actor,
            descriptor: Some(execution.number()),
            waits_for,
        })
    }

    /// Channels at work whose streams lead to a channel.
    fn sources(&self, tile: usize, number: u8) -> Vec<ChannelAt> {
        let mut sources = Vec::new();
        for state in &self.tiles {
            let channels = state.channels[Direction::Mm2s as usize].iter();
            for (from, channel) in (0u8..).zip(channels) {
                let route = channel.execution().and_then(|e| e.route());
                let leads = route.is_some_and(|route| {
                    let mut sinks = route.sinks.iter();
                    sinks.any(|sink| (sink.0, sink.1) == (tile, number))
                });
                if leads {
                    sources.push(ChannelAt {
                        tile: state.tile,
                        direction: Direction::Mm2s,
                        number: from,
                    });
                }
            }
        }
        sources
    }

    fn room(&self, route: &super::route::Route) -> WaitFor {
        let sinks = route.sinks.iter();
        let full =
            sinks.filter(|s| self.tiles[s.0].inboxes[usize::from(s.1)].len() == STREAM_WORDS);
        WaitFor::Room {
            at: full.map(|sink| self.receiver(sink.0, sink.1)).collect(),
        }
    }

    /// Holders of an arbiter that a packet comes to. They are a sender, or receivers that the end of a packet in the
    /// arbiter waits for. If the packet's own way comes there again, it is the packet itself.
    fn arbiter(&self, next: &super::route::ArbiterUse, actor: BoardActor) -> WaitFor {
        let hold = self.arbiters.get(&next.arbiter);
        let held_by: Vec<BoardActor> = match hold {
            Some(hold) if hold.is_tail() => hold
                .waits_for()
                .map(|(tile, number)| BoardActor::Channel(self.receiver(tile, number)))
                .collect(),
            Some(hold) => vec![self.actor(hold.actor())],
            None => vec![actor],
        };
        WaitFor::Arbiters { held_by }
    }

    fn receiver(&self, tile: usize, number: u8) -> ChannelAt {
        ChannelAt {
            tile: self.tiles[tile].tile,
            direction: Direction::S2mm,
            number,
        }
    }

    /// The name of an actor by its number.
    pub(super) fn actor_name(&self, actor: usize) -> String {
        if let Some(tile) = actor.checked_sub(FIRST_CORE) {
            return self
                .tiles
                .get(tile)
                .map_or_else(String::new, |s| format!("{}'s program", s.tile));
        }
        let (tile, rest) = (actor / 12, actor % 12);
        let direction = [Direction::S2mm, Direction::Mm2s][rest / 6];
        format!(
            "{} {} {}",
            self.tiles[tile].tile,
            direction.name(),
            rest % 6
        )
    }

    fn actor(&self, number: usize) -> BoardActor {
        let tile = |index: usize| self.tiles[index].tile;
        match number.checked_sub(FIRST_CORE) {
            Some(core) => BoardActor::Core(tile(core)),
            None => BoardActor::Channel(ChannelAt {
                tile: tile(number / 12),
                direction: [Direction::S2mm, Direction::Mm2s][number % 12 / 6],
                number: (number % 6) as u8,
            }),
        }
    }
}
