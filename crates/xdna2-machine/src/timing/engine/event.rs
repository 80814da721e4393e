//! Events, ordered by time.

use std::cmp::Ordering;

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
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

/// When it happens; what is scheduled first goes first.
pub(super) struct Event {
    pub(super) at: f64,
    pub(super) order: u64,
    pub(super) kind: Kind,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        let key = self.at.total_cmp(&other.at);
        key.then(self.order.cmp(&other.order))
    }
}
