//! DMA channels at work.

mod arbiters;
mod check;
mod end;
mod locate;
mod moves;
mod order;

pub(super) use arbiters::ArbiterHold;

use super::fault::{BoardError, BoardProblem};
use super::route::{ArbiterUse, Route};
use super::state::Mark;
use super::walk::Walk;
use super::{Board, BoardActor};
use crate::descriptor;
use crate::field::{Record, WordField};
use crate::tile::{Direction, Tile};
use check::check;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tasks of a channel, the running one among them (an assumption: that one counts).
pub(super) const QUEUE_DEPTH: usize = 4;

/// A DMA channel.
#[derive(Debug)]
pub(super) struct DmaChannel {
    /// Whether this stream has reset it, or relies on its being drained (a shim's).
    pub(super) is_known: bool,
    pub(super) in_reset: bool,
    pub(super) control: Option<u32>,
    /// The first is running.
    pub(super) queue: VecDeque<Task>,
    execution: Option<Execution>,
}

/// The task that a push asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) start: u8,
    /// Executions of the chain after this one.
    pub(super) repeats_left: u8,
    pub(super) token: bool,
}

/// A descriptor at work.
#[derive(Debug)]
pub(super) struct Execution {
    number: u8,
    walk: Walk,
    memory: DmaMemory,
    acquire: Option<(usize, u8, i32)>,
    release: Option<(usize, u8, i32)>,
    next: Option<u8>,
    header: Option<u32>,
    /// The id of its packet.
    packet: Option<u8>,
    route: Option<Arc<Route>>,
    suppresses_last: bool,
    pad_value: u32,
    /// Set after it took its lock.
    mark: Option<Mark>,
    /// How many of its way's arbiters it has.
    arbiters_held: usize,
    n_words: u64,
}

/// Place of a descriptor's words.
#[derive(Clone, Copy, Debug)]
pub(super) enum DmaMemory {
    /// Tile and first word.
    Tile(usize, u64),
    /// Buffer and first word.
    Ddr(usize, u64),
    /// An address of the host that lies in no argument. A channel that receives needs none before a word comes.
    Nowhere(u64),
}

impl DmaChannel {
    pub(super) fn new(is_known: bool) -> DmaChannel {
        DmaChannel {
            is_known,
            in_reset: false,
            control: None,
            queue: VecDeque::new(),
            execution: None,
        }
    }

    /// Whether a reset would cut a block.
    pub(super) fn is_amid_block(&self) -> bool {
        self.execution
            .as_ref()
            .is_some_and(|e| e.walk.left < e.n_words)
    }

    /// Drops all work.
    pub(super) fn reset(&mut self) {
        self.queue.clear();
        self.execution = None;
        self.is_known = true;
    }

    /// Whether it has work.
    pub(super) fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether its control may be set to a value while it works: to the same value, or to one with another id of tokens
    /// while no task is to send any.
    pub(super) fn allows_control(&self, value: u32) -> bool {
        const CONTROLLER_ID: u32 = 0xFF00;
        let changed = self.control.map_or(u32::MAX, |control| control ^ value);
        let has_token = self.queue.iter().any(|task| task.token);
        changed == 0 || changed & !CONTROLLER_ID == 0 && !has_token
    }

    /// The descriptor at work, if there is one.
    pub(super) fn execution(&self) -> Option<&Execution> {
        self.execution.as_ref()
    }

    /// Whether its stream passes that tile; one that waits for its lock does not yet, unless all counts.
    pub(super) fn passes(&self, tile: usize, all: bool) -> bool {
        let execution = self.execution.as_ref().filter(|e| all || e.mark.is_some());
        let route = execution.and_then(|e| e.route.as_ref());
        route.is_some_and(|route| route.tiles.contains(&tile))
    }

    /// Whether it will come to a descriptor.
    pub(super) fn reaches(&self, number: u8, next: impl Fn(u8) -> Option<u8>) -> bool {
        let current = self.execution.as_ref().map(|e| e.number);
        if self.is_out_of_order() {
            // A packet may name any descriptor; one that is set anew between packets is not searched for.
            return current == Some(number);
        }
        current
            .into_iter()
            .chain(self.queue.iter().map(|task| task.start))
            .any(|start| {
                let chain = std::iter::successors(Some(start), |&at| next(at));
                chain.take(64).any(|at| at == number)
            })
    }
}

