//! A register-level NPU2 that executes a transaction stream.
//!
//! Registers, descriptors and switches behave as the words say. A stream's words go through the switches as configured,
//! a few at a time, and wait where there is no room. The state of the array before a stream is void. A register that is
//! used and was not set by the stream is a fault, and memory is full of noise. Behaviour that no source documents is
//! refused ([`BoardError`] says so), not guessed.
//!
//! Actors (firmware, DMA channels, cores) take turns in an order that a seed shuffles. A correct design gives the same
//! bytes for every seed. A wrong one is usually caught in the act: two parties that touch a word at once are a
//! [race](BoardError::Race), which locks would have prevented.
//!
//! # Assumptions
//! [`ASSUMPTIONS`] lists the facts that no source states and the board needs, each with the probe that would settle it.

mod assumptions;
mod clock;
mod control;
mod core;
mod counters;
mod dma;
mod event;
mod fault;
mod firmware;
mod lock;
mod route;
mod slow;
mod state;
mod waits;
mod walk;

pub use assumptions::{ASSUMPTIONS, Assumption};
pub use clock::{BoardClock, ClockRates, ClockReading, ClockSpan, TASK_BYTES};
pub use core::{CoreProblem, CoreProgram, CoreStep, CoreView};
pub use counters::BoardCounters;
pub use event::BoardEvent;
pub use fault::{BoardError, RacedWord};
pub use lock::EqualAcquire;
pub use slow::SlowActor;
pub use state::UnsetMemory;
pub use waits::{BoardActor, BoardWait, WaitFor};

use crate::tile::{Direction, Tile};
use crate::txn::{TxnOperation, TxnStream, decode};
use crate::writer::ChannelAt;
use dma::ArbiterHold;
use event::EventLog;
use firmware::Scratchpad;
use route::{Entry, Route};
use state::{Active, CoreState, Marks, TileState};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How a board runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardOptions {
    /// Decides the order of actors and the noise in memory.
    pub seed: u64,
    /// Whether words without effect are refused. Others' designs may have some.
    pub strict: bool,
    /// Rounds after which a run is stopped. In a round every actor has a turn.
    pub max_rounds: u64,
    /// The actor that moves only when no other can.
    pub starved: SlowActor,
    /// An operation before which firmware waits until nothing else moves: cores and channels that a configuration
    /// starts are at work long before the first command of a sequence.
    pub settle: Option<usize>,
    /// The value that an acquire by equality leaves.
    pub equal: EqualAcquire,
    /// Content of memory that nothing has set.
    pub unset: UnsetMemory,
    /// The operation after a sequence's last. Polls from there on are not part of the sequence: the events that they
    /// wait for are late.
    pub end: Option<usize>,
}

impl Default for BoardOptions {
    fn default() -> BoardOptions {
        BoardOptions {
            seed: 0,
            strict: true,
            max_rounds: 1 << 24,
            starved: SlowActor::Nobody,
            settle: None,
            equal: EqualAcquire::Refused,
            unset: UnsetMemory::Noise,
            end: None,
        }
    }
}

/// An argument in DDR.
struct DdrBuffer {
    address: u64,
    bytes: Vec<u8>,
    marks: Marks,
}

/// The array, and the programs of its cores.
pub struct Board<'p> {
    options: BoardOptions,
    tiles: Vec<TileState>,
    programs: Vec<Option<Box<dyn CoreProgram + 'p>>>,
    core_waits: Vec<String>,
    ddr: Vec<DdrBuffer>,
    routes: HashMap<Entry, Arc<Route>>,
    arbiters: HashMap<(usize, u8), ArbiterHold>,
    tokens: BTreeMap<(usize, Direction, u8), u32>,
    busy: Vec<(usize, Direction, u8)>,
    active: Active,
    /// Rounds since the starved had a turn.
    starved_for: u32,
    /// Turns in which a core only turned in a loop; consecutive rounds in which nothing else happened.
    n_turned: u64,
    turning: u32,
    /// Rounds for which firmware has waited for all others; `None` once it has.
    settling: Option<u32>,
    met_equal: bool,
    /// Channels that had work when the sequence had ended.
    late: BTreeSet<ChannelAt>,
    /// Where two parties met.
    raced: Cell<Option<RacedWord>>,
    order: TurnOrder,
    counters: BoardCounters,
    log: EventLog,
    /// The operation that firmware waited at when nothing moved.
    stalled_at: Option<TxnOperation>,
    /// Content of memories when the next stream begins; empty for a memory that is noise.
    carried: Vec<Vec<u32>>,
    scratchpad: Scratchpad,
}

/// Xorshift64*: order and noise, nothing more.
struct TurnOrder(u64);

impl TurnOrder {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) % n.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, of: &mut [T]) {
        for i in (1..of.len()).rev() {
            of.swap(i, self.below(i + 1));
        }
    }
}

