//! Measurement of the transport between ranks, by exchanges of zeros.

use std::time::Instant;

use millrace_graph::AllGather;

use super::command::RankCommand;
use super::profile::nanoseconds;
use super::{Communicator, RankError};

/// Elements of each rank in a gather, and repetitions: the first gather is all latency, the last nearly all bytes.
const GATHERS: [(usize, usize); 5] = [
    (1, 200),
    (1 << 10, 200),
    (1 << 12, 100),
    (1 << 14, 40),
    (1 << 18, 8),
];

/// Commands that are timed.
const COMMANDS: usize = 200;

/// Times of exchanges over the transport between ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkMeasurement {
    /// Ranks that exchanged.
    pub n_ranks: usize,
    /// Gathers by ascending size.
    pub gathers: Vec<GatherTime>,
    /// Nanoseconds in which rank 0 sends one small message, without waiting for its arrival.
    pub message_ns: f64,
}

/// Gathers of one size, as rank 0 sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherTime {
    /// Bytes that a rank sends to each other rank.
    pub bytes: u64,
    /// Gathers that were timed.
    pub n_gathers: usize,
    /// The median of their times.
    pub median_ns: u64,
    /// The shortest time.
    pub least_ns: u64,
}

impl LinkMeasurement {
    /// Seconds of a gather with hardly any data.
    pub fn gather_s(&self) -> f64 {
        let first = self.gathers.first();
        first.map_or(0.0, |gather| gather.median_ns as f64 / 1e9)
    }

    /// Bytes that a rank sends, and receives at the same time, in a second: from the difference in time between the
    /// largest and the smallest gather. `None` if the largest takes no longer.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let (first, last) = (self.gathers.first()?, self.gathers.last()?);
        let ns = last.median_ns.checked_sub(first.median_ns)?;
        let bytes = (last.bytes - first.bytes) * (self.n_ranks as u64 - 1);
        (ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9))
    }
}

/// Measures, on rank 0; the others follow its commands.
pub(super) fn measure(ranks: &mut Communicator) -> Result<LinkMeasurement, RankError> {
    let n_ranks = ranks.place().n_ranks;
    let mut gathers = Vec::with_capacity(GATHERS.len());
    for (n_elems, n_times) in GATHERS {
        RankCommand::Exchange { n_elems, n_times }.tell(ranks)?;
        gathers.push(exchange(ranks, n_elems, n_times)?);
    }
    let start = Instant::now();
    for _ in 0..COMMANDS {
        RankCommand::Nothing.tell(ranks)?;
    }
    let n_messages = COMMANDS * (n_ranks - 1).max(1);
    let message_ns = nanoseconds(start.elapsed()) as f64 / n_messages as f64;
    Ok(LinkMeasurement {
        n_ranks,
        gathers,
        message_ns,
    })
}

/// Takes part in gathers of `n_elems` elements of each rank.
pub(super) fn exchange(
    ranks: &mut Communicator,
    n_elems: usize,
    n_times: usize,
) -> Result<GatherTime, RankError> {
    let place = ranks.place();
    let op = AllGather {
        rank: place.rank,
        n_pieces: 1,
        lens: vec![n_elems; place.n_ranks],
        first: 0,
    };
    let own = vec![0.0; n_elems];
    let mut all = vec![0.0; n_elems * place.n_ranks];
    let mut times_ns = Vec::with_capacity(n_times);
    for _ in 0..n_times {
        let start = Instant::now();
        ranks.uncounted(|ranks| ranks.gather(&op, 1, &own, &mut all))?;
        times_ns.push(nanoseconds(start.elapsed()));
    }
    times_ns.sort_unstable();
    let at = |index: usize| times_ns.get(index).copied().unwrap_or(0);
    Ok(GatherTime {
        bytes: size_of_val(&own[..]) as u64,
        n_gathers: n_times,
        median_ns: at(n_times / 2),
        least_ns: at(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(n_ranks: usize, times_ns: [u64; 2]) -> LinkMeasurement {
        let gather = |bytes, median_ns| GatherTime {
            bytes,
            n_gathers: 1,
            median_ns,
            least_ns: median_ns,
        };
        LinkMeasurement {
            n_ranks,
            gathers: vec![gather(4, times_ns[0]), gather(1_000_004, times_ns[1])],
            message_ns: 1.0,
        }
    }

    #[test]
    fn the_rate_is_of_all_bytes_that_a_rank_gives() {
        assert_eq!(link(2, [500, 1500]).bytes_per_s(), Some(1e12));
        assert_eq!(link(4, [500, 1500]).bytes_per_s(), Some(3e12));
        assert_eq!(link(2, [500, 1500]).gather_s(), 5e-7);
        // Noise does not count as a rate.
        assert_eq!(link(2, [500, 500]).bytes_per_s(), None);
        assert_eq!(link(2, [500, 400]).bytes_per_s(), None);
    }
}
