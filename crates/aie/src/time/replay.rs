//! A clock for each actor.

use super::trace::Spans;
use super::{ActorTime, DesignTime};
use crate::lower::DesignProgram;
use millrace_xdna2_machine::{Machine, Profile};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::board::{BoardActor, BoardEvent};
use millrace_xdna2_words::tile::TileKind;
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of the operations of a shim's task: a descriptor with its address, a push, a wait. What the profile
/// says of a task is spread over them.
const TASK_BYTES: f64 = 136.0;
/// Cycles of a word through a switch.
const SWITCH_CYCLES: f64 = 2.0;
/// Words that a stream holds on its way.
const STREAM_WORDS: u64 = 8;

/// An actor's own time.
#[derive(Clone, Debug, Default)]
struct ActorClock {
    now: f64,
    busy: f64,
}

impl ActorClock {
    /// Not before a cause.
    fn wait(&mut self, cause: f64) {
        self.now = self.now.max(cause);
    }

    /// Works so long, and ends no earlier than a cause.
    fn work(&mut self, ns: f64, cause: f64) {
        self.busy += ns;
        self.now = (self.now + ns).max(cause);
    }
}

/// A DMA channel's time and stream.
#[derive(Clone, Debug, Default)]
struct ChannelClock {
    clock: ActorClock,
    /// When tasks were pushed that did not begin yet.
    pushed: VecDeque<f64>,
    is_in_task: bool,
    began: f64,
    descriptor: u8,
    /// Of one that sends: where to, and how long a word is under way.
    sinks: Vec<ChannelAt>,
    latency: f64,
    /// Of one that receives: words that were sent to it, and those on their way by arrival.
    sent: u64,
    arrivals: VecDeque<(f64, usize)>,
    /// Words that it took, and when the last ones were.
    received: u64,
    taken: VecDeque<(u64, f64)>,
    /// When the word before those in `taken` was.
    taken_before: f64,
    /// Ends of tasks with tokens.
    tokens: VecDeque<f64>,
}

impl ChannelClock {
    /// When word `at` of those sent to it was taken; 0 for none.
    fn taken_at(&mut self, at: u64) -> f64 {
        while let Some(&(end, when)) = self.taken.front() {
            if end > at {
                return when;
            }
            self.taken_before = when;
            self.taken.pop_front();
        }
        self.taken_before
    }

    /// Takes words from the stream: when the last of them came.
    fn take(&mut self, mut n_words: usize) -> f64 {
        let mut last = 0.0;
        while n_words > 0 {
            let Some((when, n)) = self.arrivals.front_mut() else {
                break;
            };
            last = *when;
            let now = (*n).min(n_words);
            *n -= now;
            n_words -= now;
            if *n == 0 {
                self.arrivals.pop_front();
            }
        }
        last
    }
}

#[derive(Clone, Debug, Default)]
struct CoreClock {
    clock: ActorClock,
    /// When the value before the core came, and when the last one was taken.
    cascade_came: f64,
    cascade_taken: f64,
}

