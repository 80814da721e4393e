//! Words from memory to streams and back.

use super::super::fault::BoardProblem;
use super::super::state::{Active, Mark, STREAM_WORDS};
use super::super::{Board, channel_actor};
use super::{DmaMemory, Execution};
use crate::tile::{Direction, Tile};

impl Board<'_> {
    /// Takes the lock, then moves what can be moved.
    pub(in crate::board) fn work(
        &mut self,
        execution: &mut Execution,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardProblem> {
        let actor = channel_actor(tile, direction, number);
        let mut moved = false;
        if execution.mark.is_none() {
            if let Some((tile, lock, value)) = execution.acquire
                && !self.tiles[tile].acquire(lock, value)?
            {
                return Ok(false);
            }
            execution.mark = Some(self.active.begin(actor));
            moved = true;
        }
        let mark = execution.mark.unwrap_or_default();
        match direction {
            Direction::Mm2s => Ok(self.send(execution, mark, actor)? || moved),
            Direction::S2mm => Ok(self.receive(execution, mark, (tile, number))? || moved),
        }
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
        if !execution.holds_arbiters {
            // One after the other, in the order of the way: those that it has stay its own while it waits.
            for arbiter in &route.arbiters {
                if *self.arbiters.entry(*arbiter).or_insert(actor) != actor {
                    return Ok(false);
                }
            }
            execution.holds_arbiters = true;
        }
        let inbox =
            |sink: &(usize, u8, bool)| self.tiles[sink.0].inboxes[usize::from(sink.1)].len();
        let room = route.sinks.iter().map(|sink| STREAM_WORDS - inbox(sink));
        let mut room = room.min().unwrap_or(0);
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
            room -= 1;
        }
        if execution.walk.left == 0 && !execution.suppresses_last {
            for arbiter in &route.arbiters {
                self.arbiters.remove(arbiter);
            }
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
            let offset = execution.walk.next().unwrap_or_default();
            self.write_word(execution.memory, offset, word, mark)?;
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
                self.no_race(other, at)?;
                Ok(value)
            }
            DmaMemory::Ddr(buffer, base) => {
                let at = (base + offset) as usize;
                let buffer = &mut self.ddr[buffer];
                let bytes = buffer.bytes.get(at * 4..at * 4 + 4);
                let bytes = bytes.ok_or_else(|| beyond(at, buffer.bytes.len()))?;
                let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let other = buffer.marks.read(at, mark, &self.active);
                self.no_race(other, at)?;
                Ok(value)
            }
        }
    }

    fn write_word(
        &mut self,
        memory: DmaMemory,
        offset: u64,
        value: u32,
        mark: Mark,
    ) -> Result<(), BoardProblem> {
        let (at, other) = match memory {
            DmaMemory::Tile(tile, base) => {
                let state = &mut self.tiles[tile];
                state.touch();
                let at = (base + offset) as usize;
                let word = state.memory.get_mut(at);
                *word.ok_or_else(|| outside(state.tile, at))? = value;
                (at, state.marks.write(at, mark, &self.active))
            }
            DmaMemory::Ddr(buffer, base) => {
                let at = (base + offset) as usize;
                let buffer = &mut self.ddr[buffer];
                let len = buffer.bytes.len();
                let bytes = buffer.bytes.get_mut(at * 4..at * 4 + 4);
                bytes
                    .ok_or_else(|| beyond(at, len))?
                    .copy_from_slice(&value.to_le_bytes());
                (at, buffer.marks.write(at, mark, &self.active))
            }
        };
        self.no_race(other, at)
    }

    pub(in crate::board) fn no_race(
        &self,
        other: Option<Mark>,
        at: usize,
    ) -> Result<(), BoardProblem> {
        let Some(other) = other else {
            return Ok(());
        };
        let other = self.actor_name(Active::actor(other));
        Err(BoardProblem::Race(format!(
            "{other} touches word {at:#x} as well"
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