impl Execution {
    /// The first lock that it waits for: tile, lock and value.
    pub(super) fn awaited_lock(&self) -> Option<(usize, u8, i32)> {
        self.acquire.filter(|_| self.mark.is_none())
    }

    pub(super) fn route(&self) -> Option<&Route> {
        self.route.as_deref()
    }

    /// The arbiter that its packet has not yet.
    pub(super) fn next_arbiter(&self) -> Option<&ArbiterUse> {
        self.route.as_ref()?.arbiters.get(self.arbiters_held)
    }

    /// The descriptor's number.
    pub(super) fn number(&self) -> u8 {
        self.number
    }
}

fn packet_header(tile: Tile, descriptor: &Record) -> u32 {
    let [id, of, slot] = [
        WordField::PacketId,
        WordField::PacketType,
        WordField::OutOfOrderId,
    ]
    .map(|field| descriptor.get(field) as u32);
    with_parity(fields_of_packet(tile, id, of) | slot << order::ID_SHIFT)
}

/// The header of a packet.
pub(super) fn packet_word(tile: Tile, id: u32, packet_type: u32) -> u32 {
    with_parity(fields_of_packet(tile, id, packet_type))
}

fn fields_of_packet(tile: Tile, id: u32, packet_type: u32) -> u32 {
    id | packet_type << 12 | u32::from(tile.row) << 16 | u32::from(tile.col) << 21
}

/// A header's highest bit makes the number of its ones odd.
fn with_parity(word: u32) -> u32 {
    word | u32::from(word.count_ones().is_multiple_of(2)) << 31
}

