//! One model on several processes, and the interface of the transport between them.
//!
//! Every *rank* runs the graph that [`shard`](millrace_graph::shard()) gives it, and exchanges parts with the others at every
//! [`AllGather`]. Rank 0 leads: a [`LeaderEngine`] is an engine like any other, which sends its actions to the other ranks.
//! They [`follow`] it, with their own sequences and caches that stay equal. Results have the same bits whatever the number of
//! ranks.
//!
//! [`Ranks`] is the transport: MPI, or [`local_ranks`] between threads of one process.

mod command;
mod follow;
mod handshake;
mod leader;
mod link;
mod local;
mod plan;
mod profile;

use std::time::{Duration, Instant};

use millrace_graph::{AllGather, RankPlace};

pub use follow::follow;
pub use leader::LeaderEngine;
pub use link::{GatherTime, LinkMeasurement};
pub use local::{LocalRanks, local_ranks};
pub use plan::{LinkModel, RankPlan, plan};
pub use profile::RankProfile;
pub(crate) use profile::{RankWork, StepTimer};

/// Transport of numbers and commands between ranks.
///
/// All ranks call the same methods in the same order.
pub trait Ranks: Send {
    /// Index of this rank, and the number of ranks.
    fn place(&self) -> RankPlace;

    /// Sends `own` to all ranks and receives theirs: `out` gets the parts of all ranks, one after the other, `lens` elements
    /// of each. `own` has as many as its own entry of `lens`.
    ///
    /// # Errors
    /// A lost rank, or one that does not answer.
    fn all_gather(&mut self, own: &[f32], lens: &[usize], out: &mut [f32])
    -> Result<(), RankError>;

    /// Sends the bytes of rank 0 to all others, replacing theirs. They wait for it as long as it takes.
    ///
    /// # Errors
    /// A lost rank.
    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), RankError>;
}

/// Why ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// A rank that ended, or whose connection broke.
    #[error("rank {rank} is lost: {reason}; start all ranks again")]
    Lost {
        /// The rank.
        rank: usize,
        /// Description of the failure.
        reason: String,
    },
    /// A rank that does not answer.
    #[error(
        "rank {rank} gave nothing within {} s: it hangs or is gone; look at its output, and start all ranks again",
        timeout.as_secs()
    )]
    Silent {
        /// The rank.
        rank: usize,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// A rank with another setup.
    #[error(
        "rank {rank} differs from rank 0: {difference}; start all ranks with the same options and files"
    )]
    Differs {
        /// The rank.
        rank: usize,
        /// The difference.
        difference: String,
    },
}

/// Traffic of a rank so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTraffic {
    /// Tokens that were computed.
    pub n_tokens: u64,
    /// Values assembled from all ranks.
    pub n_gathers: u64,
    /// Bytes sent, once for each other rank.
    pub sent_bytes: u64,
    /// Bytes received from other ranks.
    pub received_bytes: u64,
    /// Time in these exchanges, waiting for slower ranks included.
    pub wait_ns: u64,
}

/// Ranks as an engine uses them: rows of values, counted.
pub(crate) struct Communicator {
    ranks: Box<dyn Ranks>,
    profile: RankProfile,
    /// The first failure: later messages would be out of order.
    failed: Option<RankError>,
    /// The own elements of all pieces.
    packed: Vec<f32>,
    /// The parts of all ranks, one rank after the other.
    blocks: Vec<f32>,
    block_lens: Vec<usize>,
}

impl Communicator {
    pub(crate) fn new(ranks: Box<dyn Ranks>) -> Communicator {
        Communicator {
            ranks,
            profile: RankProfile::default(),
            failed: None,
            packed: Vec::new(),
            blocks: Vec::new(),
            block_lens: Vec::new(),
        }
    }

    pub(crate) fn place(&self) -> RankPlace {
        self.ranks.place()
    }

    /// Counts a pass that is done.
    pub(crate) fn count_pass(&mut self, n_tokens: usize, time: Duration) {
        self.profile.traffic.n_tokens += n_tokens as u64;
        self.profile.pass_ns += profile::nanoseconds(time);
    }

