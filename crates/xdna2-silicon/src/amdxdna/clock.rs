//! Modelled time of the commands that the kernel in software executes.

use millrace_xdna2_words::TxnStream;
use millrace_xdna2_words::board::{BoardClock, BoardEvent, ClockRates};

/// Events that are kept of a command.
pub(super) const MOST_EVENTS: usize = 1 << 23;

/// Rates, and the time of the last command.
pub(super) struct CommandClock {
    rates: ClockRates,
    /// Time that every command takes beyond the array's work.
    call_ns: f64,
    last_ns: Option<f64>,
}

impl CommandClock {
    pub(super) fn new(rates: ClockRates, call_ns: f64) -> CommandClock {
        CommandClock {
            rates,
            call_ns,
            last_ns: None,
        }
    }

    /// Computes the time of a command from its events; a failed command has none.
    pub(super) fn read(&mut self, stream: &TxnStream, events: Option<&[BoardEvent]>) {
        self.last_ns = events.map(|events| {
            let mut board = BoardClock::new(stream, 0, self.rates);
            events.iter().for_each(|event| board.event(event));
            self.call_ns + board.reading().total_ns
        });
    }

    /// Time of the last command, if it succeeded.
    pub(super) fn last_ns(&self) -> Option<f64> {
        self.last_ns
    }
}
