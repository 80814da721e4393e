//! The event loop.

mod core;
mod event;
mod run;
mod stage;

use self::core::CoreState;
use super::ddr::{DdrState, StreamKind};
use super::network::{ChannelTasks, TimingNetwork, Via};
use super::{TimingError, TraceSpan, Track};
use crate::program::{GridOrder, Port};
use event::{EventKind, ScheduledEvent};
pub(super) use run::SimulationCounts;
use stage::StageState;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A channel's state.
#[derive(Default)]
struct Channel {
    /// A block is on its way since then.
    sending: Option<f64>,
    /// Core source: blocks put and not yet gone; blocks in the core's hands, put or going.
    ready: u32,
    held: u32,
    /// Core sinks: blocks there or coming, and blocks there that are not yet taken.
    sinks: Vec<SinkSpace>,
    /// Shim: tasks, and whether the first has started up.
    tasks: VecDeque<QueueEntry>,
    started: bool,
    starting: bool,
}

#[derive(Clone, Copy, Default)]
struct SinkSpace {
    reserved: u32,
    full: u32,
}

/// A task on its channel.
struct QueueEntry {
    task: ChannelTasks,
    /// The grid point it belongs to.
    point: usize,
    /// When the command processor has written its descriptor and pushed it.
    issued_at: f64,
}

/// Work that a grid point still waits for.
#[derive(Clone, Copy, Default)]
struct Open {
    /// Number of tasks, and of those that read.
    tasks: usize,
    reads: usize,
    cores: usize,
}

pub(super) struct TimingEngine<'n, 'p> {
    net: &'n TimingNetwork<'p>,
    now: f64,
    heap: BinaryHeap<Reverse<ScheduledEvent>>,
    order: u64,
    events: u64,
    max_events: u64,
    channels: Vec<Channel>,
    stages: Vec<StageState>,
    cores: Vec<CoreState>,
    ddr: DdrState<'n>,
    ddr_version: u64,
    points: Vec<Vec<u32>>,
    open: Vec<Open>,
    /// Until when the command processor starts channels of a streamed launch.
    starting_until: f64,
    /// Until when it issues tasks, and the time of each.
    issuing_until: f64,
    issue_ns: f64,
    /// Points that have been issued.
    released: usize,
    finished: usize,
    /// Channels that may be able to send, cores that may be able to go on.
    try_send: Vec<usize>,
    wake: Vec<usize>,
    run: SimulationCounts,
    spans_wanted: usize,
    bytes_total: f64,
}

