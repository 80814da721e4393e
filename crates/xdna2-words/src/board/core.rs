//! The board as a core's program sees it, and the program's actions.

use super::fault::{BoardError, BoardProblem, RacedWord};
use super::state::CoreState;
use super::{Board, BoardActor, BoardEvent, core_actor};
use crate::tile::{Tile, TileKind};

/// A core's program. It stands in for the code in program memory, which words here cannot express: a board is given
/// programs from outside, and the stream starts them.
pub trait CoreProgram {
    /// Does one thing, or says why it waits.
    ///
    /// # Errors
    /// A description of the fault.
    fn step(&mut self, core: &mut CoreView<'_, '_>) -> Result<CoreStep, String>;

    /// Goes back to its beginning, as a reset does.
    fn restart(&mut self);
}

/// How a step of a core went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreStep {
    /// It did something.
    Ran,
    /// It turned in a loop that no one else can see: it may come to its end, and nothing waits for it meanwhile.
    Turned,
    /// It cannot go on yet.
    Waits(String),
    /// Its program has ended.
    Done,
}

/// The board as a core reaches it. Memories are, by address: 0x40000 its southern neighbour's, 0x50000
/// the western one's, 0x60000 the northern one's, 0x70000 its own. Locks are numbered likewise: 0 to
/// 15, 16 to 31, 32 to 47, 48 to 63.
pub struct CoreView<'a, 'p> {
    board: &'a mut Board<'p>,
    tile: usize,
}

/// Bytes of a window.
const WINDOW_BYTES: u32 = 0x10000;

impl CoreView<'_, '_> {
    /// Where the core is.
    pub fn tile(&self) -> Tile {
        self.board.tiles[self.tile].tile
    }

    fn side(&self, side: u32) -> Result<usize, String> {
        let own = self.tile();
        let (east, north) = match side {
            0 => (0, -1),
            1 => (-1, 0),
            2 => (0, 1),
            _ => (0, 0),
        };
        let tile = own
            .neighbour(east, north)
            .filter(|t| t.kind() == TileKind::Core);
        let name = ["south", "west", "north"]
            .get(side as usize)
            .unwrap_or(&"own");
        tile.map(Tile::index)
            .ok_or_else(|| format!("{own} has no core to its {name}"))
    }

    /// Takes a lock as soon as it holds that much; `false` if it does not.
    ///
    /// # Errors
    /// No such lock, or one that was not set.
    pub fn acquire(&mut self, lock: u8, amount: u8) -> Result<bool, String> {
        self.take(lock, amount, -i32::from(amount))
    }

    /// Takes a lock as soon as it holds just that much; `false` if it does not.
    ///
    /// # Errors
    /// As [`acquire`](CoreView::acquire); a board that [refuses](super::EqualAcquire::Refused) such acquires.
    pub fn acquire_equal(&mut self, lock: u8, amount: u8) -> Result<bool, String> {
        self.take(lock, amount, i32::from(amount))
    }

    fn take(&mut self, lock: u8, amount: u8, value: i32) -> Result<bool, String> {
        let tile = self.side(u32::from(lock / 16))?;
        let taken = self.board.acquire(tile, lock % 16, value);
        let taken = taken.map_err(|problem| problem.to_string())?;
        if taken {
            let core = BoardActor::Core(self.tile());
            self.board.event(|board| BoardEvent::Acquired {
                actor: core,
                tile: board.tiles[tile].tile,
                lock: lock % 16,
                amount,
            });
        }
        Ok(taken)
    }

    /// Adds to a lock. The core is done with all words that it touched before.
    ///
    /// # Errors
    /// No such lock, one that was not set, or a value beyond 63.
    pub fn release(&mut self, lock: u8, amount: u8) -> Result<(), String> {
        let tile = self.side(u32::from(lock / 16))?;
        self.board.active.begin(core_actor(self.tile));
        let given = self.board.tiles[tile].release(lock % 16, i32::from(amount));
        given.map_err(|problem| problem.to_string())?;
        let core = BoardActor::Core(self.tile());
        self.board.event(|board| BoardEvent::Released {
            actor: core,
            tile: board.tiles[tile].tile,
            lock: lock % 16,
            amount,
        });
        Ok(())
    }

    /// Reports the clock cycles of the program since its last report. The board has no clock: only [events](BoardEvent)
    /// show them.
    pub fn spend(&mut self, cycles: u64) {
        let core = self.tile();
        if cycles > 0 {
            self.board.event(|_| BoardEvent::Computed { core, cycles });
        }
    }

    /// The words of a memory from an address on.
    ///
    /// # Errors
    /// They are in no memory, or another actor writes them at the same time.
    pub fn read(&mut self, address: u32, to: &mut [u32]) -> Result<(), CoreProblem> {
        let (tile, first) = self.locate(address, to.len())?;
        let mark = self.mark();
        let board = &mut *self.board;
        let state = &mut board.tiles[tile];
        to.copy_from_slice(&state.memory[first..first + to.len()]);
        for at in first..first + to.len() {
            let state = &mut board.tiles[tile];
            let other = state.marks.read(at, mark, &board.active);
            let word = RacedWord::Tile(state.tile, at as u32);
            board.no_race(other, word).map_err(CoreProblem)?;
        }
        Ok(())
    }

