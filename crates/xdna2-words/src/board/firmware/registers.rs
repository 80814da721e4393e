//! Registers as firmware reads and writes them.

use super::super::dma::{QUEUE_DEPTH, Task};
use super::super::fault::BoardProblem;
use super::super::state::{CoreState, TileState};
use super::super::{Board, BoardEvent, core_actor};
use crate::field::{Record, WordField};
use crate::port;
use crate::register::{self, BlockKind, RegisterAt};
use crate::tile::{Direction, Tile, TileKind};

impl Board<'_> {
    /// A register as firmware reads it.
    pub(in crate::board) fn read_register(&mut self, address: u64) -> Result<u32, BoardProblem> {
        let (tile, found) = locate(address)?;
        let is_strict = self.options.strict;
        let state = &mut self.tiles[tile.index()];
        if !is_strict && found.block.kind == BlockKind::DataMemory {
            // Unwritten words are noise, as they are for cores and DMA.
            state.touch();
        }
        let number = found.number as usize;
        let value = match found.block.kind {
            BlockKind::DataMemory => state.memory.get(number).copied(),
            BlockKind::Lock => state.locks[number].map(u32::from),
            BlockKind::Master => state.masters[number],
            BlockKind::Slave => state.slaves[number],
            BlockKind::Slot => state.slots[number],
            BlockKind::Mux => state.mux,
            BlockKind::Demux => state.demux,
            BlockKind::Cascade => state.cascade,
            BlockKind::Control(direction) => state.channels[direction as usize][number].control,
            BlockKind::Status(direction) => {
                let channel = &state.channels[direction as usize][number];
                let tasks = channel.queue.len() as u32;
                Some(u32::from(channel.is_busy()) << 19 | tasks << 20)
            }
            BlockKind::CoreStatus => match state.core {
                CoreState::Unknown => None,
                core => Some(
                    u32::from(core == CoreState::Done) << 20
                        | u32::from(core == CoreState::Running),
                ),
            },
            BlockKind::CoreControl if !is_strict => state.core_control,
            BlockKind::Observer(_) if !is_strict => Some(0),
            _ => return Err(BoardProblem::Undefined("what reading it gives".to_owned())),
        };
        value.ok_or_else(|| BoardProblem::Wrong("it is read and was not set".to_owned()))
    }

    /// Writes a register.
    pub(in crate::board) fn write_register(
        &mut self,
        address: u64,
        value: u32,
    ) -> Result<(), BoardProblem> {
        let (tile, found) = locate(address)?;
        let number = found.number as usize;
        let kind = found.block.kind;
        let record = match found.block.layout {
            Some(layout) if layout.n_words == 1 => Some(Record::read(layout, &[value])?),
            _ => None,
        };
        let get = |field| record.as_ref().map_or(0, |record| record.get(field));
        match kind {
            BlockKind::DataMemory => {
                let state = &mut self.tiles[tile.index()];
                state.touch();
                state.memory[number] = value;
            }
            BlockKind::ProgramMemory => {}
            BlockKind::Descriptor => {
                self.descriptor_is_free(tile, found.number as u8)?;
                let words = &mut self.tiles[tile.index()].descriptors[number];
                words[found.word as usize] = Some(value);
            }
            BlockKind::Control(direction) => {
                let is_reset = get(WordField::Reset) == 1;
                self.control(tile, direction, number as u8, value, is_reset)?;
            }
            BlockKind::Queue(direction) => {
                let task = Task {
                    start: get(WordField::StartDescriptor) as u8,
                    repeats_left: get(WordField::Repeat) as u8,
                    token: get(WordField::Token) == 1,
                };
                self.push(tile, direction, number as u8, task)?;
            }
            BlockKind::Lock => {
                // Others' designs signal a core at work in this way.
                if self.options.strict {
                    self.is_quiet(tile, "a lock is written")?;
                }
                self.tiles[tile.index()].locks[number] = Some(value as u8);
                self.event(|_| BoardEvent::LockSet {
                    tile,
                    lock: number as u8,
                    value: value as u8,
                });
            }
            BlockKind::Master | BlockKind::Slave | BlockKind::Slot => {
                self.write_switch(tile, found, value)?;
            }
            BlockKind::Mux | BlockKind::Demux => {
                let fields = record.iter().flat_map(Record::set_fields);
                self.write_mux(tile, kind, value, fields.collect())?;
            }
            BlockKind::PadValue => self.tiles[tile.index()].pad_values[number] = Some(value),
            BlockKind::CoreControl => self.core_control(
                tile,
                get(WordField::Enable) == 1,
                get(WordField::Reset) == 1,
            )?,
            BlockKind::Cascade => self.tiles[tile.index()].cascade = Some(value),
            BlockKind::Observer(_) if !self.options.strict => {}
            BlockKind::Status(_)
            | BlockKind::Observer(_)
            | BlockKind::CoreStatus
            | BlockKind::LockRequest
            | BlockKind::Other(_) => {
                return Err(BoardProblem::Undefined("what writing it does".to_owned()));
            }
        }
        Ok(())
    }

    /// Writes a multiplexer, whose fields choose between DMA and nothing that is modelled.
    fn write_mux(
        &mut self,
        tile: Tile,
        kind: BlockKind,
        value: u32,
        fields: Vec<(WordField, u64)>,
    ) -> Result<(), BoardProblem> {
        self.switch_is_free(tile)?;
        if let Some((field, value)) = fields.into_iter().find(|field| field.1 > 1) {
            let problem = format!("{} of {value}", field.name());
            return Err(BoardProblem::Undefined(problem));
        }
        let state = &mut self.tiles[tile.index()];
        match kind {
            BlockKind::Mux => state.mux = Some(value),
            _ => state.demux = Some(value),
        }
        self.routes.clear();
        Ok(())
    }

    fn write_switch(
        &mut self,
        tile: Tile,
        register: RegisterAt,
        value: u32,
    ) -> Result<(), BoardProblem> {
        self.switch_is_free(tile)?;
        let number = register.number as usize;
        let strict = self.options.strict;
        let kind = tile.kind();
        let state = &mut self.tiles[tile.index()];
        let enabled = value >> 31 == 1;
        let place = match register.block.kind {
            BlockKind::Master => {
                let master = state
                    .master_port(number)
                    .filter(|&port| port::has_master(tile, port));
                if enabled {
                    check_master(kind, master, value, strict)?;
                }
                &mut state.masters[number]
            }
            BlockKind::Slave => &mut state.slaves[number],
            _ => &mut state.slots[number],
        };
        let is_on = match register.block.kind {
            BlockKind::Slot => value >> 8 & 1 == 1,
            _ => enabled,
        };
        if strict && !is_on && value != 0 {
            let problem = "fields are set of a port that is not enabled".to_owned();
            return Err(BoardProblem::NoEffect(problem));
        }
        *place = Some(value);
        self.routes.clear();
        Ok(())
    }

    /// Refuses changes of a switch that words pass.
    fn switch_is_free(&self, tile: Tile) -> Result<(), BoardProblem> {
        let passes = |state: &TileState| {
            state.channels[Direction::Mm2s as usize]
                .iter()
                .any(|c| c.passes(tile.index(), self.options.strict))
        };
        match self.tiles.iter().find(|state| passes(state)) {
            None => Ok(()),
            Some(state) => Err(BoardProblem::Wrong(format!(
                "the switch is changed while a stream of {} passes it",
                state.tile
            ))),
        }
    }

    /// Refuses changes of state that DMA or a core at work relies on.
    fn is_quiet(&self, tile: Tile, what: &str) -> Result<(), BoardProblem> {
        let state = &self.tiles[tile.index()];
        let busy = state
            .channels
            .iter()
            .flatten()
            .any(|channel| channel.is_busy());
        match busy || state.core == CoreState::Running {
            false => Ok(()),
            true => Err(BoardProblem::Wrong(format!(
                "{what} while the tile is at work"
            ))),
        }
    }

    pub(in crate::board) fn descriptor_is_free(
        &self,
        tile: Tile,
        number: u8,
    ) -> Result<(), BoardProblem> {
        let state = &self.tiles[tile.index()];
        let layout = crate::descriptor::layout(tile.kind());
        let next = |at: u8| {
            let words: Option<Vec<u32>> = state
                .descriptors
                .get(usize::from(at))?
                .iter()
                .copied()
                .collect();
            let record = Record::read(layout, &words?).ok()?;
            record
                .is(WordField::UseNext)
                .then(|| record.get(WordField::Next) as u8)
        };
        let busy = [Direction::S2mm, Direction::Mm2s]
            .into_iter()
            .find_map(|direction| {
                let mut channels = state.channels[direction as usize].iter();
                let found = channels.position(|channel| channel.reaches(number, next))?;
                Some((direction, found))
            });
        match busy {
            None => Ok(()),
            Some((direction, channel)) => Err(BoardProblem::Wrong(format!(
                "it is written while a channel is to execute it: {} {channel} has its task, which is to be awaited first",
                direction.name()
            ))),
        }
    }

    fn control(
        &mut self,
        tile: Tile,
        direction: Direction,
        number: u8,
        value: u32,
        is_reset: bool,
    ) -> Result<(), BoardProblem> {
        let is_strict = self.options.strict;
        if value >> 3 & 1 == 1 {
            if direction == Direction::Mm2s {
                let problem = "out_of_order of a channel that sends";
                return Err(BoardProblem::Undefined(problem.to_owned()));
            }
            // Our own streams never use it.
            if is_strict {
                return Err(BoardProblem::Undefined("receiving out of order".to_owned()));
            }
        }
        let inbox = self.tiles[tile.index()]
            .inboxes
            .get(usize::from(number))
            .map_or(0, |inbox| inbox.len());
        let channel = self.tiles[tile.index()].channel(direction, number);
        if is_reset && (channel.is_amid_block() || direction == Direction::S2mm && inbox > 0) {
            return Err(BoardProblem::Wrong(
                "the channel is reset amid a block".to_owned(),
            ));
        }
        if !is_reset && channel.is_busy() && (is_strict || !channel.allows_control(value)) {
            return Err(BoardProblem::Wrong(
                "the control of a channel at work is written".to_owned(),
            ));
        }
        if is_reset {
            channel.reset();
        }
        channel.in_reset = is_reset;
        channel.control = Some(value);
        Ok(())
    }

    fn push(
        &mut self,
        tile: Tile,
        direction: Direction,
        number: u8,
        task: Task,
    ) -> Result<(), BoardProblem> {
        let channel = self.tiles[tile.index()].channel(direction, number);
        if !channel.is_known {
            return Err(BoardProblem::Wrong("the channel was not reset".to_owned()));
        }
        if channel.in_reset {
            return Err(BoardProblem::Wrong("the channel is in reset".to_owned()));
        }
        if channel.queue.len() >= QUEUE_DEPTH {
            let problem = format!("the queue holds {QUEUE_DEPTH} tasks, a further one is lost");
            return Err(BoardProblem::Wrong(problem));
        }
        channel.queue.push_back(task);
        self.counters.pushes += 1;
        self.event(|board| BoardEvent::Pushed {
            channel: board.event_channel(tile.index(), direction, number),
        });
        let key = (tile.index(), direction, number);
        if !self.busy.contains(&key) {
            self.busy.push(key);
        }
        Ok(())
    }

    fn core_control(&mut self, tile: Tile, enable: bool, reset: bool) -> Result<(), BoardProblem> {
        let at = tile.index();
        let wrong = |problem: &str| Err(BoardProblem::Wrong(problem.to_owned()));
        let core = self.tiles[at].core;
        // Others' designs restart cores from any state.
        let is_strict = self.options.strict;
        let next = match (enable, reset) {
            (true, true) if is_strict => {
                let problem = "a core enabled in reset".to_owned();
                return Err(BoardProblem::Undefined(problem));
            }
            (_, true) if core == CoreState::Running && is_strict => {
                return wrong("the core is reset before its program ended");
            }
            (_, true) => CoreState::Reset,
            (false, false) => match core {
                CoreState::Unknown => return wrong("the core was not reset"),
                CoreState::Running => {
                    return wrong("the core is stopped before its program ended");
                }
                _ => CoreState::Stopped,
            },
            (true, false) => match core {
                CoreState::Reset | CoreState::Stopped => {
                    let Some(program) = self.programs[at].as_mut() else {
                        return wrong("the core is started and has no program");
                    };
                    program.restart();
                    CoreState::Running
                }
                // It holds that already, and goes on: a reset of a core at work has begun it anew.
                CoreState::Running if !is_strict => CoreState::Running,
                CoreState::Done if !is_strict => {
                    let problem = "a core whose program has ended is enabled and was not reset";
                    return Err(BoardProblem::Undefined(problem.to_owned()));
                }
                _ => return wrong("the core is started and was not reset"),
            },
        };
        if core == CoreState::Running && next == CoreState::Reset {
            self.active.end(core_actor(at));
        }
        self.tiles[at].core = next;
        self.tiles[at].core_control = Some(u32::from(enable) | u32::from(reset) << 1);
        Ok(())
    }
}

