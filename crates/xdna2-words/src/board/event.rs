//! Events on a board, for models of time.
//!
//! A board has no clock. The order of its events is one in which they could have happened. A replay with a separate
//! clock for each actor finds every event's causes before it.

use super::{Board, BoardActor};
use crate::tile::{Direction, Tile};
use crate::writer::ChannelAt;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoardEvent {
    /// Firmware is done with an operation of the stream.
    Operated {
        /// Its position.
        operation: usize,
    },
    /// Firmware pushed a task.
    Pushed {
        /// The channel.
        channel: ChannelAt,
    },
    /// Firmware took a token of a channel.
    Awaited {
        /// The channel.
        channel: ChannelAt,
    },
    /// Firmware set a lock.
    LockSet {
        /// The tile.
        tile: Tile,
        /// Its number.
        lock: u8,
        /// Its new value.
        value: u8,
    },
    /// An actor took so much of a lock.
    Acquired {
        /// The actor.
        actor: BoardActor,
        /// Whose lock.
        tile: Tile,
        /// Its number.
        lock: u8,
        /// The amount.
        amount: u8,
    },
    /// An actor gave so much to a lock.
    Released {
        /// The actor.
        actor: BoardActor,
        /// Whose lock.
        tile: Tile,
        /// Its number.
        lock: u8,
        /// The amount.
        amount: u8,
    },
    /// A channel has its lock and begins to move words.
    Began {
        /// The channel.
        channel: ChannelAt,
        /// The descriptor's number.
        descriptor: u8,
        /// Channels that its stream leads to; none of one that receives.
        sinks: Vec<ChannelAt>,
        /// Switches on the way.
        n_switches: usize,
    },
    /// A channel put words into its stream.
    Sent {
        /// The channel.
        channel: ChannelAt,
        /// The number of words.
        n_words: usize,
    },
    /// A channel took words from its stream.
    Received {
        /// The channel.
        channel: ChannelAt,
        /// The number of words.
        n_words: usize,
    },
    /// A channel is through with a descriptor.
    Ended {
        /// The channel.
        channel: ChannelAt,
        /// Whether its task ended with it.
        is_last: bool,
        /// Whether the task sent a token.
        has_token: bool,
    },
    /// A core computed.
    Computed {
        /// The core.
        core: Tile,
        /// Clock cycles that its program reported.
        cycles: u64,
    },
    /// A core sent a value down the cascade.
    CascadeSent {
        /// The core.
        core: Tile,
        /// The receiver.
        to: Tile,
    },
    /// A core took a value of the cascade.
    CascadeReceived {
        /// The core.
        core: Tile,
    },
}

/// Events so far, if they are recorded.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: Option<Vec<BoardEvent>>,
    most: usize,
    is_cut: bool,
}

impl Board<'_> {
    /// Remembers events of runs from here on, up to so many.
    pub fn record(&mut self, most: usize) {
        self.log = EventLog {
            events: Some(Vec::new()),
            most,
            is_cut: false,
        };
    }

    /// The events of runs since [`record`](Board::record); `None` if there were more than the limit.
    pub fn take_events(&mut self) -> Option<Vec<BoardEvent>> {
        let log = std::mem::take(&mut self.log);
        log.events.filter(|_| !log.is_cut)
    }

    /// Records an event, which is made only if events are recorded.
    pub(super) fn event(&mut self, event: impl FnOnce(&Self) -> BoardEvent) {
        let Some(n_events) = self.log.events.as_ref().map(Vec::len) else {
            return;
        };
        if n_events >= self.log.most {
            self.log.is_cut = true;
            return;
        }
        let event = event(self);
        if let Some(events) = &mut self.log.events {
            events.push(event);
        }
    }

    /// A channel as events name it.
    pub(super) fn event_channel(&self, tile: usize, direction: Direction, number: u8) -> ChannelAt {
        ChannelAt {
            tile: self.tiles[tile].tile,
            direction,
            number,
        }
    }
}