/// The events of a run, one after the other.
pub(super) struct Replay<'a> {
    lowered: &'a DesignProgram,
    profile: &'a Profile,
    cycle_ns: f64,
    word_ns: f64,
    shim_word_ns: f64,
    firmware: ActorClock,
    channels: BTreeMap<ChannelAt, ChannelClock>,
    cores: BTreeMap<Tile, CoreClock>,
    /// When what a lock holds was given.
    locks: BTreeMap<(Tile, u8), Vec<f64>>,
    ddr_bytes: [u64; 2],
    spans: Spans,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        lowered: &'a DesignProgram,
        machine: &Machine,
        profile: &'a Profile,
    ) -> Replay<'a> {
        let word_ns = 4e9 / machine.stream_bytes_per_s();
        Replay {
            lowered,
            profile,
            cycle_ns: 1e9 / machine.clock_hz,
            word_ns,
            shim_word_ns: (4.0 / profile.shim.port_gb_per_s).max(word_ns),
            firmware: ActorClock::default(),
            channels: BTreeMap::new(),
            cores: BTreeMap::new(),
            locks: BTreeMap::new(),
            ddr_bytes: [0; 2],
            spans: Spans::new(&profile.name),
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

    /// What a word takes at a channel.
    fn word_ns(&self, at: ChannelAt) -> f64 {
        match at.tile.kind() {
            TileKind::Shim => self.shim_word_ns,
            _ => self.word_ns,
        }
    }

    pub(super) fn event(&mut self, event: &BoardEvent) {
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
                self.spans
                    .wait(BoardActor::Firmware, "a token", before, after);
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
                let ns = cycles as f64 * self.cycle_ns;
                let clock = self.clock(BoardActor::Core(core));
                let before = clock.now;
                clock.work(ns, 0.0);
                self.spans
                    .work(BoardActor::Core(core), "computes", before, before + ns);
            }
            BoardEvent::CascadeSent { core, to } => {
                let taken = self.cores.entry(to).or_default().cascade_taken;
                let cycle = self.cycle_ns;
                let clock = self.clock(BoardActor::Core(core));
                clock.wait(taken);
                clock.work(cycle, 0.0);
                let came = clock.now;
                self.cores.entry(to).or_default().cascade_came = came;
            }
            BoardEvent::CascadeReceived { core } => {
                let cycle = self.cycle_ns;
                let of = self.cores.entry(core).or_default();
                of.clock.wait(of.cascade_came);
                of.clock.work(cycle, 0.0);
                of.cascade_taken = of.clock.now;
            }
        }
    }

    /// Operations before the sequence configure the array: they are not in the time.
    fn operated(&mut self, operation: usize) {
        if self.lowered.operations.range(..=operation).next().is_none() {
            return;
        }
        let of = self.lowered.stream.operations.get(operation);
        let bytes = of.map_or(0, |of| of.n_words() * 4);
        let ns = bytes as f64 * self.profile.dispatch.issue_ns / TASK_BYTES;
        let before = self.firmware.now;
        self.firmware.work(ns, 0.0);
        self.spans
            .work(BoardActor::Firmware, "issues", before, before + ns);
    }

    fn lock_ns(&self, actor: BoardActor) -> f64 {
        match actor {
            BoardActor::Core(_) => self.profile.core.block_cycles / 2.0 * self.cycle_ns,
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
        self.spans.wait(actor, &name, before, after);
    }

    fn released(&mut self, actor: BoardActor, lock: (Tile, u8), amount: usize) {
        let ns = self.lock_ns(actor);
        let clock = self.clock(actor);
        clock.work(ns, 0.0);
        let now = clock.now;
        let held = self.locks.entry(lock).or_default();
        // Whoever takes a lock takes what was given first.
        let at = held.partition_point(|&given| given <= now);
        held.splice(at..at, std::iter::repeat_n(now, amount));
    }

    fn began(&mut self, at: ChannelAt, descriptor: u8, (sinks, n_switches): (&[ChannelAt], usize)) {
        let latency = n_switches as f64 * SWITCH_CYCLES * self.cycle_ns;
        let task_ns = match at.tile.kind() {
            TileKind::Shim => self.profile.shim.task_ns,
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

    fn sent(&mut self, at: ChannelAt, n_words: usize) {
        let ns = n_words as f64 * self.word_ns(at);
        if at.tile.kind() == TileKind::Shim {
            self.ddr_bytes[0] += n_words as u64 * 4;
        }
        let channel = self.channel(at);
        let (sinks, latency) = (std::mem::take(&mut channel.sinks), channel.latency);
        let mut room = 0.0f64;
        for &sink in &sinks {
            let sink = self.channel(sink);
            sink.sent += n_words as u64;
            // A word has room when the eighth before it was taken; what is under way hides the distance.
            if let Some(before) = sink.sent.checked_sub(1 + STREAM_WORDS) {
                room = room.max(sink.taken_at(before) - latency);
            }
        }
        let channel = self.channel(at);
        channel.clock.work(ns, room);
        let arrival = channel.clock.now + latency;
        for &sink in &sinks {
            self.channel(sink).arrivals.push_back((arrival, n_words));
        }
        self.channel(at).sinks = sinks;
    }

    fn received(&mut self, at: ChannelAt, n_words: usize) {
        let ns = n_words as f64 * self.word_ns(at);
        if at.tile.kind() == TileKind::Shim {
            self.ddr_bytes[1] += n_words as u64 * 4;
        }
        let channel = self.channel(at);
        let came = channel.take(n_words);
        channel.clock.work(ns, came);
        channel.received += n_words as u64;
        let taken = (channel.received, channel.clock.now);
        channel.taken.push_back(taken);
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
        self.spans.work(BoardActor::Channel(at), &name, began, now);
    }

    pub(super) fn finish(self, name: &str) -> DesignTime {
        let [read, written] = self.ddr_bytes.map(|bytes| bytes as f64);
        let ddr = &self.profile.ddr;
        let ddr_ns = (read / ddr.read_gb_per_s)
            .max(written / ddr.write_gb_per_s)
            .max((read + written) / ddr.total_gb_per_s);
        let channel = |(at, of): (&ChannelAt, &ChannelClock)| ActorTime {
            name: format!("{} {} {}", at.tile, at.direction.name(), at.number),
            busy_ns: of.clock.busy,
        };
        let core = |(tile, of): (&Tile, &CoreClock)| ActorTime {
            name: format!("the program of {tile}"),
            busy_ns: of.clock.busy,
        };
        let mut actors: Vec<ActorTime> = self.channels.iter().map(channel).collect();
        actors.extend(self.cores.iter().map(core));
        for (name, busy_ns) in [("the sequence", self.firmware.busy), ("DDR", ddr_ns)] {
            actors.push(ActorTime {
                name: name.to_owned(),
                busy_ns,
            });
        }
        actors.sort_by(|a, b| b.busy_ns.total_cmp(&a.busy_ns));
        DesignTime {
            total_ns: self.firmware.now.max(ddr_ns),
            call_ns: self.profile.dispatch.call_ns,
            actors,
            ddr_bytes: self.ddr_bytes,
            profile: self.profile.name.clone(),
            trace: self.spans.trace(name),
        }
    }
}
