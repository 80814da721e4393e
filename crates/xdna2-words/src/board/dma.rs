//! DMA channels at work.

use super::fault::{BoardError, BoardProblem};
use super::route::{Entry, Route};
use super::state::{Active, Mark, STREAM_WORDS};
use super::walk::Walk;
use super::{Board, channel_actor};
use crate::descriptor;
use crate::field::{Record, WordField};
use crate::port;
use crate::tile::{Direction, Tile, TileKind};
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

/// What a push asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) start: u8,
    /// Executions of the chain after this one.
    pub(super) repeats_left: u8,
    pub(super) token: bool,
}

/// A descriptor at work.
#[derive(Debug)]
struct Execution {
    number: u8,
    walk: Walk,
    memory: DmaMemory,
    acquire: Option<(usize, u8, i32)>,
    release: Option<(usize, u8, i32)>,
    next: Option<u8>,
    header: Option<u32>,
    route: Option<Arc<Route>>,
    suppresses_last: bool,
    pad_value: u32,
    /// Set once it has its lock.
    mark: Option<Mark>,
    holds_arbiters: bool,
    n_words: u64,
}

/// Where a descriptor's words lie.
#[derive(Clone, Copy, Debug)]
enum DmaMemory {
    /// Tile and first word.
    Tile(usize, u64),
    /// Buffer and first word.
    Ddr(usize, u64),
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

    /// Whether its stream passes that tile.
    pub(super) fn passes(&self, tile: usize) -> bool {
        let route = self.execution.as_ref().and_then(|e| e.route.as_ref());
        route.is_some_and(|route| route.tiles.contains(&tile))
    }

    /// Descriptors that it will come to.
    pub(super) fn reaches(&self, number: u8, next: impl Fn(u8) -> Option<u8>) -> bool {
        let current = self.execution.as_ref().map(|e| e.number);
        current
            .into_iter()
            .chain(self.queue.iter().map(|task| task.start))
            .any(|start| {
                let chain = std::iter::successors(Some(start), |&at| next(at));
                chain.take(64).any(|at| at == number)
            })
    }
}

/// Parity of a packet's header makes the number of its ones odd.
fn packet_header(tile: Tile, descriptor: &Record) -> u32 {
    let word = descriptor.get(WordField::PacketId) as u32
        | (descriptor.get(WordField::PacketType) as u32) << 12
        | u32::from(tile.row) << 16
        | u32::from(tile.col) << 21;
    word | u32::from(word.count_ones() % 2 == 0) << 31
}

