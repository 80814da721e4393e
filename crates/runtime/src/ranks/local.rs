//! Ranks that are threads of one process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use millrace_graph::RankPlace;

use super::{RankError, Ranks};

/// A rank among threads of one process, with a channel to and from each other rank.
pub struct LocalRanks {
    place: RankPlace,
    timeout: Duration,
    /// By rank; none to itself.
    others: Vec<Option<Connection>>,
}

struct Connection {
    numbers: (Sender<Vec<f32>>, Receiver<Vec<f32>>),
    messages: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

impl Connection {
    /// The two ends of one.
    fn pair() -> (Connection, Connection) {
        let numbers = (channel(), channel());
        let messages = (channel(), channel());
        let one = Connection {
            numbers: (numbers.0.0, numbers.1.1),
            messages: (messages.0.0, messages.1.1),
        };
        let other = Connection {
            numbers: (numbers.1.0, numbers.0.1),
            messages: (messages.1.0, messages.0.1),
        };
        (one, other)
    }
}

/// `n_ranks` ranks that reach each other, by rank. A rank that sends nothing for `timeout` counts as lost.
pub fn local_ranks(n_ranks: usize, timeout: Duration) -> Vec<LocalRanks> {
    let alone = |rank| LocalRanks {
        place: RankPlace { rank, n_ranks },
        timeout,
        others: (0..n_ranks).map(|_| None).collect(),
    };
    let mut all: Vec<LocalRanks> = (0..n_ranks).map(alone).collect();
    for a in 0..n_ranks {
        for b in a + 1..n_ranks {
            let (one, other) = Connection::pair();
            all[a].others[b] = Some(one);
            all[b].others[a] = Some(other);
        }
    }
    all
}

fn ended<E>(rank: usize) -> impl FnOnce(E) -> RankError {
    move |_| RankError::Lost {
        rank,
        reason: "it ended".to_owned(),
    }
}

impl Ranks for LocalRanks {
    fn place(&self) -> RankPlace {
        self.place
    }

    fn all_gather(
        &mut self,
        own: &[f32],
        lens: &[usize],
        out: &mut [f32],
    ) -> Result<(), RankError> {
        // Every other rank gets this part, whichever of them has ended: one that ended because it missed another's part is not
        // the lost one. Receiving names the rank that gave none.
        for other in self.others.iter().flatten() {
            let _ = other.numbers.0.send(own.to_vec());
        }
        let mut rest = out;
        for (rank, (other, len)) in self.others.iter().zip(lens).enumerate() {
            let (part, after) = rest.split_at_mut(*len);
            rest = after;
            let Some(other) = other else {
                part.copy_from_slice(own);
                continue;
            };
            let timeout = self.timeout;
            let received = other.numbers.1.recv_timeout(timeout);
            let received = received.map_err(|error| match error {
                RecvTimeoutError::Timeout => RankError::Silent { rank, timeout },
                RecvTimeoutError::Disconnected => ended(rank)(error),
            })?;
            if received.len() != *len {
                let difference = format!("{} elements where {len} are its part", received.len());
                return Err(RankError::Differs { rank, difference });
            }
            part.copy_from_slice(&received);
        }
        Ok(())
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), RankError> {
        if let Some(leader) = self.others.first().and_then(Option::as_ref) {
            *message = leader.messages.1.recv().map_err(ended(0))?;
            return Ok(());
        }
        for (rank, other) in self.others.iter().enumerate() {
            if let Some(other) = other {
                let sent = other.messages.0.send(message.clone());
                sent.map_err(ended(rank))?;
            }
        }
        Ok(())
    }
}