impl<'n, 'p> TimingEngine<'n, 'p> {
    /// Points that are issued together, each task taking the command processor `issue_ns`.
    pub(super) fn new(
        net: &'n TimingNetwork<'p>,
        points: Vec<Vec<u32>>,
        issue_ns: f64,
        spans_wanted: usize,
        max_events: u64,
    ) -> Result<TimingEngine<'n, 'p>, TimingError> {
        let flat = net.flat;
        let channels = (net.wires.iter())
            .map(|wire| Channel {
                sinks: vec![SinkSpace::default(); wire.to.len()],
                ..Channel::default()
            })
            .collect();
        let grid = points.first().map_or(&[][..], |p| &p[..]);
        let stages = (0..flat.stages.len())
            .map(|stage| StageState::new(net, stage, grid))
            .collect::<Result<_, _>>()?;
        Ok(TimingEngine {
            net,
            now: 0.0,
            heap: BinaryHeap::new(),
            order: 0,
            events: 0,
            max_events,
            channels,
            stages,
            cores: flat.cores.iter().map(|_| CoreState::default()).collect(),
            ddr: DdrState::new(net.profile, net.machine.stream_bytes_per_s() / 1e9),
            ddr_version: 0,
            open: vec![Open::default(); points.len()],
            points,
            starting_until: 0.0,
            issuing_until: 0.0,
            issue_ns,
            released: 0,
            finished: 0,
            try_send: Vec::new(),
            wake: Vec::new(),
            run: SimulationCounts::new(flat),
            spans_wanted,
            bytes_total: 0.0,
        })
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> Result<SimulationCounts, TimingError> {
        // A point of a sequential launch is issued when those before it have been read: its
        // descriptors and queue places are theirs. The writes are not waited for.
        let sequential = self.net.flat.launch.order == GridOrder::Sequential;
        let first = if sequential { 1 } else { self.points.len() };
        for _ in 0..first.min(self.points.len()) {
            self.release()?;
        }
        self.settle()?;
        while self.finished < self.points.len() {
            let Some(Reverse(event)) = self.heap.pop() else {
                return Err(self.stuck());
            };
            self.now = event.at;
            self.events += 1;
            self.handle(event.kind)?;
            self.settle()?;
            if self.events > self.max_events * self.points.len() as u64 {
                self.extrapolate();
                break;
            }
        }
        self.run.ns = self.run.ns.max(self.now);
        self.run.ddr_ns += self.ddr.busy_ns;
        self.run.memory_channel_ns +=
            (self.ddr.channel_busy_ns.iter()).fold(0.0_f64, |a, &b| a.max(b));
        Ok(self.run)
    }

    fn schedule(&mut self, at: f64, kind: EventKind) {
        self.order += 1;
        let order = self.order;
        self.heap.push(Reverse(ScheduledEvent { at, order, kind }));
    }

    fn handle(&mut self, kind: EventKind) -> Result<(), TimingError> {
        match kind {
            EventKind::Arrived(channel) => self.arrived(channel),
            EventKind::TaskReady(channel) => {
                self.channels[channel].started = true;
                self.channels[channel].starting = false;
                self.try_send.push(channel);
            }
            EventKind::Called(core) => self.called(core),
            EventKind::Ddr(version) if version == self.ddr_version => {
                for channel in self.ddr.finished(self.now) {
                    self.arrived(channel);
                }
            }
            EventKind::Ddr(_) => {}
            EventKind::Read if self.released < self.points.len() => self.release()?,
            EventKind::Read => {}
        }
        Ok(())
    }

    /// Lets everything go on that can, at this instant.
    fn settle(&mut self) -> Result<(), TimingError> {
        loop {
            if let Some(core) = self.wake.pop() {
                self.run_core(core)?;
            } else if let Some(channel) = self.try_send.pop() {
                self.send(channel);
            } else {
                break;
            }
        }
        if let Some(at) = self.ddr.next(self.now) {
            self.ddr_version += 1;
            self.schedule(at, EventKind::Ddr(self.ddr_version));
        }
        Ok(())
    }

    /// Issues a grid point: its tasks are queued one after another, its cores may start.
    fn release(&mut self) -> Result<(), TimingError> {
        let point = self.released;
        self.released += 1;
        self.issuing_until = self.issuing_until.max(self.now);
        let mut tasks = self.net.tasks(&self.points[point])?;
        if self.net.flat.launch.order == GridOrder::Sequential {
            // Tasks that write are issued first. The order of a channel's own tasks stays.
            tasks.sort_by_key(|task| !task.stream.writes);
        }
        self.open[point] = Open {
            tasks: tasks.len(),
            reads: tasks.iter().filter(|task| !task.stream.writes).count(),
            cores: self.cores.len(),
        };
        for task in tasks {
            let channel = task.channel;
            self.bytes_total += task.blocks as f64 * self.net.wires[channel].bytes;
            self.issuing_until += self.issue_ns;
            self.channels[channel].tasks.push_back(QueueEntry {
                task,
                point,
                issued_at: self.issuing_until,
            });
            self.start_task(channel);
        }
        self.wake.extend(0..self.cores.len());
        self.close(point);
        Ok(())
    }

    fn start_task(&mut self, channel: usize) {
        let state = &mut self.channels[channel];
        let Some(next) = state.tasks.front() else {
            return;
        };
        if state.started || state.starting {
            return;
        }
        state.starting = true;
        let task_ns = self.net.profile.shim.task_ns;
        let mut at = self.now.max(next.issued_at) + task_ns;
        if self.net.flat.launch.order == GridOrder::Streamed {
            // One channel after another: nothing brings them back into step, unlike in a sequential launch, where the
            // end of each point does.
            at = at.max(self.starting_until + task_ns);
            self.starting_until = at;
        }
        self.schedule(at, EventKind::TaskReady(channel));
    }

    /// Notes the end of a grid point.
    fn close(&mut self, point: usize) {
        let open = self.open[point];
        if open.tasks > 0 || open.cores > 0 {
            return;
        }
        self.finished += 1;
        self.run.ns = self.run.ns.max(self.now);
    }

    /// Puts a channel's next block on its way if source and sinks allow.
    fn send(&mut self, id: usize) {
        let wire = &self.net.wires[id];
        let channel = &self.channels[id];
        if channel.sending.is_some() || !self.source_ready(id) || !self.sinks_free(id) {
            return;
        }
        for (sink, port) in wire.to.iter().enumerate() {
            if matches!(port, Port::Core { .. }) {
                self.channels[id].sinks[sink].reserved += 1;
            }
        }
        self.channels[id].sending = Some(self.now);
        match wire.via {
            Via::Read | Via::Write => {
                if let Some(queued) = self.channels[id].tasks.front() {
                    let stream = queued.task.stream;
                    self.ddr.start(id, wire.bytes, stream);
                }
            }
            Via::Tiles => self.schedule(self.now + wire.ns, EventKind::Arrived(id)),
            Via::Shared => self.arrived(id),
        }
    }

    fn source_ready(&self, id: usize) -> bool {
        match self.net.wires[id].from {
            Port::Shim { .. } => self.channels[id].started,
            Port::Memory { stage, end, .. } => self.stages[stage].can_drain(end),
            Port::Core { .. } => self.channels[id].ready > 0,
        }
    }

    fn sinks_free(&self, id: usize) -> bool {
        let wire = &self.net.wires[id];
        wire.to
            .iter()
            .zip(&self.channels[id].sinks)
            .all(|(port, sink)| match *port {
                Port::Shim { .. } => self.channels[id].started,
                Port::Memory { stage, end, .. } => self.stages[stage].can_fill(end),
                Port::Core { .. } => wire.via == Via::Shared || sink.reserved < wire.depth,
            })
    }

    /// A block has arrived everywhere.
    fn arrived(&mut self, id: usize) {
        let wire = &self.net.wires[id];
        let since = self.channels[id].sending.take().unwrap_or(self.now);
        self.run.channels[id].0 += wire.bytes;
        self.run.channels[id].1 += self.now - since;
        self.span(Track::Channel(id), since, || {
            self.net.flat.channels[id].decl.name.clone()
        });
        match wire.from {
            Port::Shim { .. } => self.task_block(id),
            Port::Memory { stage, end, .. } => {
                if self.stages[stage].drained(end) {
                    self.retry_fills(stage);
                }
            }
            Port::Core { core } => {
                self.channels[id].ready -= 1;
                if wire.via != Via::Shared {
                    self.channels[id].held -= 1;
                    self.wake.push(core);
                }
            }
        }
        for (sink, port) in wire.to.iter().enumerate() {
            match *port {
                Port::Shim { .. } => self.task_block(id),
                Port::Memory { stage, end, .. } => {
                    if self.stages[stage].filled(end) {
                        self.retry_drains(stage);
                    }
                }
                Port::Core { core } => {
                    self.channels[id].sinks[sink].full += 1;
                    self.wake.push(core);
                }
            }
        }
        self.try_send.push(id);
    }

    fn retry_fills(&mut self, stage: usize) {
        let ends = &self.net.flat.stages[stage].fills;
        self.try_send.extend(ends.iter().map(|end| end.channel));
    }

    fn retry_drains(&mut self, stage: usize) {
        let ends = &self.net.flat.stages[stage].drains;
        self.try_send.extend(ends.iter().map(|end| end.channel));
    }

    /// A block of a shim channel's task is through.
    fn task_block(&mut self, id: usize) {
        let bytes = self.net.wires[id].bytes;
        let Some(QueueEntry { task, point, .. }) = self.channels[id].tasks.front_mut() else {
            return;
        };
        task.blocks -= 1;
        let (left, stream, point) = (task.blocks, task.stream, *point);
        self.count(bytes, stream);
        if left == 0 {
            self.channels[id].tasks.pop_front();
            // A task that was queued after this one has its descriptor fetched already.
            let next = self.channels[id].tasks.front();
            self.channels[id].started = next.is_some_and(|next| next.issued_at <= self.now);
            self.start_task(id);
            self.open[point].tasks -= 1;
            self.open[point].reads -= usize::from(!stream.writes);
            if self.open[point].reads == 0 && !stream.writes {
                self.schedule(self.now, EventKind::Read);
            }
            self.close(point);
        }
    }

    fn count(&mut self, bytes: f64, stream: StreamKind) {
        self.ddr.count(bytes, stream);
        if stream.writes {
            self.run.write_bytes += bytes;
        } else {
            self.run.read_bytes += bytes;
        }
    }

    fn span(&mut self, track: Track, since: f64, name: impl Fn() -> String) {
        if self.run.spans.len() < self.spans_wanted {
            self.run.spans.push(TraceSpan {
                launch: 0,
                track,
                name: name(),
                start_ns: since,
                end_ns: self.now,
            });
        }
    }

    /// Ends early: the rest takes as long for its bytes as the finished part did.
    fn extrapolate(&mut self) {
        let done = self.run.read_bytes + self.run.write_bytes;
        if done > 0.0 && self.bytes_total > done {
            let run = self.run.clone();
            let rest = self.bytes_total / done - 1.0;
            self.run.ns = self.now;
            self.run.add(&run, rest);
            self.run.ns = self.now * (1.0 + rest);
            self.now = self.run.ns;
        }
        self.run.extrapolated = true;
    }

    /// Nothing can happen any more: names the first few waiting parties.
    fn stuck(&self) -> TimingError {
        let flat = self.net.flat;
        let mut waiting: Vec<String> = (0..self.cores.len())
            .filter_map(|core| {
                let what = self.cores[core].waits_for()?;
                Some(format!(
                    "{} waits for {}",
                    flat.core_name(core),
                    flat.channel_name(what)
                ))
            })
            .collect();
        for (id, channel) in self.channels.iter().enumerate() {
            if let Some(QueueEntry { task, .. }) = channel.tasks.front() {
                let name = flat.channel_name(id);
                waiting.push(format!("a task has {} blocks of {name} left", task.blocks));
            }
        }
        let more = waiting.len().saturating_sub(6);
        waiting.truncate(6);
        if more > 0 {
            waiting.push(format!("{more} more"));
        }
        TimingError::Stuck {
            launch: flat.launch.name.clone(),
            ns: self.now,
            waiting: waiting.join("; "),
        }
    }
}
