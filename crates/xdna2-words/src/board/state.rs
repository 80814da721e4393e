//! State of a tile.

use super::control::ControlPort;
use super::dma::DmaChannel;
use super::fault::BoardProblem;
use crate::port::{self, SwitchPort};
use crate::tile::{Direction, Tile, TileKind};
use std::collections::VecDeque;

/// Words that a stream holds on its way from a source to a sink, for any way between. Measured for packets from a shim
/// to a core (mlir-aie `docs/DeadlockModel.md`), assumed for circuits.
pub(super) const STREAM_WORDS: usize = 8;

/// Marks of the last actor that touched a word.
pub(super) type Mark = u32;

/// A memory with marks.
#[derive(Default)]
pub(super) struct Marks {
    writers: Vec<Mark>,
    readers: Vec<Mark>,
}

impl Marks {
    pub(super) fn new(n: usize) -> Marks {
        Marks {
            writers: vec![0; n],
            readers: vec![0; n],
        }
    }

    /// Marks a read; returns the actor that is writing the word at the same time.
    pub(super) fn read(&mut self, at: usize, mark: Mark, active: &Active) -> Option<Mark> {
        self.readers[at] = mark;
        let writer = self.writers[at];
        (writer != mark && active.is(writer)).then_some(writer)
    }

    /// Marks a write; returns the actor that is writing the word at the same time. It ignores an earlier reader: if
    /// that could also come later, it meets the writer in an order in which it is slow.
    pub(super) fn write_behind(&mut self, at: usize, mark: Mark, active: &Active) -> Option<Mark> {
        let writer = std::mem::replace(&mut self.writers[at], mark);
        (writer != mark && active.is(writer)).then_some(writer)
    }

    /// Marks a write; returns the actor that is reading or writing the word at the same time.
    pub(super) fn write(&mut self, at: usize, mark: Mark, active: &Active) -> Option<Mark> {
        let others = [self.writers[at], self.readers[at]];
        self.writers[at] = mark;
        others
            .into_iter()
            .find(|&other| other != mark && active.is(other))
    }
}

/// Who is at work: each actor's current mark, which changes with each of its executions.
pub(super) struct Active {
    current: Vec<Mark>,
    next: Mark,
}

/// Actors that marks can distinguish.
const ACTORS: u32 = 1024;

impl Active {
    pub(super) fn new() -> Active {
        Active {
            current: vec![0; ACTORS as usize],
            next: 1,
        }
    }

    pub(super) fn is(&self, mark: Mark) -> bool {
        mark != 0 && self.current[(mark % ACTORS) as usize] == mark
    }

    /// Begins a new execution of an actor, which is done with all words that it touched before.
    pub(super) fn begin(&mut self, actor: usize) -> Mark {
        let n = (u32::MAX / ACTORS) - 1;
        let mark = self.next * ACTORS + actor as u32;
        self.next = self.next % n + 1;
        self.current[actor] = mark;
        mark
    }

    /// The actor's current mark; 0 for none.
    pub(super) fn of(&self, actor: usize) -> Mark {
        self.current[actor]
    }

    pub(super) fn end(&mut self, actor: usize) {
        self.current[actor] = 0;
    }

    /// The actor of a mark.
    pub(super) fn actor(mark: Mark) -> usize {
        (mark % ACTORS) as usize
    }
}

/// Content of a tile's memory that nothing has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsetMemory {
    /// Noise from the seed, different in each order: dependence on it shows.
    #[default]
    Noise,
    /// Zeros.
    Zeros,
}

/// A tile's registers and memory. `None` marks state that no operation of this stream has set: earlier content is void.
pub(super) struct TileState {
    pub(super) tile: Tile,
    /// Made when first touched.
    pub(super) memory: Vec<u32>,
    noise: u64,
    unset: UnsetMemory,
    pub(super) marks: Marks,
    pub(super) descriptors: Vec<Vec<Option<u32>>>,
    pub(super) locks: Vec<Option<u8>>,
    pub(super) channels: [Vec<DmaChannel>; 2],
    /// Words that have arrived at each S2MM channel.
    pub(super) inboxes: Vec<VecDeque<u32>>,
    /// Words that each S2MM channel has taken so far.
    pub(super) taken: Vec<u64>,
    pub(super) masters: Vec<Option<u32>>,
    pub(super) slaves: Vec<Option<u32>>,
    pub(super) slots: Vec<Option<u32>>,
    pub(super) mux: Option<u32>,
    pub(super) demux: Option<u32>,
    pub(super) pad_values: Vec<Option<u32>>,
    pub(super) cascade: Option<u32>,
    /// The value that came by the cascade and was not taken yet.
    pub(super) cascade_inbox: Option<CascadeValue>,
    pub(super) core: CoreState,
    pub(super) control_port: ControlPort,
    /// The core's control as it reads: a program that ends clears its enable bit.
    pub(super) core_control: Option<u32>,
}

