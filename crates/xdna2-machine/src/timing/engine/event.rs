//! Events, ordered by time.

use std::cmp::Ordering;

/// Kind of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventKind {
    /// A block has crossed a wire between tiles.
    Arrived(usize),
    /// A shim channel's next task has started up.
    TaskReady(usize),
    /// A core has finished a call.
    Called(usize),
    /// The DDR's next block is through, if nothing changed since.
    Ddr(u64),
    /// All that a grid point reads has been read.
    Read,
}

/// An event with its time; at equal times, the first scheduled goes first.
pub(super) struct ScheduledEvent {
    pub(super) at: f64,
    pub(super) order: u64,
    pub(super) kind: EventKind,
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &ScheduledEvent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &ScheduledEvent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    fn cmp(&self, other: &ScheduledEvent) -> Ordering {
        let key = self.at.total_cmp(&other.at);
        key.then(self.order.cmp(&other.order))
    }
}