    /// Writes words to a memory.
    ///
    /// # Errors
    /// As [`read`](CoreView::read).
    pub fn write(&mut self, address: u32, words: &[u32]) -> Result<(), CoreProblem> {
        let (tile, first) = self.locate(address, words.len())?;
        let mark = self.mark();
        let board = &mut *self.board;
        board.tiles[tile].memory[first..first + words.len()].copy_from_slice(words);
        for at in first..first + words.len() {
            let state = &mut board.tiles[tile];
            let other = state.marks.write(at, mark, &board.active);
            let word = RacedWord::Tile(state.tile, at as u32);
            board.no_race(other, word).map_err(CoreProblem)?;
        }
        Ok(())
    }

    /// Sends 512 bits down the cascade; `false` where the last ones were not taken yet.
    ///
    /// # Errors
    /// The cascade leads to no core that listens to this one.
    pub fn cascade_send(&mut self, value: &[u32; 16]) -> Result<bool, String> {
        let own = self.tile();
        let set = |tile: Tile, of: Option<u32>| {
            of.ok_or_else(|| format!("the cascade of {tile} was not set"))
        };
        let is_east = set(own, self.board.tiles[self.tile].cascade)? >> 1 & 1;
        let (east, north) = if is_east == 1 { (1, 0) } else { (0, -1) };
        let to = own
            .neighbour(east, north)
            .filter(|t| t.kind() == TileKind::Core);
        let to = to.ok_or_else(|| format!("the cascade of {own} leads to no core"))?;
        let state = &mut self.board.tiles[to.index()];
        if set(to, state.cascade)? & 1 != is_east {
            return Err(format!(
                "the cascade of {own} leads to {to}, which takes another's"
            ));
        }
        match state.cascade_inbox {
            Some(_) => Ok(false),
            None => {
                state.cascade_inbox = Some(*value);
                let sent = BoardEvent::CascadeSent { core: own, to };
                self.board.event(|_| sent);
                Ok(true)
            }
        }
    }

    /// Takes 512 bits from the cascade, if there are any.
    pub fn cascade_receive(&mut self) -> Option<[u32; 16]> {
        let value = self.board.tiles[self.tile].cascade_inbox.take();
        if value.is_some() {
            let core = self.tile();
            self.board.event(|_| BoardEvent::CascadeReceived { core });
        }
        value
    }

    fn locate(&mut self, address: u32, n_words: usize) -> Result<(usize, usize), CoreProblem> {
        let wrong = |problem: String| CoreProblem(BoardProblem::Wrong(problem));
        let window = address / WINDOW_BYTES;
        if !(4..8).contains(&window) || !address.is_multiple_of(4) {
            return Err(wrong(format!(
                "address {address:#x} is no word of a core's memories"
            )));
        }
        let tile = self.side(window - 4).map_err(wrong)?;
        let first = (address % WINDOW_BYTES / 4) as usize;
        self.board.tiles[tile].touch();
        if first + n_words > self.board.tiles[tile].memory.len() {
            return Err(wrong(format!(
                "{n_words} words from {address:#x} leave the memory"
            )));
        }
        Ok((tile, first))
    }

    fn mark(&mut self) -> u32 {
        let actor = core_actor(self.tile);
        match self.board.active.of(actor) {
            0 => self.board.active.begin(actor),
            mark => mark,
        }
    }
}

/// Why a core could not touch a memory.
#[derive(Debug)]
pub struct CoreProblem(BoardProblem);

impl std::fmt::Display for CoreProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<CoreProblem> for String {
    fn from(problems: CoreProblem) -> String {
        problems.0.to_string()
    }
}

impl Board<'_> {
    /// Begins the next stream with the tile memories of another board: loading a configuration sets registers anew, and
    /// leaves memories.
    pub fn keep_memories_of(&mut self, other: &Board<'_>) {
        self.carried = other
            .tiles
            .iter()
            .map(|state| state.memory.clone())
            .collect();
    }

    /// Lets a core do as much as it can.
    pub(super) fn step_core(&mut self, tile: usize) -> Result<bool, BoardError> {
        if self.tiles[tile].core != CoreState::Running {
            return Ok(false);
        }
        let place = self.tiles[tile].tile.to_string();
        let Some(mut program) = self.programs[tile].take() else {
            return Ok(false);
        };
        let step = program.step(&mut CoreView { board: self, tile });
        self.programs[tile] = Some(program);
        match step {
            Ok(CoreStep::Ran) => Ok(true),
            Ok(CoreStep::Turned) => {
                self.n_turned += 1;
                "turns in a loop".clone_into(&mut self.core_waits[tile]);
                Ok(true)
            }
            Ok(CoreStep::Waits(what)) => {
                self.core_waits[tile] = what;
                Ok(false)
            }
            Ok(CoreStep::Done) => {
                self.tiles[tile].core = CoreState::Done;
                self.tiles[tile].core_control = Some(0);
                self.active.end(core_actor(tile));
                Ok(true)
            }
            Err(problem) => {
                let actor = BoardActor::Core(self.tiles[tile].tile);
                Err(BoardError::of_core(actor, place, problem))
            }
        }
    }
}