impl Board<'_> {
    /// Lets a channel do as much as it can; returns whether it did anything.
    pub(super) fn step_channel(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardError> {
        self.advance(tile, direction, number)
            .map_err(|problem| self.channel_error(tile, direction, number, problem))
    }

    /// Lets a channel take the lock that its descriptor begins with, if it has not yet; returns whether it did.
    pub(super) fn step_lock(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardError> {
        self.wait_at_lock(tile, direction, number)
            .map_err(|problem| self.channel_error(tile, direction, number, problem))
    }

    fn channel_error(
        &self,
        tile: usize,
        direction: Direction,
        number: u8,
        problem: BoardProblem,
    ) -> BoardError {
        let channel = &self.tiles[tile].channels[direction as usize][usize::from(number)];
        let at = channel.execution.as_ref().map(|e| e.number);
        let in_order = (channel.queue.front()).filter(|_| !channel.is_out_of_order());
        let at = at.or(in_order.map(|task| task.start));
        let at = at.map_or_else(String::new, |at| format!(", descriptor {at}"));
        let name = direction.name();
        let place = format!("{}, {name} {number}{at}", self.tiles[tile].tile);
        let actor = BoardActor::Channel(self.event_channel(tile, direction, number));
        BoardError::at(actor, place, problem)
    }

    fn wait_at_lock(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardProblem> {
        let channel = self.tiles[tile].channel(direction, number);
        let Some(&task) = channel.queue.front() else {
            return Ok(false);
        };
        let mut execution = match channel.execution.take() {
            Some(execution) => execution,
            None => match self.start(tile, direction, number, task)? {
                Some(execution) => execution,
                None => return Ok(false),
            },
        };
        let took = match execution.acquire {
            Some(_) => self.take_lock(&mut execution, tile, direction, number),
            None => Ok(false),
        };
        self.tiles[tile].channel(direction, number).execution = Some(execution);
        took
    }

    fn advance(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardProblem> {
        let channel = self.tiles[tile].channel(direction, number);
        let Some(&task) = channel.queue.front() else {
            return Ok(false);
        };
        let execution = match channel.execution.take() {
            Some(execution) => execution,
            None => match self.start(tile, direction, number, task)? {
                Some(execution) => execution,
                None => return Ok(false),
            },
        };
        // Kept in its place in every case, so that a fault can name it.
        let mut execution = execution;
        let moved = self.work(&mut execution, tile, direction, number);
        let is_over = execution.walk.left == 0 && execution.mark.is_some();
        let ended = match (&moved, is_over) {
            (Ok(_), true) => Some(self.finish(&execution, tile, direction, number)),
            _ => None,
        };
        let channel = self.tiles[tile].channel(direction, number);
        match ended {
            None => channel.execution = Some(execution),
            Some(Ok(next)) => {
                if let Some(next) = next {
                    let next = self.begin(tile, direction, number, next)?;
                    self.tiles[tile].channel(direction, number).execution = Some(next);
                }
            }
            Some(Err(problem)) => {
                channel.execution = Some(execution);
                return Err(problem);
            }
        }
        moved
    }

    /// The descriptor of that number as it is now.
    fn descriptor(&self, tile: usize, number: u8) -> Result<Record, BoardProblem> {
        let state = &self.tiles[tile];
        let words = state.descriptors[usize::from(number)].iter().copied();
        let words: Option<Vec<u32>> = words.collect();
        let words = words.ok_or_else(|| {
            BoardProblem::Wrong(format!("descriptor {number} is used and was not set"))
        })?;
        Ok(Record::read(descriptor::layout(state.tile.kind()), &words)?)
    }

    /// Reads a descriptor; nothing is moved yet.
    fn begin(
        &mut self,
        tile: usize,
        direction: Direction,
        channel: u8,
        number: u8,
    ) -> Result<Execution, BoardProblem> {
        let state = &self.tiles[tile];
        let at = state.tile;
        let kind = at.kind();
        if !kind.reaches(channel, number) {
            let problem = format!("descriptor {number} is none that the channel reaches");
            return Err(BoardProblem::Wrong(problem));
        }
        let mut record = self.descriptor(tile, number)?;
        check(&record, direction, self.options.strict)?;
        let walk = Walk::new(&record, self.options.strict)?;
        if record.is(WordField::IterationWrap) {
            let step = record.get(WordField::IterationStep) + 1;
            let further = record.get(WordField::IterationCurrent) * step;
            record.set(WordField::Base, record.get(WordField::Base) + further)?;
        }
        let memory = self.locate(at, (direction, channel), &record)?;
        let lock = |id: WordField, value: WordField, is_on: bool| {
            let value = record.signed7(value);
            let id = record.get(id) as u8;
            let lock = is_on.then(|| self.lock_of(at, channel, id));
            lock.transpose()
                .map(|lock| lock.map(|(tile, id)| (tile, id, value)))
        };
        let acquires = record.is(WordField::AcquireEnable);
        let acquire = lock(WordField::AcquireId, WordField::AcquireValue, acquires)?;
        let releases = record.get(WordField::ReleaseValue) != 0;
        let release = lock(WordField::ReleaseId, WordField::ReleaseValue, releases)?;
        let is_packet = record.is(WordField::PacketEnable);
        let packet = is_packet.then(|| record.get(WordField::PacketId) as u8);
        let route = match direction {
            Direction::S2mm => None,
            Direction::Mm2s if self.options.strict => {
                Some(self.route_of_channel(at, channel, packet)?)
            }
            // A sequence may change its way until it has its lock, and its first word may be a header.
            Direction::Mm2s => self.route_of_channel(at, channel, packet).ok(),
        };
        let pad_value = self.tiles[tile]
            .pad_values
            .get(usize::from(channel))
            .copied()
            .flatten();
        Ok(Execution {
            number,
            walk,
            memory,
            acquire,
            release,
            next: record
                .is(WordField::UseNext)
                .then(|| record.get(WordField::Next) as u8),
            header: is_packet.then(|| packet_header(at, &record)),
            packet,
            route,
            suppresses_last: record.is(WordField::TlastSuppress),
            pad_value: pad_value.unwrap_or(0),
            mark: None,
            arbiters_held: 0,
            n_words: record.get(WordField::Length),
        })
    }
}
