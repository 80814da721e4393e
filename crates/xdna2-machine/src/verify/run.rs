//! The run without data: actors that can go on do so, until all have finished or none can.

use super::cores::{ChannelAction, ChannelEvent, core_words};
use crate::program::{ChannelLink, Flat, Port};

/// A launch's actors with the blocks that they have to move at one grid point.
pub(super) struct LaunchNetwork<'a, 'p> {
    flat: &'a Flat<'p>,
    traces: &'a [Vec<ChannelEvent>],
    /// Blocks each channel carries in all.
    totals: &'a [u64],
    /// Blocks of a channel for one of the stage: (drain, fill).
    per: &'a [(u64, u64)],
}

/// Nobody can go on.
pub(super) struct Stuck {
    /// Channels that are waited for, those of a cycle first.
    pub channels: Vec<usize>,
    /// Each waiting party, with the cause of its wait.
    lines: Vec<String>,
    /// Whether the lines are a cycle.
    cycle: bool,
}

/// Progress of one run.
struct RunState {
    /// Next event of each core.
    at: Vec<usize>,
    /// Blocks that have left their source and arrived at every sink.
    sent: Vec<u64>,
    /// Empty blocks taken, and blocks put, at a core source.
    taken: Vec<u64>,
    put: Vec<u64>,
    /// By channel and core sink: blocks got and freed, in the order of the channel's sinks.
    got: Vec<Vec<(u64, u64)>>,
}

impl<'a, 'p> LaunchNetwork<'a, 'p> {
    pub(super) fn new(
        flat: &'a Flat<'p>,
        traces: &'a [Vec<ChannelEvent>],
        totals: &'a [u64],
        per: &'a [(u64, u64)],
    ) -> LaunchNetwork<'a, 'p> {
        LaunchNetwork {
            flat,
            traces,
            totals,
            per,
        }
    }

    /// Runs to the end, with the depths given.
    pub(super) fn run(&self, depth: &dyn Fn(usize) -> u32) -> Result<(), Stuck> {
        let flat = self.flat;
        let n = flat.channels.len();
        let depths: Vec<u64> = (0..n).map(|id| depth(id).into()).collect();
        let mut state = RunState {
            at: vec![0; flat.cores.len()],
            sent: vec![0; n],
            taken: vec![0; n],
            put: vec![0; n],
            got: flat
                .channels
                .iter()
                .map(|c| vec![(0, 0); c.to.len()])
                .collect(),
        };
        // Actors that may go on: cores, then channels. An actor that moves wakes those it touches.
        let mut queued = vec![true; flat.cores.len() + n];
        let mut queue: std::collections::VecDeque<usize> = (0..queued.len()).collect();
        let mut woken = Vec::new();
        while let Some(actor) = queue.pop_front() {
            queued[actor] = false;
            woken.clear();
            match actor.checked_sub(flat.cores.len()) {
                None => self.core(actor, &mut state, &depths, &mut woken),
                Some(id) => self.channel(id, &mut state, &depths, &mut woken),
            }
            for &next in &woken {
                if !std::mem::replace(&mut queued[next], true) {
                    queue.push_back(next);
                }
            }
        }
        let done = (0..n).all(|id| state.sent[id] == self.totals[id])
            && (0..flat.cores.len()).all(|c| state.at[c] == self.traces[c].len());
        if done {
            Ok(())
        } else {
            Err(self.stuck(&state, &depths))
        }
    }

    /// Position of a core among a channel's sinks.
    fn sink(&self, id: usize, core: usize) -> usize {
        let to = &self.flat.channels[id].to;
        if to.len() == 1 {
            return 0;
        }
        let here = |port: &Port| *port == Port::Core { core };
        to.iter().position(here).unwrap_or(0)
    }

    /// Lets a core go on until it waits.
    fn core(&self, core: usize, state: &mut RunState, depths: &[u64], woken: &mut Vec<usize>) {
        let base = self.flat.cores.len();
        while let Some(event) = self.traces[core].get(state.at[core]) {
            if self.blocked(core, state, depths).is_some() {
                return;
            }
            let id = event.channel();
            match event.kind() {
                ChannelAction::New => state.taken[id] += 1,
                ChannelAction::Put => {
                    state.put[id] += 1;
                    woken.push(base + id);
                }
                ChannelAction::Get => {
                    let sink = self.sink(id, core);
                    state.got[id][sink].0 += 1;
                }
                ChannelAction::Free => {
                    let sink = self.sink(id, core);
                    state.got[id][sink].1 += 1;
                    woken.push(base + id);
                    // Shared blocks go straight back to the source.
                    if let Port::Core { core } = self.flat.channels[id].from {
                        woken.push(core);
                    }
                }
            }
            state.at[core] += 1;
        }
    }