/// Checks of an enabled master that need only its own word.
fn check_master(
    kind: TileKind,
    master: Option<port::SwitchPort>,
    value: u32,
    strict: bool,
) -> Result<(), BoardProblem> {
    let master =
        master.ok_or_else(|| BoardProblem::Wrong("the array has no such port".to_owned()))?;
    let record = Record::read(&register::MASTER, &[value])?;
    let configuration = record.get(WordField::Configuration);
    if record.is(WordField::Packet) {
        return match configuration >> 3 {
            0 => Err(BoardProblem::NoEffect(
                "no selection of an arbiter is taken".to_owned(),
            )),
            _ => Ok(()),
        };
    }
    if strict && record.is(WordField::DropHeader) {
        return Err(BoardProblem::NoEffect(
            "a circuit has no headers to drop".to_owned(),
        ));
    }
    let slave = port::at(port::slaves(kind), configuration as u8);
    match slave {
        Some(slave) if port::is_legal(kind, slave, master) => Ok(()),
        Some(slave) => Err(BoardProblem::Wrong(format!(
            "{slave} cannot be joined to {master}"
        ))),
        None => Err(BoardProblem::Wrong(format!(
            "there is no slave {configuration}"
        ))),
    }
}

pub(in crate::board) fn locate(address: u64) -> Result<(Tile, RegisterAt), BoardProblem> {
    let found = u32::try_from(address).ok().and_then(Tile::of_address);
    let found = found.and_then(|(tile, offset)| Some((tile, register::find(tile.kind(), offset)?)));
    found.ok_or_else(|| BoardProblem::Undefined(format!("a register at {address:#010x}")))
}
