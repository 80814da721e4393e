//! Arbiters of packet switches: their holders, and how long they are held.

use super::super::Board;
use super::super::route::Route;

/// Words that a receiver keeps after the last arbiter of a packet's way. A way buffers eight words; the others stay in
/// the arbiter, which no other packet passes meanwhile. On hardware, five words that a receiver does not take let the
/// next packet pass an arbiter that both share, and six hold it for ever.
const WORDS_BEHIND_ARBITER: u64 = 5;

/// The holder of an arbiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::board) struct ArbiterHold {
    actor: usize,
    selection: u8,
    /// For a packet that is sent and still occupies the arbiter: receivers, each with the number of the packet's last
    /// word among all that it takes.
    tail: Option<Vec<((usize, u8), u64)>>,
}

impl ArbiterHold {
    /// Whether a packet passes: one of the same sender that leaves by the same masters queues after the first.
    pub(in crate::board) fn lets_pass(&self, actor: usize, selection: u8) -> bool {
        self.actor == actor && (self.tail.is_none() || self.selection == selection)
    }

    /// The sender.
    pub(in crate::board) fn actor(&self) -> usize {
        self.actor
    }

    /// Whether all of the packet is sent, and its end is still in the arbiter.
    pub(in crate::board) fn is_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Receivers that have to take words before the end of a packet is through.
    pub(in crate::board) fn waits_for(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        self.tail.iter().flatten().map(|row| row.0)
    }
}

impl Board<'_> {
    /// Moves a packet's header to the next arbiter of its way, and takes that if it is free; arbiters that it holds
    /// stay held while it waits. It takes one a turn: packets that need each other's arbiters meet midway. Returns
    /// whether it took one.
    pub(super) fn take_arbiter(&mut self, route: &Route, actor: usize, n_held: &mut usize) -> bool {
        let Some(of) = route.arbiters.get(*n_held) else {
            return false;
        };
        // A way that comes to an arbiter again waits for its own end.
        let is_own = route.arbiters[..*n_held]
            .iter()
            .any(|before| before.arbiter == of.arbiter);
        let held = self.arbiters.get(&of.arbiter);
        if is_own || held.is_some_and(|hold| !hold.lets_pass(actor, of.selection)) {
            return false;
        }
        let hold = ArbiterHold {
            actor,
            selection: of.selection,
            tail: None,
        };
        self.arbiters.insert(of.arbiter, hold);
        *n_held += 1;
        true
    }

    /// The last word of a packet is sent: arbiters are free but for those at receivers whose words reach back
    /// into them.
    pub(super) fn leave_arbiters(&mut self, route: &Route) {
        for of in &route.arbiters {
            let here = route.sinks.iter().filter(|sink| sink.0 == of.arbiter.0);
            let ends = here.map(|&(tile, channel, _)| {
                let state = &self.tiles[tile];
                let at = usize::from(channel);
                let last = state.taken[at] + state.inboxes[at].len() as u64;
                ((tile, channel), last)
            });
            let tail: Vec<_> = ends.filter(|end| self.reaches_back(*end)).collect();
            match (tail.is_empty(), self.arbiters.get_mut(&of.arbiter)) {
                (false, Some(hold)) => hold.tail = Some(tail),
                _ => drop(self.arbiters.remove(&of.arbiter)),
            }
        }
    }

    fn reaches_back(&self, ((tile, channel), last): ((usize, u8), u64)) -> bool {
        last > self.tiles[tile].taken[usize::from(channel)] + WORDS_BEHIND_ARBITER
    }

    /// Frees arbiters whose packets have room after a receiver took words.
    pub(super) fn free_arbiters(&mut self, tile: usize, channel: u8) {
        if self.arbiters.is_empty() {
            return;
        }
        let taken = self.tiles[tile].taken[usize::from(channel)];
        self.arbiters.retain(|_, hold| {
            let Some(tail) = &mut hold.tail else {
                return true;
            };
            tail.retain(|&(of, last)| of != (tile, channel) || last > taken + WORDS_BEHIND_ARBITER);
            !tail.is_empty()
        });
    }
}
