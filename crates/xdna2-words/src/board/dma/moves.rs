//! Words from memory to streams and back.

use super::super::fault::{BoardProblem, RacedWord};
use super::super::state::{Active, Mark, STREAM_WORDS};
use super::super::{Board, BoardActor, BoardEvent, channel_actor};
use super::locate::nowhere;
use super::{DmaMemory, Execution};
use crate::tile::{Direction, Tile, TileKind};

impl Board<'_> {
    /// Takes the lock, if there is one and it is not taken yet; returns whether the descriptor begins with that.
    pub(in crate::board) fn take_lock(
        &mut self,
        execution: &mut Execution,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardProblem> {
        if execution.mark.is_some() {
            return Ok(false);
        }
        if let Some((tile, lock, value)) = execution.acquire
            && !self.acquire(tile, lock, value)?
        {
            return Ok(false);
        }
        let mark = self.active.begin(channel_actor(tile, direction, number));
        execution.mark = Some(mark);
        if direction == Direction::Mm2s && !self.options.strict {
            let at = self.tiles[tile].tile;
            let may_forward = at.kind() != TileKind::Shim && execution.packet.is_none();
            if may_forward && self.takes_packets(at, number) {
                self.take_header(execution, mark)?;
            }
            let route = self.route_of_channel(at, number, execution.packet)?;
            self.fits_receivers(execution, &route)?;
            execution.route = Some(route);
        }
        self.began(execution, tile, direction, number);
        Ok(true)
    }

    /// Takes the header of a descriptor without a packet whose words enter a switch that takes packets. The header is
    /// the first word, like one that a receiver kept and sends on.
    fn take_header(&mut self, execution: &mut Execution, mark: Mark) -> Result<(), BoardProblem> {
        if execution.walk.left < 2 {
            let problem = "a packet that is a header alone".to_owned();
            return Err(BoardProblem::Undefined(problem));
        }
        let Some(offset) = execution.walk.next() else {
            let problem = "padding stands where the switch takes a header".to_owned();
            return Err(BoardProblem::Wrong(problem));
        };
        let word = self.read_word(execution.memory, offset, mark)?;
        execution.packet = Some((word & 31) as u8);
        execution.header = Some(word);
        Ok(())
    }

    /// Takes the lock, then moves as many words as it can.
    pub(in crate::board) fn work(
        &mut self,
        execution: &mut Execution,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardProblem> {
        let actor = channel_actor(tile, direction, number);
        let moved = self.take_lock(execution, tile, direction, number)?;
        let Some(mark) = execution.mark else {
            return Ok(false);
        };
        let left = execution.walk.left;
        let went = match direction {
            Direction::Mm2s => self.send(execution, mark, actor)?,
            Direction::S2mm => self.receive(execution, mark, (tile, number))?,
        };
        let n_words = (left - execution.walk.left) as usize;
        if n_words > 0 {
            self.event(|board| {
                let channel = board.event_channel(tile, direction, number);
                match direction {
                    Direction::Mm2s => BoardEvent::Sent { channel, n_words },
                    Direction::S2mm => BoardEvent::Received { channel, n_words },
                }
            });
        }
        Ok(went || moved)
    }

    /// Reports that a channel has its lock, and begins.
    fn began(&mut self, execution: &Execution, tile: usize, direction: Direction, number: u8) {
        if let Some((at, lock, value)) = execution.acquire {
            self.event(|board| BoardEvent::Acquired {
                actor: BoardActor::Channel(board.event_channel(tile, direction, number)),
                tile: board.tiles[at].tile,
                lock,
                amount: value.unsigned_abs() as u8,
            });
        }
        self.event(|board| {
            let route = execution.route.as_deref();
            let sinks = route.map_or(&[][..], |route| &route.sinks);
            let sink = |s: &(usize, u8, bool)| board.event_channel(s.0, Direction::S2mm, s.1);
            BoardEvent::Began {
                channel: board.event_channel(tile, direction, number),
                descriptor: execution.number,
                sinks: sinks.iter().map(sink).collect(),
                n_switches: route.map_or(0, |route| route.tiles.len()),
            }
        });
    }

    fn send(
        &mut self,
        execution: &mut Execution,
        mark: Mark,
        actor: usize,
    ) -> Result<bool, BoardProblem> {
        let Some(route) = execution.route.clone() else {
            return Ok(false);
        };
        if execution.arbiters_held < route.arbiters.len() {
            return Ok(self.take_arbiter(&route, actor, &mut execution.arbiters_held));
        }
        let inbox =
            |sink: &(usize, u8, bool)| self.tiles[sink.0].inboxes[usize::from(sink.1)].len();
        let room = route.sinks.iter().map(|sink| STREAM_WORDS - inbox(sink));
        // A control port takes every word.
        let controls = (!route.controls.is_empty()).then_some(STREAM_WORDS);
        let mut room = room.chain(controls).min().unwrap_or(0);
        let before = room;
        if let (Some(header), true) = (execution.header, room > 0) {
            let word = header;
            for &(tile, channel, _) in route.sinks.iter().filter(|sink| sink.2) {
                self.tiles[tile].inboxes[usize::from(channel)].push_back(word);
            }
            execution.header = None;
            room -= 1;
        }
        while room > 0 && execution.walk.left > 0 {
            let word = match execution.walk.next() {
                Some(offset) => self.read_word(execution.memory, offset, mark)?,
                None => execution.pad_value,
            };
            for &(tile, channel, _) in &route.sinks {
                self.tiles[tile].inboxes[usize::from(channel)].push_back(word);
            }
            for &tile in &route.controls {
                self.take_control(tile, word)?;
            }
            room -= 1;
        }
        if execution.walk.left == 0 && !execution.suppresses_last {
            self.leave_arbiters(&route);
        }
        Ok(room < before)
    }

    fn receive(
        &mut self,
        execution: &mut Execution,
        mark: Mark,
        (tile, number): (usize, u8),
    ) -> Result<bool, BoardProblem> {
        let mut moved = false;
        while execution.walk.left > 0 {
            let Some(word) = self.tiles[tile].inboxes[usize::from(number)].pop_front() else {
                break;
            };
            moved = true;
            self.tiles[tile].taken[usize::from(number)] += 1;
            let offset = execution.walk.next().unwrap_or_default();
            self.write_word(execution.memory, offset, word, mark)?;
        }
        if moved {
            self.free_arbiters(tile, number);
        }
        Ok(moved)
    }

    fn read_word(
        &mut self,
        memory: DmaMemory,
        offset: u64,
        mark: Mark,
    ) -> Result<u32, BoardProblem> {
        match memory {
            DmaMemory::Tile(tile, base) => {
                let state = &mut self.tiles[tile];
                state.touch();
                let at = (base + offset) as usize;
                let value = *state
                    .memory
                    .get(at)
                    .ok_or_else(|| outside(state.tile, at))?;
                let other = state.marks.read(at, mark, &self.active);
                let word = RacedWord::Tile(state.tile, at as u32);
                self.no_race(other, word)?;
                Ok(value)
            }
            DmaMemory::Ddr(argument, base) => {
                let at = (base + offset) as usize;
                let buffer = &mut self.ddr[argument];
                let bytes = buffer.bytes.get(at * 4..at * 4 + 4);
                let bytes = bytes.ok_or_else(|| beyond(at, buffer.bytes.len()))?;
                let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let other = buffer.marks.read(at, mark, &self.active);
                self.no_race(other, RacedWord::Argument(argument, at as u64))?;
                Ok(value)
            }
            DmaMemory::Nowhere(address) => Err(nowhere(address)),
        }
    }

    fn write_word(
        &mut self,
        memory: DmaMemory,
        offset: u64,
        value: u32,
        mark: Mark,
    ) -> Result<(), BoardProblem> {
        let (word, other) = match memory {
            DmaMemory::Tile(tile, base) => {
                let state = &mut self.tiles[tile];
                state.touch();
                let at = (base + offset) as usize;
                let word = state.memory.get_mut(at);
                *word.ok_or_else(|| outside(state.tile, at))? = value;
                let word = RacedWord::Tile(state.tile, at as u32);
                (word, state.marks.write(at, mark, &self.active))
            }
            DmaMemory::Ddr(argument, base) => {
                let at = (base + offset) as usize;
                let buffer = &mut self.ddr[argument];
                let len = buffer.bytes.len();
                let bytes = buffer.bytes.get_mut(at * 4..at * 4 + 4);
                bytes
                    .ok_or_else(|| beyond(at, len))?
                    .copy_from_slice(&value.to_le_bytes());
                let other = match self.options.strict {
                    true => buffer.marks.write(at, mark, &self.active),
                    // Others' designs compute in place: a stream's end may be where its beginning was read.
                    false => buffer.marks.write_behind(at, mark, &self.active),
                };
                (RacedWord::Argument(argument, at as u64), other)
            }
            DmaMemory::Nowhere(address) => return Err(nowhere(address)),
        };
        self.no_race(other, word)
    }

    /// Refuses a word that another actor touches at the same time.
    pub(in crate::board) fn no_race(
        &self,
        other: Option<Mark>,
        word: RacedWord,
    ) -> Result<(), BoardProblem> {
        let Some(other) = other else {
            return Ok(());
        };
        self.raced.set(Some(word));
        let other = self.actor_name(Active::actor(other));
        Err(BoardProblem::Race(format!(
            "{other} touches {word} as well"
        )))
    }
}

fn outside(tile: Tile, at: usize) -> BoardProblem {
    BoardProblem::Wrong(format!("word {at:#x} is outside of the memory of {tile}"))
}

fn beyond(at: usize, n_bytes: usize) -> BoardProblem {
    BoardProblem::Wrong(format!(
        "byte {} is outside of its argument of {n_bytes} bytes",
        at * 4
    ))
}
