//! A clock for each actor of a board: the time that a stream would take, by given rates.
//!
//! The board reports events, in an order that their causes allow. An event begins when its actor is free and its causes
//! are over. DDR is not an actor: from its first word on, the whole takes at least as long as all its bytes at its
//! rates.

mod actor;

use actor::{ActorClock, ChannelClock, CoreClock};

use super::{BoardActor, BoardEvent};
use crate::tile::{Tile, TileKind};
use crate::txn::TxnStream;
use crate::writer::ChannelAt;
use std::collections::BTreeMap;

/// Bytes of the operations of a shim's task: a descriptor with its address, a push, a wait.
pub const TASK_BYTES: f64 = 136.0;
/// Cycles of a word through a switch.
const SWITCH_CYCLES: f64 = 2.0;
/// Words that a stream holds on its way.
const STREAM_WORDS: u64 = 8;

/// Rates of the actors' work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockRates {
    /// A cycle of the array, in nanoseconds.
    pub cycle_ns: f64,
    /// A byte of the stream's operations.
    pub operation_ns_per_byte: f64,
    /// The start of a task on a channel of a shim.
    pub shim_task_ns: f64,
    /// Rate of a shim's channel, in bytes per nanosecond (GB/s).
    pub port_gb_per_s: f64,
    /// Rate of any other stream.
    pub stream_gb_per_s: f64,
    /// A core's acquiring or releasing a lock.
    pub lock_cycles: f64,
    /// Rate of DDR for all shims together: reads.
    pub ddr_read_gb_per_s: f64,
    /// Writes.
    pub ddr_write_gb_per_s: f64,
    /// Reads and writes together.
    pub ddr_total_gb_per_s: f64,
}

/// Times of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockReading {
    /// From the first operation that counts to the last.
    pub total_ns: f64,
    /// Time at work, waits apart, of firmware, channels and cores, in this order.
    pub busy_ns: Vec<(BoardActor, f64)>,
    /// The least that DDR needs for the bytes.
    pub ddr_ns: f64,
    /// Bytes that shims read and wrote.
    pub ddr_bytes: [u64; 2],
}

/// A stretch of an actor's time.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockSpan {
    /// The actor.
    pub actor: BoardActor,
    /// Its work, or the cause of its wait.
    pub what: String,
    /// Whether it waits.
    pub is_wait: bool,
    /// Since the clocks began, in nanoseconds.
    pub start_ns: f64,
    /// Its end.
    pub end_ns: f64,
}

/// The clocks of a run, whose [events](BoardEvent) it takes one after the other.
pub struct BoardClock<'a> {
    stream: &'a TxnStream,
    first_operation: usize,
    rates: ClockRates,
    word_ns: f64,
    shim_word_ns: f64,
    /// Receiver of spans.
    observer: Option<&'a mut dyn FnMut(ClockSpan)>,
    firmware: ActorClock,
    channels: BTreeMap<ChannelAt, ChannelClock>,
    cores: BTreeMap<Tile, CoreClock>,
    /// By lock, the times at which its present units were given.
    locks: BTreeMap<(Tile, u8), Vec<f64>>,
    ddr_bytes: [u64; 2],
    /// When the first word of DDR moved, and the last.
    ddr_moved: (f64, f64),
}