    /// The channel a core waits for, and whether for a full block.
    fn blocked(&self, core: usize, state: &RunState, depths: &[u64]) -> Option<(usize, bool)> {
        let event = self.traces[core].get(state.at[core])?;
        let id = event.channel();
        match event.kind() {
            ChannelAction::Get => {
                let got = state.got[id][self.sink(id, core)].0;
                (state.sent[id] <= got).then_some((id, true))
            }
            ChannelAction::New => {
                // A shared block is one buffer for both sides; a stream has buffers at each.
                let returned = match self.flat.channels[id].decl.link {
                    ChannelLink::Neighbour => state.got[id].first().map_or(0, |g| g.1),
                    ChannelLink::Stream | ChannelLink::Cascade => state.sent[id],
                };
                (state.taken[id] - returned >= depths[id]).then_some((id, false))
            }
            ChannelAction::Free | ChannelAction::Put => None,
        }
    }

    /// Moves blocks through a channel as far as they go.
    fn channel(&self, id: usize, state: &mut RunState, depths: &[u64], woken: &mut Vec<usize>) {
        let before = state.sent[id];
        loop {
            if state.sent[id] >= self.totals[id] || !self.ready(id, state) {
                break;
            }
            let sinks = 0..self.flat.channels[id].to.len();
            if !sinks.into_iter().all(|s| self.room(id, s, state, depths)) {
                break;
            }
            state.sent[id] += 1;
        }
        if state.sent[id] == before {
            return;
        }
        let base = self.flat.cores.len();
        for port in std::iter::once(&self.flat.channels[id].from).chain(&self.flat.channels[id].to)
        {
            match *port {
                Port::Core { core } => woken.push(core),
                Port::Memory { stage, .. } => {
                    let stage = &self.flat.stages[stage];
                    let ends = stage.fills.iter().chain(&stage.drains);
                    woken.extend(ends.map(|e| base + e.channel).filter(|&c| c != base + id));
                }
                Port::Shim { .. } => {}
            }
        }
    }

    /// Whether the source has the next block.
    fn ready(&self, id: usize, state: &RunState) -> bool {
        match self.flat.channels[id].from {
            Port::Shim { .. } => true,
            Port::Core { .. } => state.put[id] > state.sent[id],
            Port::Memory { stage, .. } => {
                let block = state.sent[id] / self.per[id].0.max(1);
                block < self.filled(stage, state)
            }
        }
    }

    /// Blocks of a stage that every fill has completed.
    fn filled(&self, stage: usize, state: &RunState) -> u64 {
        let fills = &self.flat.stages[stage].fills;
        let done = |id: usize| match self.per[id].1 {
            0 => u64::MAX,
            per => state.sent[id] / per,
        };
        fills.iter().map(|e| done(e.channel)).min().unwrap_or(0)
    }

    /// Blocks of a stage that every drain has sent.
    fn drained(&self, stage: usize, state: &RunState) -> u64 {
        let drains = &self.flat.stages[stage].drains;
        let done = |id: usize| match self.per[id].0 {
            0 => u64::MAX,
            per => state.sent[id] / per,
        };
        drains.iter().map(|e| done(e.channel)).min().unwrap_or(0)
    }

    /// Whether a sink has room for the next block.
    fn room(&self, id: usize, sink: usize, state: &RunState, depths: &[u64]) -> bool {
        match self.flat.channels[id].to[sink] {
            Port::Shim { .. } => true,
            Port::Core { .. } => state.sent[id] - state.got[id][sink].1 < depths[id],
            Port::Memory { stage, .. } => {
                let copies = u64::from(self.flat.stages[stage].decl.copies);
                let block = state.sent[id] / self.per[id].1.max(1);
                // All drains idle for good leaves the count at its maximum: no limit then.
                block < self.drained(stage, state).saturating_add(copies)
            }
        }
    }

