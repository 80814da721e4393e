//! Commands of the leader to the other ranks: its actions on sequences, and the computation that follows.

use serde::{Deserialize, Serialize};

use super::{Communicator, RankError};
use crate::engine::{BatchItem, LogitsFor};
use crate::sequences::SeqId;

/// The leader's name of a sequence.
pub(super) type Name = u64;

/// A change that was made, or a step that begins.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum RankCommand {
    /// A sequence was made.
    Create { seq: Name },
    /// A second one with the same past.
    Fork { from: Name, seq: Name },
    /// A sequence was cut back.
    Truncate { seq: Name, len: usize },
    /// A sequence changed its scope.
    SetScope { seq: Name, scope: u64 },
    /// A sequence holds the first `len` tokens of a prompt.
    ReusePrefix {
        seq: Name,
        prompt: Vec<u32>,
        len: usize,
    },
    /// A sequence was given up.
    Release { seq: Name },
    /// A batch that was checked.
    Step { items: Vec<StepItem> },
    /// All ranks send their profiles to all.
    Profile,
    /// All exchange zeros, which is timed.
    Exchange { n_elems: usize, n_times: usize },
    /// Nothing to do: the message is timed.
    Nothing,
    /// Nothing follows.
    Close,
}

/// An item of a step.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepItem {
    pub(super) seq: Name,
    /// Tokens that the sequence has before.
    pub(super) len: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) logits: SentLogitsFor,
    pub(super) hidden: bool,
    pub(super) head_input: bool,
}

/// [`LogitsFor`], to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SentLogitsFor {
    None,
    Last,
    All,
}

impl From<LogitsFor> for SentLogitsFor {
    fn from(logits: LogitsFor) -> SentLogitsFor {
        match logits {
            LogitsFor::None => SentLogitsFor::None,
            LogitsFor::Last => SentLogitsFor::Last,
            LogitsFor::All => SentLogitsFor::All,
        }
    }
}

impl StepItem {
    pub(super) fn new(item: &BatchItem<'_>, len: usize) -> StepItem {
        StepItem {
            seq: item.seq.serial(),
            len,
            tokens: item.tokens.to_vec(),
            logits: item.logits.into(),
            hidden: item.hidden,
            head_input: item.head_input,
        }
    }

    /// The item for a follower's own sequence.
    pub(super) fn item(&self, seq: SeqId) -> BatchItem<'_> {
        let logits = match self.logits {
            SentLogitsFor::None => LogitsFor::None,
            SentLogitsFor::Last => LogitsFor::Last,
            SentLogitsFor::All => LogitsFor::All,
        };
        BatchItem {
            hidden: self.hidden,
            head_input: self.head_input,
            ..BatchItem::new(seq, &self.tokens, logits)
        }
    }
}

impl RankCommand {
    /// Tells the other ranks.
    pub(super) fn tell(&self, ranks: &mut Communicator) -> Result<(), RankError> {
        let mut message = serde_json::to_vec(self).expect("a command has nothing that JSON lacks");
        ranks.broadcast(&mut message)
    }

    /// Receives the leader's command.
    pub(super) fn hear(ranks: &mut Communicator) -> Result<RankCommand, RankError> {
        let mut message = Vec::new();
        ranks.broadcast(&mut message)?;
        serde_json::from_slice(&message).map_err(|error| RankError::Differs {
            rank: ranks.place().rank,
            difference: format!("it does not know a command of rank 0 ({error})"),
        })
    }
}
