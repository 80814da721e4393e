//! The processes of an `mpirun`, as ranks.
//!
//! Each pair of ranks exchanges its own messages instead of a collective call, because a collective does not report
//! which rank is missing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_graph::RankPlace;
use millrace_runtime::ranks::{RankError, Ranks};
use mpi::environment::Universe;
use mpi::request::{LocalScope, Request, scope};
use mpi::topology::{Process, SimpleCommunicator};
use mpi::traits::{Buffer, Communicator, Destination, Equivalence, MatchedReceiveVec, Source};
use mpi::{Tag, Threading};

use super::MpiJob;
use crate::exit::{CommandFailure, CommandResult};

/// MPI between its start and its end.
static UNIVERSE: Mutex<Option<Universe>> = Mutex::new(None);

/// Tag of messages with numbers.
const NUMBERS: Tag = 1;

/// Tag of messages with bytes.
const BYTES: Tag = 2;

/// Memory in which MPI keeps copies of small messages until they arrive. So a rank that hangs does not hold on to the
/// sender's memory, and the step can end with an error. Larger messages are sent from their own memory.
const BUFFER_BYTES: usize = 32 << 20;

/// Maximum size of a small message.
const SMALL_BYTES: usize = 64 << 10;

/// Allowance for MPI's overhead per message in that memory: more than any library uses.
const OVERHEAD_BYTES: usize = 1024;

/// Time that a wait for the leader polls without a pause.
const BUSY: Duration = Duration::from_millis(20);

/// Polling interval after that: a server may wait for its next request for hours.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a rank was lost.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Starts MPI on the first call. A rank that sends nothing for `timeout` counts as lost.
pub(super) fn start(timeout: Duration) -> CommandResult<MpiJob> {
    let mut universe = UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner);
    if universe.is_none() {
        // The engine may run on another thread than the one that starts and ends MPI.
        let Some((mut started, threading)) = mpi::initialize_with_threading(Threading::Serialized)
        else {
            return Err(CommandFailure::usage(
                "MPI was started before in this process",
            ));
        };
        if threading < Threading::Serialized {
            let message = "this MPI library serves the main thread alone";
            return Err(CommandFailure::usage(message).hint("take one that was built with threads"));
        }
        started.set_buffer_size(BUFFER_BYTES);
        *universe = Some(started);
    }
    let world = SimpleCommunicator::world();
    let here = world.split_shared(world.rank());
    Ok(MpiJob {
        ranks: Box::new(MpiRanks {
            timeout,
            unconfirmed_bytes: 0,
        }),
        n_here: usize::try_from(here.size()).unwrap_or(1),
    })
}

/// Whether a rank was lost, so that no engine over the ranks computes any more.
pub(crate) fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Ends MPI, if it was started and the work is done: MPI's end waits for all ranks. If a process ends without it,
/// `mpirun` ends the others.
pub(crate) fn finish(is_done: bool) {
    let mut universe = UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner);
    match universe.take() {
        Some(started) if !is_done || has_failed() => std::mem::forget(started),
        ended => drop(ended),
    }
}

fn place() -> RankPlace {
    let world = SimpleCommunicator::world();
    let number = |n: i32| usize::try_from(n).expect("MPI counts from 0");
    RankPlace {
        rank: number(world.rank()),
        n_ranks: number(world.size()),
    }
}

/// All processes that `mpirun` started.
struct MpiRanks {
    timeout: Duration,
    /// Bytes in the buffer that may not have arrived yet.
    unconfirmed_bytes: usize,
}

impl MpiRanks {
    /// Sends a small message to all others at once, if the buffer has room for it. Returns false where nothing was sent.
    fn give_buffered<T: Equivalence>(&mut self, message: &[T], tag: Tag) -> bool
    where
        [T]: Buffer,
    {
        let each = size_of_val(message) + OVERHEAD_BYTES;
        let needed = each.saturating_mul(others().count());
        let used = self.unconfirmed_bytes.saturating_add(needed);
        if size_of_val(message) > SMALL_BYTES || used > BUFFER_BYTES {
            return false;
        }
        self.unconfirmed_bytes = used;
        let world = SimpleCommunicator::world();
        for rank in others() {
            process(&world, rank).buffered_send_with_tag(message, tag);
        }
        true
    }
}

fn process(world: &SimpleCommunicator, rank: usize) -> Process<'_> {
    world.process_at_rank(i32::try_from(rank).expect("a rank is one of MPI's numbers"))
}

