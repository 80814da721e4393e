//! The times of single actors.

use std::collections::VecDeque;

use crate::writer::ChannelAt;

/// An actor's own time.
#[derive(Clone, Debug, Default)]
pub(super) struct ActorClock {
    pub(super) now: f64,
    pub(super) busy: f64,
}

impl ActorClock {
    /// Not before a cause.
    pub(super) fn wait(&mut self, cause: f64) {
        self.now = self.now.max(cause);
    }

    /// Works so long, and ends no earlier than a cause.
    pub(super) fn work(&mut self, ns: f64, cause: f64) {
        self.busy += ns;
        self.now = (self.now + ns).max(cause);
    }
}

/// A DMA channel's time and stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelClock {
    pub(super) clock: ActorClock,
    /// When tasks were pushed that did not begin yet.
    pub(super) pushed: VecDeque<f64>,
    pub(super) is_in_task: bool,
    pub(super) began: f64,
    pub(super) descriptor: u8,
    /// For a sender: its targets, and how long a word is under way.
    pub(super) sinks: Vec<ChannelAt>,
    pub(super) latency: f64,
    /// For a receiver: words that were sent to it, and those on their way by arrival.
    pub(super) sent: u64,
    pub(super) arrivals: VecDeque<(f64, usize)>,
    /// Words that it took, and when the last ones were.
    pub(super) received: u64,
    pub(super) taken: VecDeque<(u64, f64)>,
    /// When the word before those in `taken` was.
    pub(super) taken_before: f64,
    /// Ends of tasks with tokens.
    pub(super) tokens: VecDeque<f64>,
}

impl ChannelClock {
    /// When word `at` of those sent to it was taken; 0 for none.
    pub(super) fn taken_at(&mut self, at: u64) -> f64 {
        while let Some(&(end, when)) = self.taken.front() {
            if end > at {
                return when;
            }
            self.taken_before = when;
            self.taken.pop_front();
        }
        self.taken_before
    }

    /// Takes words from the stream; returns when the last of them came.
    pub(super) fn take(&mut self, mut n_words: usize) -> f64 {
        let mut last = 0.0;
        while n_words > 0 {
            let Some((when, n)) = self.arrivals.front_mut() else {
                break;
            };
            last = *when;
            let now = (*n).min(n_words);
            *n -= now;
            n_words -= now;
            if *n == 0 {
                self.arrivals.pop_front();
            }
        }
        last
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct CoreClock {
    pub(super) clock: ActorClock,
    /// When the value before the core came, and when the last one was taken.
    pub(super) cascade_came: f64,
    pub(super) cascade_taken: f64,
}