    /// Counts a step of a pass.
    pub(crate) fn count_work(&mut self, work: RankWork, time: Duration) {
        let sum = match work {
            RankWork::Products => &mut self.profile.products_ns,
            RankWork::Attention => &mut self.profile.attention_ns,
        };
        *sum += profile::nanoseconds(time);
    }

    pub(crate) fn traffic(&self) -> RankTraffic {
        self.profile.traffic
    }

    pub(crate) fn profile(&self) -> RankProfile {
        self.profile
    }

    /// Puts `m` rows of a value together: `x` has the own part of each, `out` gets all.
    pub(crate) fn gather(
        &mut self,
        op: &AllGather,
        m: usize,
        x: &[f32],
        out: &mut [f32],
    ) -> Result<(), RankError> {
        let n_rows = m * op.n_pieces;
        let own_len = op.lens[op.rank];
        let own = match x.len() == n_rows * own_len {
            true => x,
            false => {
                self.packed.clear();
                for piece in x.chunks_exact((x.len() / n_rows).max(1)) {
                    self.packed.extend_from_slice(&piece[op.first..][..own_len]);
                }
                &self.packed
            }
        };
        self.block_lens.clear();
        self.block_lens
            .extend(op.lens.iter().map(|len| len * n_rows));
        if n_rows == 1 {
            let (ranks, failed) = (&mut self.ranks, &mut self.failed);
            let own = (own, &self.block_lens[..]);
            exchange(ranks, failed, &mut self.profile.traffic, own, out)
        } else {
            self.blocks.resize(out.len(), 0.0);
            let (ranks, failed) = (&mut self.ranks, &mut self.failed);
            let own = (own, &self.block_lens[..]);
            let traffic = &mut self.profile.traffic;
            exchange(ranks, failed, traffic, own, &mut self.blocks)?;
            spread(&self.blocks, &op.lens, out);
            Ok(())
        }
    }

    /// Exchanges that are not the model's, and are not counted.
    fn uncounted<T>(&mut self, exchange: impl FnOnce(&mut Communicator) -> T) -> T {
        let profile = self.profile;
        let result = exchange(self);
        self.profile = profile;
        result
    }

    pub(crate) fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), RankError> {
        let (ranks, failed) = (&mut self.ranks, &mut self.failed);
        once(failed, || ranks.broadcast(message))
    }
}

/// Asks the ranks, unless they failed before.
fn once(
    failed: &mut Option<RankError>,
    ask: impl FnOnce() -> Result<(), RankError>,
) -> Result<(), RankError> {
    if let Some(error) = failed {
        return Err(error.clone());
    }
    ask().inspect_err(|error| *failed = Some(error.clone()))
}

fn exchange(
    ranks: &mut Box<dyn Ranks>,
    failed: &mut Option<RankError>,
    traffic: &mut RankTraffic,
    (own, lens): (&[f32], &[usize]),
    out: &mut [f32],
) -> Result<(), RankError> {
    let start = Instant::now();
    once(failed, || ranks.all_gather(own, lens, out))?;
    let n_others = lens.len().saturating_sub(1);
    traffic.n_gathers += 1;
    traffic.sent_bytes += (size_of_val(own) * n_others) as u64;
    traffic.received_bytes += (size_of_val(out) - size_of_val(own)) as u64;
    traffic.wait_ns += profile::nanoseconds(start.elapsed());
    Ok(())
}

/// Rearranges blocks of ranks, each with all rows, into rows: row by row the elements of every rank.
fn spread(blocks: &[f32], lens: &[usize], out: &mut [f32]) {
    let width: usize = lens.iter().sum();
    let n_rows = out.len() / width.max(1);
    let (mut rest, mut place) = (blocks, 0);
    for len in lens.iter().copied().filter(|len| *len > 0) {
        let (block, others) = rest.split_at(n_rows * len);
        for (row, own) in out.chunks_exact_mut(width).zip(block.chunks_exact(len)) {
            row[place..][..len].copy_from_slice(own);
        }
        rest = others;
        place += len;
    }
}

#[cfg(test)]
mod tests;