/// Every rank but this one.
fn others() -> impl Iterator<Item = usize> {
    let RankPlace { rank, n_ranks } = place();
    (0..n_ranks).filter(move |other| *other != rank)
}

impl Ranks for MpiRanks {
    fn place(&self) -> RankPlace {
        place()
    }

    fn all_gather(
        &mut self,
        own: &[f32],
        lens: &[usize],
        out: &mut [f32],
    ) -> Result<(), RankError> {
        let (world, timeout) = (SimpleCommunicator::world(), self.timeout);
        let own_rank = place().rank;
        let before = self.unconfirmed_bytes;
        let is_given = own.is_empty() || self.give_buffered(own, NUMBERS);
        let gathered = scope(|scope| {
            let (mut takes, mut gives) = (Vec::new(), Vec::new());
            let mut rest = out;
            for (rank, len) in lens.iter().copied().enumerate() {
                let (part, after) = rest.split_at_mut(len);
                rest = after;
                if rank == own_rank {
                    part.copy_from_slice(own);
                } else if len > 0 {
                    let from = process(&world, rank);
                    let take = from.immediate_receive_into_with_tag(scope, part, NUMBERS);
                    takes.push((rank, take));
                }
            }
            for rank in others().filter(|_| !is_given) {
                let to = process(&world, rank);
                gives.push((rank, to.immediate_send_with_tag(scope, own, NUMBERS)));
            }
            complete(takes, gives, timeout)
        });
        if gathered.is_ok() && lens.iter().all(|len| *len > 0) {
            // A rank that sent its part to this gather has received everything before it.
            self.unconfirmed_bytes -= before;
        }
        gathered
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), RankError> {
        let world = SimpleCommunicator::world();
        if place().rank > 0 {
            *message = hear(&process(&world, 0));
            return Ok(());
        }
        if self.give_buffered(&message[..], BYTES) {
            return Ok(());
        }
        let (bytes, timeout) = (&message[..], self.timeout);
        scope(|scope| {
            let give = |rank| {
                let to = process(&world, rank);
                (rank, to.immediate_send_with_tag(scope, bytes, BYTES))
            };
            complete(
                Vec::<Pending<'_, '_, [u8]>>::new(),
                others().map(give).collect(),
                timeout,
            )
        })
    }
}

/// Receives the leader's next message.
fn hear(leader: &Process<'_>) -> Vec<u8> {
    let start = Instant::now();
    loop {
        if let Some(message) = leader.immediate_matched_probe_with_tag(BYTES) {
            return message.matched_receive_vec().0;
        }
        match start.elapsed() < BUSY {
            true => std::thread::yield_now(),
            false => std::thread::sleep(PAUSE),
        }
    }
}

/// A pending message to or from a rank.
type Pending<'a, 's, D> = (usize, Request<'a, D, &'s LocalScope<'a>>);

/// Waits until all messages have arrived.
fn complete<'a, T: ?Sized, G: ?Sized>(
    mut takes: Vec<Pending<'a, '_, T>>,
    mut gives: Vec<Pending<'a, '_, G>>,
    timeout: Duration,
) -> Result<(), RankError> {
    let start = Instant::now();
    loop {
        takes = still_pending(takes);
        gives = still_pending(gives);
        if takes.is_empty() && gives.is_empty() {
            return Ok(());
        }
        if start.elapsed() > timeout {
            break;
        }
        std::thread::yield_now();
    }
    FAILED.store(true, Ordering::Relaxed);
    let silent = takes.first().map(|(rank, _)| *rank);
    for (_, take) in takes {
        take.cancel();
        take.wait();
    }
    // Sent messages cannot be taken back, and their memory must stay until they have arrived.
    if let Some((rank, _)) = gives.first() {
        let error = RankError::Silent {
            rank: *rank,
            timeout,
        };
        crate::output::report(&CommandFailure::from(millrace_runtime::Error::Rank(error)));
        SimpleCommunicator::world().abort(1);
    }
    match silent {
        Some(rank) => Err(RankError::Silent { rank, timeout }),
        None => Ok(()),
    }
}

fn still_pending<'a, 's, D: ?Sized>(all: Vec<Pending<'a, 's, D>>) -> Vec<Pending<'a, 's, D>> {
    let test = |(rank, request): Pending<'a, 's, D>| {
        let tested = request.test();
        tested.err().map(|request| (rank, request))
    };
    all.into_iter().filter_map(test).collect()
}