/// Operations that firmware does in a turn, at most.
const OPERATIONS: usize = 64;
/// The number of a channel among actors.
fn channel_actor(tile: usize, direction: Direction, number: u8) -> usize {
    tile * 12 + direction as usize * 6 + usize::from(number)
}
/// The number of the first core among actors.
const FIRST_CORE: usize = 48 * 12;
/// The number of a core among actors.
fn core_actor(tile: usize) -> usize {
    FIRST_CORE + tile
}
/// Address of the first argument, and the distance between arguments: more than the size of any.
const DDR_STEP: u64 = 1 << 36;

/// Who has a turn.
#[derive(Clone, Copy)]
enum Turn {
    Firmware,
    Channel(usize, Direction, u8),
    /// A channel that takes the lock which it waits for, and moves nothing.
    Lock(usize, Direction, u8),
    Core(usize),
    /// A control port with something to answer.
    Control(usize),
}

impl<'p> Board<'p> {
    /// An array in an unknown state.
    pub fn new(options: BoardOptions) -> Board<'p> {
        Board {
            options,
            tiles: Vec::new(),
            programs: Tile::all().map(|_| None).collect(),
            core_waits: Tile::all().map(|_| String::new()).collect(),
            ddr: Vec::new(),
            routes: HashMap::new(),
            arbiters: HashMap::new(),
            tokens: BTreeMap::new(),
            busy: Vec::new(),
            active: Active::new(),
            starved_for: 0,
            settling: Some(0),
            met_equal: false,
            late: BTreeSet::new(),
            raced: Cell::new(None),
            n_turned: 0,
            turning: 0,
            order: TurnOrder(options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            counters: BoardCounters::default(),
            log: EventLog::default(),
            stalled_at: None,
            carried: Vec::new(),
            scratchpad: Scratchpad::default(),
        }
    }

    /// Forgets all registers. Memories get the content of unset memory, or the carried one.
    fn forget(&mut self) {
        let (order, unset) = (&mut self.order, self.options.unset);
        self.tiles = Tile::all()
            .map(|tile| TileState::new(tile, order.next(), unset))
            .collect();
        for (state, memory) in self.tiles.iter_mut().zip(self.carried.drain(..)) {
            state.restore(memory);
        }
        self.routes.clear();
        self.arbiters.clear();
        self.tokens.clear();
        self.busy.clear();
        self.active = Active::new();
        self.stalled_at = None;
        self.settling = Some(0);
        self.met_equal = false;
        self.late.clear();
        self.raced.set(None);
        self.scratchpad.firmware = None;
        self.turning = 0;
        self.counters = BoardCounters::default();
    }

    /// Gives a core its program, which the stream will start.
    pub fn install(&mut self, tile: Tile, program: Box<dyn CoreProgram + 'p>) {
        self.programs[tile.index()] = Some(program);
    }

    /// Executes a stream on arguments, which it reads and writes.
    ///
    /// # Errors
    /// A [`BoardError`]; the arguments' content is undefined then.
    pub fn run(
        &mut self,
        words: &[u32],
        arguments: &mut [Vec<u8>],
    ) -> Result<BoardCounters, BoardError> {
        self.run_stream(&decode(words)?, arguments)
    }

    /// The same with a stream that is read already.
    ///
    /// # Errors
    /// As [`run`](Board::run).
    pub fn run_stream(
        &mut self,
        stream: &TxnStream,
        arguments: &mut [Vec<u8>],
    ) -> Result<BoardCounters, BoardError> {
        let addresses: Vec<u64> = (1..=arguments.len() as u64).map(|n| n * DDR_STEP).collect();
        self.run_at(stream, &addresses, arguments)
    }

    /// The same with arguments at given addresses, by which descriptors may name them without a patch.
    ///
    /// # Errors
    /// As [`run`](Board::run).
    pub fn run_at(
        &mut self,
        stream: &TxnStream,
        addresses: &[u64],
        arguments: &mut [Vec<u8>],
    ) -> Result<BoardCounters, BoardError> {
        self.forget();
        self.ddr = addresses
            .iter()
            .zip(arguments.iter_mut())
            .map(|(&address, bytes)| DdrBuffer {
                address,
                marks: Marks::new(bytes.len().div_ceil(4)),
                bytes: std::mem::take(bytes),
            })
            .collect();
        let ended = self.execute(stream);
        for (bytes, buffer) in arguments.iter_mut().zip(self.ddr.drain(..)) {
            *bytes = buffer.bytes;
        }
        ended.map(|()| self.counters)
    }

    /// Counters of the last run, however it ended.
    pub fn counters(&self) -> BoardCounters {
        self.counters
    }

