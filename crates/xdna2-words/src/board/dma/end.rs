//! The end of an execution: locks, iterations, tokens; and the causes of a channel's waits.

use super::super::fault::BoardProblem;
use super::super::route::Entry;
use super::super::state::STREAM_WORDS;
use super::super::{Board, BoardActor, BoardEvent, channel_actor};
use super::Execution;
use crate::descriptor;
use crate::field::{Record, WordField};
use crate::port;
use crate::tile::Direction;

impl Board<'_> {
    /// Ends an execution: lock, iteration, next descriptor. Returns the next descriptor of the chain.
    pub(in crate::board) fn finish(
        &mut self,
        execution: &Execution,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<Option<u8>, BoardProblem> {
        self.active.end(channel_actor(tile, direction, number));
        self.counters.executions += 1;
        self.counters.words += execution.n_words;
        if let Some((tile, lock, value)) = execution.release {
            self.tiles[tile].release(lock, value)?;
        }
        self.ended(execution, tile, direction, number);
        self.iterate(tile, execution.number)?;
        if execution.next.is_some() {
            return Ok(execution.next);
        }
        let channel = self.tiles[tile].channel(direction, number);
        let Some(task) = channel.queue.front_mut() else {
            return Ok(None);
        };
        if task.repeats_left > 0 {
            task.repeats_left -= 1;
            return Ok(None);
        }
        let (is_awaited, control) = (task.token, channel.control);
        channel.queue.pop_front();
        if is_awaited {
            self.send_token(tile, direction, number, control)?;
        }
        Ok(None)
    }

    /// Tells that a descriptor is done with.
    fn ended(&mut self, execution: &Execution, tile: usize, direction: Direction, number: u8) {
        if let Some((at, lock, value)) = execution.release {
            self.event(|board| BoardEvent::Released {
                actor: BoardActor::Channel(board.event_channel(tile, direction, number)),
                tile: board.tiles[at].tile,
                lock,
                amount: value.unsigned_abs() as u8,
            });
        }
        self.event(|board| {
            let channel = &board.tiles[tile].channels[direction as usize][usize::from(number)];
            let task = channel.queue.front().filter(|_| execution.next.is_none());
            let task = task.filter(|task| task.repeats_left == 0);
            BoardEvent::Ended {
                channel: board.event_channel(tile, direction, number),
                is_last: task.is_some(),
                has_token: task.is_some_and(|task| task.token),
            }
        });
    }

    /// Steps a descriptor's iteration: the next execution begins a step further on.
    fn iterate(&mut self, tile: usize, number: u8) -> Result<(), BoardProblem> {
        let kind = self.tiles[tile].tile.kind();
        let words = &mut self.tiles[tile].descriptors[usize::from(number)];
        let whole: Vec<u32> = words.iter().map(|word| word.unwrap_or(0)).collect();
        let mut record = Record::read(descriptor::layout(kind), &whole)?;
        let last = record.get(WordField::IterationWrap);
        if last == 0 {
            return Ok(());
        }
        let current = record.get(WordField::IterationCurrent);
        record.set(
            WordField::IterationCurrent,
            if current >= last { 0 } else { current + 1 },
        )?;
        for (word, value) in words.iter_mut().zip(record.words()) {
            *word = Some(value);
        }
        Ok(())
    }

    fn send_token(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
        control: Option<u32>,
    ) -> Result<(), BoardProblem> {
        let at = self.tiles[tile].tile;
        let control = control.ok_or_else(|| {
            BoardProblem::Wrong("a token is sent, and the channel's control was not set".to_owned())
        })?;
        let slave = port::number(
            port::slaves(at.kind()),
            port::port(port::Bundle::TileControl, 0),
        );
        let entry: Entry = (tile, slave.unwrap_or(0), Some((control >> 8 & 31) as u8));
        let route = self.route(entry)?;
        if !route.to_firmware || !route.sinks.is_empty() || !route.controls.is_empty() {
            return Err(BoardProblem::Wrong(
                "the token does not reach the firmware".to_owned(),
            ));
        }
        *self.tokens.entry((tile, direction, number)).or_default() += 1;
        self.counters.tokens += 1;
        Ok(())
    }

    /// Why a channel waits, if it has work.
    pub(in crate::board) fn channel_waiting(
        &self,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Option<String> {
        let state = &self.tiles[tile];
        let channel = &state.channels[direction as usize][usize::from(number)];
        let task = channel.queue.front()?;
        let who = format!("{} {} {number}", state.tile, direction.name());
        let Some(execution) = &channel.execution else {
            if channel.is_out_of_order() {
                let left = u32::from(task.repeats_left) + 1;
                return Some(format!(
                    "{who} waits for {left} packets whose headers name their descriptors"
                ));
            }
            return Some(format!("{who} has descriptor {} before it", task.start));
        };
        let who = format!("{who}, descriptor {}", execution.number);
        if let (None, Some((tile, lock, value))) = (execution.mark, execution.acquire) {
            let held = self.tiles[tile].locks[usize::from(lock)].unwrap_or(0);
            let at = self.tiles[tile].tile;
            return Some(match value {
                ..0 => format!(
                    "{who} waits for {} of lock {lock} of {at}, which is {held}",
                    -value
                ),
                _ => format!("{who} waits for lock {lock} of {at} to be {value}, and it is {held}"),
            });
        }
        let (left, all) = (execution.walk.left, execution.n_words);
        let done = all - left;
        if direction == Direction::S2mm {
            return Some(format!("{who} waits for words ({done} of {all} came)"));
        }
        let full = execution.route.iter().flat_map(|route| &route.sinks);
        let full = full.filter(|s| self.tiles[s.0].inboxes[usize::from(s.1)].len() == STREAM_WORDS);
        let names: Vec<String> = full
            .map(|s| format!("{} S2MM {}", self.tiles[s.0].tile, s.1))
            .collect();
        Some(match names.is_empty() {
            true => format!("{who} waits for an arbiter ({done} of {all} words sent)"),
            false => format!(
                "{who} waits for room at {} ({done} of {all} words sent)",
                names.join(", ")
            ),
        })
    }
}