impl Board<'_> {
    /// Lets a channel do what it can; says whether it did anything.
    pub(super) fn step_channel(
        &mut self,
        tile: usize,
        direction: Direction,
        number: u8,
    ) -> Result<bool, BoardError> {
        let place = |board: &Self| {
            let channel = &board.tiles[tile].channels[direction as usize][usize::from(number)];
            let at = channel.execution.as_ref().map(|e| e.number);
            let at = at.or(channel.queue.front().map(|task| task.start));
            let at = at.map_or_else(String::new, |at| format!(", descriptor {at}"));
            format!(
                "{}, {} {number}{at}",
                board.tiles[tile].tile,
                direction.name()
            )
        };
        self.advance(tile, direction, number)
            .map_err(|problem| BoardError::at(place(self), problem))
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
            None => self.begin(tile, direction, number, task.start)?,
        };
        // Kept in its place whatever happens, so that a fault can name it.
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
        let words: Option<Vec<u32>> = state.descriptors[usize::from(number)]
            .iter()
            .copied()
            .collect();
        let words = words.ok_or_else(|| {
            BoardProblem::Wrong(format!("descriptor {number} is used and was not set"))
        })?;
        let mut record = Record::read(descriptor::layout(kind), &words)?;
        check(&record, direction, self.options.strict)?;
        let walk = Walk::new(&record, self.options.strict)?;
        if record.is(WordField::IterationWrap) {
            let step = record.get(WordField::IterationStep) + 1;
            let further = record.get(WordField::IterationCurrent) * step;
            record.set(WordField::Base, record.get(WordField::Base) + further)?;
        }
        let memory = self.locate(at, channel, &record)?;
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
        let route = match direction {
            Direction::S2mm => None,
            Direction::Mm2s => {
                let id = is_packet.then(|| record.get(WordField::PacketId) as u8);
                Some(self.route_of_channel(at, channel, id)?)
            }
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
            route,
            suppresses_last: record.is(WordField::TlastSuppress),
            pad_value: pad_value.unwrap_or(0),
            mark: None,
            holds_arbiters: false,
            n_words: record.get(WordField::Length),
        })
    }

    fn route_of_channel(
        &mut self,
        at: Tile,
        channel: u8,
        id: Option<u8>,
    ) -> Result<Arc<Route>, BoardProblem> {
        let kind = at.kind();
        let port = port::of_dma(kind, Direction::Mm2s, channel);
        let slave = port.and_then(|port| port::number(port::slaves(kind), port));
        let slave = slave.ok_or_else(|| BoardProblem::Wrong("no such channel".to_owned()))?;
        if kind == TileKind::Shim {
            let mux = self.tiles[at.index()].mux;
            let mux = mux.ok_or_else(|| BoardProblem::Wrong("the mux was not set".to_owned()))?;
            let record = Record::read(&crate::register::MUX, &[mux])?;
            let field = [WordField::Port3, WordField::Port7][usize::from(channel)];
            if record.get(field) != 1 {
                let problem = "the mux joins the channel to no port".to_owned();
                return Err(BoardProblem::Wrong(problem));
            }
        }
        let entry: Entry = (at.index(), slave, id);
        let route = self.route(entry)?;
        match route.to_firmware {
            true => Err(BoardProblem::Undefined(
                "a channel sends to the firmware".to_owned(),
            )),
            false => Ok(route),
        }
    }

    /// Where a descriptor's first word lies.
    fn locate(&self, at: Tile, channel: u8, record: &Record) -> Result<DmaMemory, BoardProblem> {
        let base = record.get(WordField::Base);
        match at.kind() {
            TileKind::Core => Ok(DmaMemory::Tile(at.index(), base)),
            TileKind::Memory => {
                let window = TileKind::Memory.data_bytes() as u64 / 4;
                let tile = self.side(at, channel, base / window)?;
                Ok(DmaMemory::Tile(tile, base % window))
            }
            TileKind::Shim => {
                let address = base * 4;
                let found = self.ddr.iter().position(|buffer| {
                    (buffer.address..buffer.address + buffer.bytes.len() as u64).contains(&address)
                });
                let buffer = found.ok_or_else(|| {
                    BoardProblem::Wrong(format!("address {address:#x} lies in no argument"))
                })?;
                Ok(DmaMemory::Ddr(
                    buffer,
                    (address - self.ddr[buffer].address) / 4,
                ))
            }
        }
    }

    /// The memory tile that a window names: west, own, east.
    fn side(&self, at: Tile, channel: u8, window: u64) -> Result<usize, BoardProblem> {
        let east = window as i32 - 1;
        if east != 0 && channel >= 4 {
            let problem = format!("channel {channel} reaches its own memory tile alone");
            return Err(BoardProblem::Wrong(problem));
        }
        let tile = (east <= 1).then(|| at.neighbour(east, 0)).flatten();
        let tile =
            tile.ok_or_else(|| BoardProblem::Wrong(format!("no memory tile {east} columns east")))?;
        Ok(tile.index())
    }

    fn lock_of(&self, at: Tile, channel: u8, id: u8) -> Result<(usize, u8), BoardProblem> {
        match at.kind() {
            TileKind::Memory => Ok((self.side(at, channel, u64::from(id / 64))?, id % 64)),
            _ => Ok((at.index(), id)),
        }
    }

    /// Takes the lock, then moves what can be moved.
    fn work(
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
            let taken = |a: &(usize, u8)| self.arbiters.get(a).is_some_and(|&by| by != actor);
            if route.arbiters.iter().any(taken) {
                return Ok(false);
            }
            self.arbiters
                .extend(route.arbiters.iter().map(|&a| (a, actor)));
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

    pub(super) fn no_race(&self, other: Option<Mark>, at: usize) -> Result<(), BoardProblem> {
        let Some(other) = other else {
            return Ok(());
        };
        let other = self.actor_name(Active::actor(other));
        Err(BoardProblem::Race(format!(
            "{other} touches word {at:#x} as well"
        )))
    }

    /// Ends an execution: lock, iteration, what comes next. Gives the next descriptor of the chain.
    fn finish(
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
        if !route.to_firmware || !route.sinks.is_empty() {
            return Err(BoardProblem::Wrong(
                "the token does not reach the firmware".to_owned(),
            ));
        }
        *self.tokens.entry((tile, direction, number)).or_default() += 1;
        self.counters.tokens += 1;
        Ok(())
    }

    /// What a channel waits for, if it has work.
    pub(super) fn channel_waiting(
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
            return Some(format!("{who} has descriptor {} before it", task.start));
        };
        let who = format!("{who}, descriptor {}", execution.number);
        if let (None, Some((tile, lock, value))) = (execution.mark, execution.acquire) {
            let held = self.tiles[tile].locks[usize::from(lock)].unwrap_or(0);
            let at = self.tiles[tile].tile;
            return Some(format!(
                "{who} waits for {} of lock {lock} of {at}, which is {held}",
                -value
            ));
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

fn outside(tile: Tile, at: usize) -> BoardProblem {
    BoardProblem::Wrong(format!("word {at:#x} is outside of the memory of {tile}"))
}

fn beyond(at: usize, n_bytes: usize) -> BoardProblem {
    BoardProblem::Wrong(format!(
        "byte {} is outside of its argument of {n_bytes} bytes",
        at * 4
    ))
}

/// Fields that have no meaning here, or none at all.
fn check(record: &Record, direction: Direction, strict: bool) -> Result<(), BoardProblem> {
    if !record.is(WordField::Valid) {
        return Err(BoardProblem::Wrong(
            "the descriptor is not valid".to_owned(),
        ));
    }
    if record.get(WordField::Length) == 0 {
        return Err(BoardProblem::Undefined("a length of 0".to_owned()));
    }
    for field in [
        WordField::Compress,
        WordField::OutOfOrderId,
        WordField::Secure,
        WordField::Smid,
        WordField::AxQos,
    ] {
        if record.is(field) {
            let problem = format!("{} of {}", field.name(), record.get(field));
            return Err(BoardProblem::Undefined(problem));
        }
    }
    if !matches!(record.get(WordField::AxCache), 0 | 2) {
        let problem = format!("axcache of {}", record.get(WordField::AxCache));
        return Err(BoardProblem::Undefined(problem));
    }
    if record.get(WordField::IterationCurrent) > record.get(WordField::IterationWrap) {
        let problem = "the iteration's current is beyond its size".to_owned();
        return Err(BoardProblem::Wrong(problem));
    }
    let is_padded = [
        WordField::D0PadBefore,
        WordField::D0PadAfter,
        WordField::D1PadBefore,
        WordField::D1PadAfter,
    ];
    let is_padded = is_padded
        .iter()
        .chain(&[WordField::D2PadBefore, WordField::D2PadAfter]);
    if direction == Direction::S2mm && is_padded.clone().any(|&field| record.is(field)) {
        return Err(BoardProblem::Undefined(
            "padding of what is received".to_owned(),
        ));
    }
    if !strict {
        return Ok(());
    }
    let groups = [
        (
            record.is(WordField::AcquireEnable),
            &[WordField::AcquireId, WordField::AcquireValue][..],
        ),
        (record.is(WordField::ReleaseValue), &[WordField::ReleaseId]),
        (record.is(WordField::UseNext), &[WordField::Next]),
        (
            record.is(WordField::PacketEnable),
            &[
                WordField::PacketId,
                WordField::PacketType,
                WordField::TlastSuppress,
            ],
        ),
        (
            record.is(WordField::IterationWrap),
            &[WordField::IterationStep, WordField::IterationCurrent],
        ),
        (direction == Direction::Mm2s, &[WordField::PacketEnable]),
    ];
    for (is_used, fields) in groups {
        if let Some(field) = fields.iter().find(|&&field| !is_used && record.is(field)) {
            return Err(BoardProblem::NoEffect(format!(
                "{} is set and not used",
                field.name()
            )));
        }
    }
    Ok(())
}