    fn execute(&mut self, stream: &TxnStream) -> Result<(), BoardError> {
        let header = stream.header;
        if header != crate::StreamHeader::npu2(header.columns) || !(1..=8).contains(&header.columns)
        {
            return Err(BoardError::Fault {
                place: "the header".to_owned(),
                problem: format!("{header:?} is no NPU2 of 1 to 8 columns"),
            });
        }
        let mut next = 0;
        let mut order = Vec::new();
        while next < stream.operations.len() {
            self.counters.rounds += 1;
            if self.counters.rounds > self.options.max_rounds {
                return Err(BoardError::Budget {
                    rounds: self.options.max_rounds,
                });
            }
            if !self.round(stream, &mut next, &mut order)? {
                let stalled_at = stream.operations.get(next);
                self.stalled_at = stalled_at.map(|of| of.operation.clone());
                return Err(self.standstill(stream, next));
            }
        }
        self.check_end()
    }

    /// A turn for every actor; returns whether anything was done.
    fn round(
        &mut self,
        stream: &TxnStream,
        next: &mut usize,
        order: &mut Vec<Turn>,
    ) -> Result<bool, BoardError> {
        let tiles = &mut self.tiles;
        self.busy
            .retain(|&(tile, direction, number)| tiles[tile].channel(direction, number).is_busy());
        order.clear();
        order.push(Turn::Firmware);
        order.extend(
            self.busy
                .iter()
                .map(|&(tile, direction, number)| Turn::Channel(tile, direction, number)),
        );
        let running =
            (0..self.tiles.len()).filter(|&tile| self.tiles[tile].core == CoreState::Running);
        order.extend(running.map(Turn::Core));
        let answers = (0..self.tiles.len()).filter(|&at| self.tiles[at].control_port.has_answer());
        order.extend(answers.map(Turn::Control));
        self.order.shuffle(order);
        let moved = self.turns(order, stream, next)?;
        Ok(self.settle(*next, moved) || moved)
    }

    fn turn(
        &mut self,
        turn: Turn,
        stream: &TxnStream,
        next: &mut usize,
    ) -> Result<bool, BoardError> {
        match turn {
            Turn::Firmware => self.firmware(stream, next),
            Turn::Channel(tile, direction, number) => self.step_channel(tile, direction, number),
            Turn::Lock(tile, direction, number) => self.step_lock(tile, direction, number),
            Turn::Core(tile) => self.step_core(tile),
            Turn::Control(tile) => self.step_control(tile),
        }
    }

    fn firmware(&mut self, stream: &TxnStream, next: &mut usize) -> Result<bool, BoardError> {
        let most = 1 + self.order.below(OPERATIONS);
        let first = *next;
        for operation in stream.operations.iter().skip(first).take(most) {
            if self.is_settling(*next) || !self.operate(*next, operation)? {
                self.is_late(*next, operation);
                break;
            }
            let operation = *next;
            self.event(|_| BoardEvent::Operated { operation });
            *next += 1;
        }
        Ok(*next > first)
    }

    /// The error that names each waiting actor and the cause of its wait.
    fn standstill(&self, stream: &TxnStream, next: usize) -> BoardError {
        let mut waiting = Vec::new();
        if let Some(operation) = stream.operations.get(next) {
            let what = firmware::describe(&operation.operation);
            waiting.push(format!("firmware waits at operation {next}: {what}"));
        }
        for (tile, state) in self.tiles.iter().enumerate() {
            for direction in [Direction::S2mm, Direction::Mm2s] {
                let channels = 0..state.tile.kind().channels();
                waiting.extend(channels.filter_map(|n| self.channel_waiting(tile, direction, n)));
            }
            if state.core == CoreState::Running {
                waiting.push(format!("{} {}", state.tile, self.core_waits[tile]));
            }
        }
        BoardError::Standstill { waiting }
    }

    /// Refuses to end while anything is under way: it would disturb the next stream.
    fn check_end(&self) -> Result<(), BoardError> {
        let mut left = Vec::new();
        for state in &self.tiles {
            let tile = state.tile;
            for (direction, channels) in [Direction::S2mm, Direction::Mm2s]
                .iter()
                .zip(&state.channels)
            {
                for (number, channel) in channels.iter().enumerate() {
                    if channel.is_busy() {
                        left.push(format!("{tile} {} {number} has work", direction.name()));
                    }
                }
            }
            if state.core == CoreState::Running {
                left.push(format!("{tile} runs"));
            }
            if state.cascade_inbox.is_some() {
                left.push(format!("{tile} did not take what came by the cascade"));
            }
            if state.control_port.is_amid_packet() || state.control_port.has_answer() {
                left.push(format!("the control port of {tile} has work"));
            }
            for (number, inbox) in state
                .inboxes
                .iter()
                .enumerate()
                .filter(|row| !row.1.is_empty())
            {
                let n = inbox.len();
                left.push(format!("{n} words stand before {tile} S2MM {number}"));
            }
        }
        for ((tile, direction, number), n) in self.tokens.iter().filter(|row| *row.1 > 0) {
            let tile = self.tiles[*tile].tile;
            left.push(format!(
                "{n} tokens of {tile} {} {number} were not awaited",
                direction.name()
            ));
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(BoardError::Unfinished { left }),
        }
    }
}