impl<'a> BoardClock<'a> {
    /// Clocks at 0. Operations before `first_operation` take no time.
    pub fn new(stream: &'a TxnStream, first_operation: usize, rates: ClockRates) -> BoardClock<'a> {
        let word_ns = 4.0 / rates.stream_gb_per_s;
        BoardClock {
            stream,
            first_operation,
            rates,
            word_ns,
            shim_word_ns: (4.0 / rates.port_gb_per_s).max(word_ns),
            observer: None,
            firmware: ActorClock::default(),
            channels: BTreeMap::new(),
            cores: BTreeMap::new(),
            locks: BTreeMap::new(),
            ddr_bytes: [0; 2],
            ddr_moved: (f64::INFINITY, 0.0),
        }
    }

    /// The same, which tells of everything that an actor does.
    pub fn observed(self, observer: &'a mut dyn FnMut(ClockSpan)) -> BoardClock<'a> {
        BoardClock {
            observer: Some(observer),
            ..self
        }
    }

    fn span(&mut self, actor: BoardActor, is_wait: bool, (start, end): (f64, f64), what: &str) {
        if let Some(observer) = &mut self.observer {
            observer(ClockSpan {
                actor,
                what: what.to_owned(),
                is_wait,
                start_ns: start,
                end_ns: end,
            });
        }
    }

    fn channel(&mut self, at: ChannelAt) -> &mut ChannelClock {
        self.channels.entry(at).or_default()
    }

    fn clock(&mut self, actor: BoardActor) -> &mut ActorClock {
        match actor {
            BoardActor::Firmware => &mut self.firmware,
            BoardActor::Channel(at) => &mut self.channels.entry(at).or_default().clock,
            BoardActor::Core(tile) => &mut self.cores.entry(tile).or_default().clock,
        }
    }

    /// Time of a word at a channel.
    fn word_ns(&self, at: ChannelAt) -> f64 {
        match at.tile.kind() {
            TileKind::Shim => self.shim_word_ns,
            _ => self.word_ns,
        }
    }

    /// Lets an event's actor do it.
    pub fn event(&mut self, event: &BoardEvent) {
        match *event {
            BoardEvent::Operated { operation } => self.operated(operation),
            BoardEvent::Pushed { channel } => {
                let now = self.firmware.now;
                self.channel(channel).pushed.push_back(now);
            }
            BoardEvent::Awaited { channel } => {
                let token = self.channel(channel).tokens.pop_front();
                let before = self.firmware.now;
                self.firmware.wait(token.unwrap_or(0.0));
                let after = self.firmware.now;
                self.span(BoardActor::Firmware, true, (before, after), "a token");
            }
            BoardEvent::LockSet { tile, lock, value } => {
                let now = self.firmware.now;
                self.locks.insert((tile, lock), vec![now; value.into()]);
            }
            BoardEvent::Acquired {
                actor,
                tile,
                lock,
                amount,
            } => self.acquired(actor, (tile, lock), amount.into()),
            BoardEvent::Released {
                actor,
                tile,
                lock,
                amount,
            } => self.released(actor, (tile, lock), amount.into()),
            BoardEvent::Began {
                channel,
                descriptor,
                ref sinks,
                n_switches,
            } => self.began(channel, descriptor, (sinks, n_switches)),
            BoardEvent::Sent { channel, n_words } => self.sent(channel, n_words),
            BoardEvent::Received { channel, n_words } => self.received(channel, n_words),
            BoardEvent::Ended {
                channel,
                is_last,
                has_token,
            } => self.ended(channel, is_last, has_token),
            BoardEvent::Computed { core, cycles } => {
                let ns = cycles as f64 * self.rates.cycle_ns;
                let clock = self.clock(BoardActor::Core(core));
                let before = clock.now;
                clock.work(ns, 0.0);
                let actor = BoardActor::Core(core);
                self.span(actor, false, (before, before + ns), "computes");
            }
            BoardEvent::CascadeSent { core, to } => {
                let taken = self.cores.entry(to).or_default().cascade_taken;
                let cycle = self.rates.cycle_ns;
                let clock = self.clock(BoardActor::Core(core));
                clock.wait(taken);
                clock.work(cycle, 0.0);
                let came = clock.now;
                self.cores.entry(to).or_default().cascade_came = came;
            }
            BoardEvent::CascadeReceived { core } => {
                let cycle = self.rates.cycle_ns;
                let of = self.cores.entry(core).or_default();
                of.clock.wait(of.cascade_came);
                of.clock.work(cycle, 0.0);
                of.cascade_taken = of.clock.now;
            }
        }
    }

    fn operated(&mut self, operation: usize) {
        if operation < self.first_operation {
            return;
        }
        let of = self.stream.operations.get(operation);
        let bytes = of.map_or(0, |of| of.n_words() * 4);
        let ns = bytes as f64 * self.rates.operation_ns_per_byte;
        let before = self.firmware.now;
        self.firmware.work(ns, 0.0);
        self.span(BoardActor::Firmware, false, (before, before + ns), "issues");
    }

    fn lock_ns(&self, actor: BoardActor) -> f64 {
        match actor {
            BoardActor::Core(_) => self.rates.lock_cycles * self.rates.cycle_ns,
            _ => 0.0,
        }
    }

    fn acquired(&mut self, actor: BoardActor, lock: (Tile, u8), amount: usize) {
        let held = self.locks.entry(lock).or_default();
        let amount = amount.min(held.len());
        let given = held.drain(..amount).next_back().unwrap_or(0.0);
        let ns = self.lock_ns(actor);
        let clock = self.clock(actor);
        let before = clock.now;
        clock.wait(given);
        let after = clock.now;
        clock.work(ns, 0.0);
        let name = format!("lock {} of {}", lock.1, lock.0);
        self.span(actor, true, (before, after), &name);
    }

    fn released(&mut self, actor: BoardActor, lock: (Tile, u8), amount: usize) {
        let ns = self.lock_ns(actor);
        let clock = self.clock(actor);
        clock.work(ns, 0.0);
        let now = clock.now;
        let held = self.locks.entry(lock).or_default();
        // An acquire takes the units that were given first.
        let at = held.partition_point(|&given| given <= now);
        held.splice(at..at, std::iter::repeat_n(now, amount));
    }

    fn began(&mut self, at: ChannelAt, descriptor: u8, (sinks, n_switches): (&[ChannelAt], usize)) {
        let latency = n_switches as f64 * SWITCH_CYCLES * self.rates.cycle_ns;
        let task_ns = match at.tile.kind() {
            TileKind::Shim => self.rates.shim_task_ns,
            _ => 0.0,
        };
        let channel = self.channel(at);
        if !channel.is_in_task {
            channel.is_in_task = true;
            let pushed = channel.pushed.pop_front().unwrap_or(0.0);
            channel.clock.wait(pushed);
            channel.clock.now += task_ns;
        }
        channel.began = channel.clock.now;
        channel.descriptor = descriptor;
        channel.sinks.clear();
        channel.sinks.extend_from_slice(sinks);
        channel.latency = latency;
    }

    /// Counts words that a shim reads (0) or writes (1).
    fn of_ddr(&mut self, at: ChannelAt, way: usize, n_words: usize) {
        if at.tile.kind() == TileKind::Shim {
            self.ddr_bytes[way] += n_words as u64 * 4;
            let now = self.channel(at).clock.now;
            let took = n_words as f64 * self.shim_word_ns;
            self.ddr_moved.0 = self.ddr_moved.0.min(now - took);
            self.ddr_moved.1 = self.ddr_moved.1.max(now);
        }
    }

    fn sent(&mut self, at: ChannelAt, n_words: usize) {
        let ns = n_words as f64 * self.word_ns(at);
        let channel = self.channel(at);
        let (sinks, latency) = (std::mem::take(&mut channel.sinks), channel.latency);
        let mut room = 0.0f64;
        for &sink in &sinks {
            let sink = self.channel(sink);
            sink.sent += n_words as u64;
            // A word has room when the eighth before it was taken. Words under way hide the distance.
            if let Some(before) = sink.sent.checked_sub(1 + STREAM_WORDS) {
                room = room.max(sink.taken_at(before) - latency);
            }
        }
        let channel = self.channel(at);
        channel.clock.work(ns, room);
        self.of_ddr(at, 0, n_words);
        let channel = self.channel(at);
        let arrival = channel.clock.now + latency;
        for &sink in &sinks {
            self.channel(sink).arrivals.push_back((arrival, n_words));
        }
        self.channel(at).sinks = sinks;
    }

    fn received(&mut self, at: ChannelAt, n_words: usize) {
        let ns = n_words as f64 * self.word_ns(at);
        let channel = self.channel(at);
        let came = channel.take(n_words);
        channel.clock.work(ns, came);
        channel.received += n_words as u64;
        let taken = (channel.received, channel.clock.now);
        channel.taken.push_back(taken);
        self.of_ddr(at, 1, n_words);
    }

    fn ended(&mut self, at: ChannelAt, is_last: bool, has_token: bool) {
        let channel = self.channel(at);
        let (began, now, descriptor) = (channel.began, channel.clock.now, channel.descriptor);
        if is_last {
            channel.is_in_task = false;
            if has_token {
                channel.tokens.push_back(now);
            }
        }
        let name = format!("descriptor {descriptor}");
        self.span(BoardActor::Channel(at), false, (began, now), &name);
    }

    /// The times until now.
    pub fn reading(&self) -> ClockReading {
        let [read, written] = self.ddr_bytes.map(|bytes| bytes as f64);
        let rates = &self.rates;
        let ddr_ns = (read / rates.ddr_read_gb_per_s)
            .max(written / rates.ddr_write_gb_per_s)
            .max((read + written) / rates.ddr_total_gb_per_s);
        let (first, last) = match self.ddr_bytes {
            [0, 0] => (0.0, 0.0),
            _ => self.ddr_moved,
        };
        let firmware = (BoardActor::Firmware, self.firmware.busy);
        let channels =
            (self.channels.iter()).map(|(&at, of)| (BoardActor::Channel(at), of.clock.busy));
        let cores = (self.cores.iter()).map(|(&tile, of)| (BoardActor::Core(tile), of.clock.busy));
        ClockReading {
            // Everything after the last word is as much later.
            total_ns: self.firmware.now + (first + ddr_ns - last).max(0.0),
            busy_ns: std::iter::once(firmware)
                .chain(channels)
                .chain(cores)
                .collect(),
            ddr_ns,
            ddr_bytes: self.ddr_bytes,
        }
    }
}
