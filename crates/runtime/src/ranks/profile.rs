//! Where the time of each rank goes.

use std::time::{Duration, Instant};

use millrace_graph::AllGather;

use super::{Communicator, RankError, RankTraffic};

/// Profile of a rank so far. All ranks share the model, so their counts of tokens and gathers are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankProfile {
    /// Its traffic. `wait_ns` is a part of `pass_ns` if the exchange belongs to a pass.
    pub traffic: RankTraffic,
    /// Time of the passes that were computed, from their first step to their last.
    pub pass_ns: u64,
    /// Part of the time in products with weights.
    pub products_ns: u64,
    /// Part of the time in attention.
    pub attention_ns: u64,
}

impl RankProfile {
    /// The difference to an earlier profile.
    pub fn since(&self, before: &RankProfile) -> RankProfile {
        let (now, before) = (self.numbers(), before.numbers());
        RankProfile::of_numbers(std::array::from_fn(|i| now[i].saturating_sub(before[i])))
    }

    /// Time of the passes outside products, attention and gathers: norms, sums, activations, recurrent layers. Every rank
    /// computes these whole.
    pub fn sums_ns(&self) -> u64 {
        let known = [self.products_ns, self.attention_ns, self.traffic.wait_ns];
        known
            .iter()
            .fold(self.pass_ns, |left, ns| left.saturating_sub(*ns))
    }

    fn numbers(&self) -> [u64; NUMBERS] {
        let RankTraffic {
            n_tokens,
            n_gathers,
            sent_bytes,
            received_bytes,
            wait_ns,
        } = self.traffic;
        [
            n_tokens,
            n_gathers,
            sent_bytes,
            received_bytes,
            wait_ns,
            self.pass_ns,
            self.products_ns,
            self.attention_ns,
        ]
    }

    fn of_numbers(numbers: [u64; NUMBERS]) -> RankProfile {
        let [
            n_tokens,
            n_gathers,
            sent_bytes,
            received_bytes,
            wait_ns,
            pass_ns,
            products_ns,
            attention_ns,
        ] = numbers;
        RankProfile {
            traffic: RankTraffic {
                n_tokens,
                n_gathers,
                sent_bytes,
                received_bytes,
                wait_ns,
            },
            pass_ns,
            products_ns,
            attention_ns,
        }
    }
}

/// Numbers of a [`RankProfile`].
const NUMBERS: usize = 8;

/// Bits of a number that one element carries: every such number is an `f32`.
const LIMB_BITS: u32 = 16;

/// Elements of a number.
const LIMBS: usize = (u64::BITS / LIMB_BITS) as usize;

/// Sends this rank's profile to all others and receives theirs, in the order of ranks.
pub(super) fn share(ranks: &mut Communicator) -> Result<Vec<RankProfile>, RankError> {
    let own = to_elements(&ranks.profile().numbers());
    let place = ranks.place();
    let op = AllGather {
        rank: place.rank,
        n_pieces: 1,
        lens: vec![own.len(); place.n_ranks],
        first: 0,
    };
    let mut all = vec![0.0; own.len() * place.n_ranks];
    ranks.uncounted(|ranks| ranks.gather(&op, 1, &own, &mut all))?;
    let profiles = all.chunks_exact(own.len()).map(of_elements);
    Ok(profiles.map(RankProfile::of_numbers).collect())
}

fn to_elements(numbers: &[u64; NUMBERS]) -> Vec<f32> {
    let limbs = |number: &u64| {
        let number = *number;
        (0..LIMBS as u32).map(move |limb| f32::from((number >> (limb * LIMB_BITS)) as u16))
    };
    numbers.iter().flat_map(limbs).collect()
}

fn of_elements(elements: &[f32]) -> [u64; NUMBERS] {
    std::array::from_fn(|i| {
        let limbs = elements[i * LIMBS..][..LIMBS].iter().rev();
        limbs.fold(0, |number, limb| (number << LIMB_BITS) | *limb as u64)
    })
}

/// Kinds of steps with separate times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankWork {
    Products,
    Attention,
}

/// The time of one step, if there are ranks to report it to.
pub(crate) struct StepTimer(Option<Instant>);

impl StepTimer {
    pub(crate) fn start(ranks: Option<&Communicator>) -> StepTimer {
        StepTimer(ranks.map(|_| Instant::now()))
    }

    pub(crate) fn stop(self, ranks: Option<&mut Communicator>, work: RankWork) {
        if let (Some(start), Some(ranks)) = (self.0, ranks) {
            ranks.count_work(work, start.elapsed());
        }
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_way_through_elements() {
        let numbers = [
            0,
            1,
            0xffff,
            0x1_0000,
            u64::MAX,
            1 << 63,
            0x0123_4567_89ab_cdef,
            7,
        ];
        assert_eq!(of_elements(&to_elements(&numbers)), numbers);
        assert_eq!(RankProfile::of_numbers(numbers).numbers(), numbers);
    }

    #[test]
    fn what_is_no_product_attention_or_wait_is_the_rest() {
        let profile = RankProfile::of_numbers([4, 9, 0, 0, 30, 100, 50, 5]);
        assert_eq!(profile.sums_ns(), 15);
        let before = RankProfile::of_numbers([1, 2, 0, 0, 10, 40, 20, 5]);
        let added = RankProfile::of_numbers([3, 7, 0, 0, 20, 60, 30, 0]);
        assert_eq!(profile.since(&before), added);
    }
}