/// Width of the cascade: it moves 512 bits at once.
pub(super) type CascadeValue = [u32; 16];

/// A core's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoreState {
    /// Nobody has said.
    Unknown,
    /// Held in reset.
    Reset,
    /// Neither.
    Stopped,
    /// Running its program.
    Running,
    /// Its program has ended.
    Done,
}

impl TileState {
    /// A tile in an unknown state, its memory full of noise from a seed, or of zeros.
    pub(super) fn new(tile: Tile, noise: u64, unset: UnsetMemory) -> TileState {
        let kind = tile.kind();
        let channels = usize::from(kind.channels());
        let unknown = |n: u8| vec![None; usize::from(n)];
        let masters = port::count(port::masters(kind));
        let slaves = port::count(port::slaves(kind));
        // A shim's channels have no reset, so a stream can rely on their being drained alone.
        let is_shim = kind == TileKind::Shim;
        let new = |_| DmaChannel::new(is_shim);
        TileState {
            tile,
            memory: Vec::new(),
            noise,
            unset,
            marks: Marks::new(0),
            descriptors: vec![
                vec![None; crate::descriptor::layout(kind).n_words];
                usize::from(kind.descriptors())
            ],
            locks: unknown(kind.locks())
                .iter()
                .map(|_: &Option<u32>| None)
                .collect(),
            channels: [0, 1].map(|_| (0..channels).map(new).collect()),
            inboxes: vec![VecDeque::with_capacity(STREAM_WORDS); channels],
            taken: vec![0; channels],
            masters: unknown(masters),
            slaves: unknown(slaves),
            slots: unknown(slaves * 4),
            mux: None,
            demux: None,
            pad_values: unknown(if kind == TileKind::Memory { 6 } else { 0 }),
            cascade: None,
            cascade_inbox: None,
            core: CoreState::Unknown,
            control_port: ControlPort::default(),
            core_control: None,
        }
    }

    /// The memory and its marks are there from here on. Noise is not-a-number in either half of a word.
    pub(super) fn touch(&mut self) {
        if self.memory.is_empty() {
            let n_words = self.tile.kind().data_bytes() as usize / 4;
            let mut order = super::TurnOrder(self.noise | 1);
            self.memory = match self.unset {
                UnsetMemory::Zeros => vec![0; n_words],
                UnsetMemory::Noise => (0..n_words)
                    .map(|_| order.next() as u32 | 0x7FC0_7FC0)
                    .collect(),
            };
            self.marks = Marks::new(n_words);
        }
    }

    /// Restores another board's content of the memory; nothing changes if that was noise.
    pub(super) fn restore(&mut self, memory: Vec<u32>) {
        if !memory.is_empty() {
            self.marks = Marks::new(memory.len());
            self.memory = memory;
        }
    }

    pub(super) fn channel(&mut self, direction: Direction, number: u8) -> &mut DmaChannel {
        &mut self.channels[direction as usize][usize::from(number)]
    }

    /// The port that a number of its masters is.
    pub(super) fn master_port(&self, number: usize) -> Option<SwitchPort> {
        port::at(port::masters(self.tile.kind()), u8::try_from(number).ok()?)
    }

    /// The port that a number of its slaves is.
    pub(super) fn slave_port(&self, number: usize) -> Option<SwitchPort> {
        port::at(port::slaves(self.tile.kind()), u8::try_from(number).ok()?)
    }

    /// Tries to take that much of a lock.
    pub(super) fn acquire(&mut self, lock: u8, amount: i32) -> Result<bool, BoardProblem> {
        let held = self.lock(lock)?;
        let left = i32::from(*held) - amount;
        if left < 0 {
            return Ok(false);
        }
        *held = left as u8;
        Ok(true)
    }

    /// Adds to a lock.
    pub(super) fn release(&mut self, lock: u8, value: i32) -> Result<(), BoardProblem> {
        let tile = self.tile;
        let held = self.lock(lock)?;
        let sum = i32::from(*held) + value;
        *held = u8::try_from(sum)
            .ok()
            .filter(|&sum| sum < 64)
            .ok_or_else(|| {
                BoardProblem::Wrong(format!(
                    "lock {lock} of {tile} would be {sum}; it holds 0 to 63"
                ))
            })?;
        Ok(())
    }

    pub(super) fn lock(&mut self, lock: u8) -> Result<&mut u8, BoardProblem> {
        let tile = self.tile;
        let held = self
            .locks
            .get_mut(usize::from(lock))
            .ok_or_else(|| BoardProblem::Wrong(format!("{tile} has no lock {lock}")))?;
        held.as_mut().ok_or_else(|| {
            BoardProblem::Wrong(format!("lock {lock} of {tile} is used and was not set"))
        })
    }
}