    /// The chain of waits from the first blocked core on, until a party comes up again.
    fn stuck(&self, state: &RunState, depths: &[u64]) -> Stuck {
        let cores = 0..self.flat.cores.len();
        let start = cores
            .into_iter()
            .find(|&c| state.at[c] < self.traces[c].len());
        let mut path: Vec<(Party, usize, String)> = Vec::new();
        let mut next = start.map(Party::Core);
        while let Some(party) = next {
            if let Some(at) = path.iter().position(|(p, ..)| *p == party) {
                path.drain(..at);
                break;
            }
            let Some((id, words, then)) = self.waits(party, state, depths) else {
                break;
            };
            path.push((party, id, words));
            next = then;
            if path.len() > 1024 {
                break;
            }
        }
        if path.is_empty() {
            let id = (0..self.flat.channels.len()).find(|&id| state.sent[id] < self.totals[id]);
            let id = id.unwrap_or(0);
            let words = format!("channel {} stands still", self.flat.channel_name(id));
            path.push((Party::Shim(id), id, words));
        }
        let closed = next.is_some_and(|party| path.iter().any(|(p, ..)| *p == party));
        Stuck {
            channels: path.iter().map(|p| p.1).collect(),
            lines: path.into_iter().map(|p| p.2).collect(),
            cycle: closed,
        }
    }

    /// Cause of a party's wait: the channel, words, and the party that could end the wait.
    fn waits(
        &self,
        party: Party,
        state: &RunState,
        depths: &[u64],
    ) -> Option<(usize, String, Option<Party>)> {
        match party {
            Party::Core(core) => {
                let (id, full) = self.blocked(core, state, depths)?;
                let name = self.flat.channel_name(id);
                let who = core_words(&self.flat.cores[core]);
                if full {
                    let then = self.source(id);
                    return Some((id, format!("{who} waits for a block of {name}"), Some(then)));
                }
                let (where_, then) = self.full_sink(id, state, depths)?;
                Some((
                    id,
                    format!("{who} waits for room in {name} at {where_}"),
                    Some(then),
                ))
            }
            Party::Shim(id) => {
                let (where_, then) = self.full_sink(id, state, depths)?;
                let name = self.flat.channel_name(id);
                Some((
                    id,
                    format!("the shim waits for room in {name} at {where_}"),
                    Some(then),
                ))
            }
            Party::Stage(stage) => self.stage_waits(stage, state, depths),
        }
    }

    fn source(&self, id: usize) -> Party {
        match self.flat.channels[id].from {
            Port::Core { core } => Party::Core(core),
            Port::Memory { stage, .. } => Party::Stage(stage),
            Port::Shim { .. } => Party::Shim(id),
        }
    }

    /// A sink without room for the next block.
    fn full_sink(&self, id: usize, state: &RunState, depths: &[u64]) -> Option<(String, Party)> {
        let to = &self.flat.channels[id].to;
        let sink = (0..to.len()).find(|&s| !self.room(id, s, state, depths))?;
        Some(match to[sink] {
            Port::Core { core } => (core_words(&self.flat.cores[core]), Party::Core(core)),
            Port::Memory { stage, .. } => (
                format!("stage {}", self.flat.stage_name(stage)),
                Party::Stage(stage),
            ),
            Port::Shim { col } => (format!("shim {col}"), Party::Shim(id)),
        })
    }

    /// A stage waits to be filled where a drain has nothing to send, else for room downstream.
    fn stage_waits(
        &self,
        stage: usize,
        state: &RunState,
        depths: &[u64],
    ) -> Option<(usize, String, Option<Party>)> {
        let name = self.flat.stage_name(stage);
        let stage_of = &self.flat.stages[stage];
        for end in &stage_of.drains {
            let id = end.channel;
            if state.sent[id] < self.totals[id]
                && self.ready(id, state)
                && let Some((where_, then)) = self.full_sink(id, state, depths)
            {
                let channel = self.flat.channel_name(id);
                let words = format!("stage {name} waits for room in {channel} at {where_}");
                return Some((id, words, Some(then)));
            }
        }
        let slowest =
            |e: &&crate::program::FlatEnd<'_>| state.sent[e.channel] / self.per[e.channel].1.max(1);
        let unfinished =
            |e: &&crate::program::FlatEnd<'_>| state.sent[e.channel] < self.totals[e.channel];
        let end = stage_of
            .fills
            .iter()
            .filter(unfinished)
            .min_by_key(slowest)?;
        let words = format!(
            "stage {name} waits for a block of {}",
            self.flat.channel_name(end.channel)
        );
        Some((end.channel, words, Some(self.source(end.channel))))
    }
}

/// Who can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Core(usize),
    Stage(usize),
    /// The shim end of a channel.
    Shim(usize),
}

impl Stuck {
    /// The waiting parties in words.
    pub(super) fn words(&self) -> String {
        let shown = self.lines.len().min(8);
        let mut words = self.lines[..shown].join("; ");
        if self.lines.len() > shown {
            words.push_str("; …");
        }
        let kind = if self.cycle {
            "a cycle of waits"
        } else {
            "nobody can go on"
        };
        format!("{kind}: {words}")
    }
}
