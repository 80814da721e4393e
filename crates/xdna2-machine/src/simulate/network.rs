//! The network of a launch's actors, and the rounds in which they run.

use super::actor::{Actor, ActorKind};
use super::code::HerdCode;
use super::context::{LaunchContext, QUANTUM, Trouble, core_site};
use super::core::CoreActor;
use super::counters::LaunchCounters;
use super::fault::{SimulationFault, Site, Waiting};
use super::stage::StageActor;
use super::wire::{Actors, At, ChannelWire, ReadOnlySlots, compile, connect};
use crate::program::Flat;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Actors that one thread runs together in a round, with the wires among them: at most one core, and the actors that
/// feed and drain only it. Blocks cross these wires at once, so that a block goes from DDR through a memory tile and a
/// core and back in one round.
#[derive(Default)]
pub(super) struct Cluster<'p> {
    pub(super) actors: Vec<Actor<'p>>,
    wires: Vec<ChannelWire>,
    /// By actor: its wires among `wires`.
    wires_of: Vec<Vec<usize>>,
    pub(super) trouble: Option<Trouble>,
}

struct Inside<'a, 'p>(&'a mut [Actor<'p>]);

impl<'p> Actors<'p> for Inside<'_, 'p> {
    fn actor(&mut self, at: At) -> &mut Actor<'p> {
        &mut self.0[at.actor]
    }
}

impl<'p> Actors<'p> for [Mutex<Cluster<'p>>] {
    fn actor(&mut self, at: At) -> &mut Actor<'p> {
        &mut own(&mut self[at.cluster]).actors[at.actor]
    }
}

impl Cluster<'_> {
    pub(super) fn is_runnable(&self) -> bool {
        self.actors.iter().any(|actor| actor.is_runnable)
    }

    /// Runs until all actors wait for others, or the round's units are spent.
    pub(super) fn step(&mut self, ctx: &LaunchContext<'_>) {
        let (mut spent, mut ran) = (0, true);
        while ran && spent <= QUANTUM.min(ctx.max_units) {
            ran = false;
            for i in 0..self.actors.len() {
                let actor = &mut self.actors[i];
                if !actor.is_runnable {
                    continue;
                }
                ran = true;
                let before = actor.tally.spent;
                actor.step(ctx);
                spent += actor.tally.spent - before;
                if let Some(trouble) = actor.trouble.take() {
                    self.trouble = Some(trouble);
                    return;
                }
                for &wire in &self.wires_of[i] {
                    self.wires[wire].deliver(&mut Inside(&mut self.actors));
                }
            }
        }
    }
}

/// A launch at work.
pub(super) struct ActorNetwork<'p> {
    pub(super) clusters: Vec<Mutex<Cluster<'p>>>,
    /// Between clusters.
    wires: Vec<ChannelWire>,
    /// By cluster: its wires among `wires`.
    wires_of: Vec<Vec<usize>>,
    /// Scratch of [`exchange`](ActorNetwork::exchange).
    touched: Vec<bool>,
}

/// The cluster in a lock that is not held.
pub(super) fn own<'a, 'p>(cluster: &'a mut Mutex<Cluster<'p>>) -> &'a mut Cluster<'p> {
    cluster.get_mut().unwrap_or_else(PoisonError::into_inner)
}

impl<'p> ActorNetwork<'p> {
    /// The actors of a launch.
    pub(super) fn new(
        flat: &'p Flat<'p>,
        lent: ReadOnlySlots<'p>,
    ) -> Result<ActorNetwork<'p>, Trouble> {
        let mut actors: Vec<Actor<'p>> = Vec::new();
        for number in 0..flat.stages.len() {
            actors.push(Actor::new(ActorKind::Stage(StageActor::new(number, flat))));
        }
        let mut codes: HashMap<usize, Arc<HerdCode<'p>>> = HashMap::new();
        for (number, core) in flat.cores.iter().enumerate() {
            let code = match codes.get(&core.herd) {
                Some(code) => Arc::clone(code),
                None => {
                    let code = Arc::new(compile(core.decl)?);
                    codes.insert(core.herd, Arc::clone(&code));
                    code
                }
            };
            actors.push(Actor::new(ActorKind::Core(CoreActor::new(
                number, code, flat,
            ))));
        }
        let mut wires = Vec::with_capacity(flat.channels.len());
        for (id, channel) in flat.channels.iter().enumerate() {
            wires.push(connect(id, channel, &mut actors, (flat, lent))?);
        }
        Ok(ActorNetwork::clustered(actors, wires))
    }

    /// Puts actors into clusters: those with cores first, as they take longest, then by number.
    fn clustered(actors: Vec<Actor<'p>>, wires: Vec<ChannelWire>) -> ActorNetwork<'p> {
        let root = join(&actors, &wires);
        let mut roots: Vec<usize> = (0..actors.len()).filter(|&i| root[i] == i).collect();
        let is_core = |i: usize| matches!(actors[i].kind, ActorKind::Core(_));
        let has_core: Vec<bool> = (roots.iter())
            .map(|&r| (0..actors.len()).any(|i| root[i] == r && is_core(i)))
            .collect();
        let order: HashMap<usize, bool> = roots.iter().copied().zip(has_core).collect();
        roots.sort_by_key(|r| (!order[r], *r));
        let cluster_of: HashMap<usize, usize> =
            roots.iter().enumerate().map(|(n, &r)| (r, n)).collect();
        let mut clusters: Vec<Cluster<'p>> = Vec::new();
        clusters.resize_with(roots.len(), Cluster::default);
        let mut at = Vec::with_capacity(actors.len());
        for (i, actor) in actors.into_iter().enumerate() {
            let cluster = cluster_of[&root[i]];
            at.push((cluster, clusters[cluster].actors.len()));
            clusters[cluster].actors.push(actor);
            clusters[cluster].wires_of.push(Vec::new());
        }
        let mut network = ActorNetwork {
            wires: Vec::new(),
            wires_of: vec![Vec::new(); clusters.len()],
            touched: Vec::new(),
            clusters: Vec::new(),
        };
        for mut wire in wires {
            for end in std::iter::once(&mut wire.from).chain(&mut wire.to) {
                (end.cluster, end.actor) = at[end.actor];
            }
            network.add(wire, &mut clusters);
        }
        network.clusters = clusters.into_iter().map(Mutex::new).collect();
        network
    }

    fn add(&mut self, wire: ChannelWire, clusters: &mut [Cluster<'p>]) {
        let home = wire.from.cluster;
        let ends = std::iter::once(&wire.from).chain(&wire.to);
        if wire.to.iter().all(|to| to.cluster == home) {
            let cluster = &mut clusters[home];
            for end in ends {
                cluster.wires_of[end.actor].push(cluster.wires.len());
            }
            cluster.wires.push(wire);
        } else {
            for end in ends {
                self.wires_of[end.cluster].push(self.wires.len());
            }
            self.wires.push(wire);
        }
    }

    /// Delivers blocks and room over the wires of the clusters that ran.
    pub(super) fn exchange(&mut self, ran: &[usize]) {
        self.touched.clear();
        self.touched.resize(self.wires.len(), false);
        for &cluster in ran {
            for &wire in &self.wires_of[cluster] {
                self.touched[wire] = true;
            }
        }
        for (wire, _) in self.wires.iter().zip(&self.touched).filter(|(_, t)| **t) {
            wire.deliver(&mut self.clusters[..]);
        }
    }

    fn actors(&mut self) -> Vec<&mut Actor<'p>> {
        let clusters = self.clusters.iter_mut().map(own);
        clusters.flat_map(|cluster| &mut cluster.actors).collect()
    }

    /// Whether every shim task up to that grid point has ended.
    pub(super) fn is_past(&mut self, point: u64) -> bool {
        let mut clusters = self.clusters.iter_mut().map(own);
        clusters.all(|cluster| {
            cluster.actors.iter().all(|actor| match &actor.kind {
                ActorKind::Reader(shim) | ActorKind::Writer(shim) => shim.is_past(point),
                ActorKind::Stage(_) | ActorKind::Core(_) => true,
            })
        })
    }

    /// Lets the shims look for work again.
    pub(super) fn wake_shims(&mut self) {
        for actor in self.clusters.iter_mut().flat_map(|c| &mut own(c).actors) {
            if matches!(actor.kind, ActorKind::Reader(_) | ActorKind::Writer(_)) {
                actor.is_runnable = true;
            }
        }
    }

    /// All parties that have not ended, in the middle of a run.
    pub(super) fn running(&mut self, ctx: &LaunchContext<'_>) -> Vec<Waiting> {
        let parties = self.actors().into_iter().flat_map(|a| a.waiting(ctx));
        parties
            .map(|party| Waiting {
                what: "had not ended".to_owned(),
                ..party
            })
            .collect()
    }

    /// The verdict when no actor can go on: whether all is done, and the fault if not.
    pub(super) fn verdict(&mut self, ctx: &LaunchContext<'_>) -> Result<(), SimulationFault> {
        let launch = ctx.flat.launch.name.clone();
        let actors = self.actors();
        if !actors.iter().all(|actor| actor.is_done()) {
            let waiting = actors.iter().flat_map(|actor| actor.waiting(ctx)).collect();
            return Err(SimulationFault::Deadlock { launch, waiting });
        }
        let mut left = Vec::new();
        for actor in &actors {
            let (who, site, n) = match &actor.kind {
                ActorKind::Stage(stage) => {
                    let name = ctx.flat.stage_name(stage.number);
                    let who = format!("stage `{name}`");
                    (who, Site::default(), stage.n_blocks())
                }
                ActorKind::Core(core) => {
                    let name = ctx.flat.core_name(core.number);
                    let site = core_site(ctx.flat, core.number);
                    (format!("core {name}"), site, core.n_held())
                }
                ActorKind::Reader(_) | ActorKind::Writer(_) => continue,
            };
            if n > 0 {
                left.push(Waiting {
                    who,
                    site,
                    what: format!("holds {n} blocks"),
                });
            }
        }
        for actor in &actors {
            // Blocks that a stage made ahead are still in its memory.
            let outboxes =
                (actor.senders.iter()).map(|s| (s.channel, s.outbox.len().saturating_sub(s.ahead)));
            let inboxes = actor.receivers.iter().map(|r| (r.channel, r.inbox.len()));
            for (channel, n) in outboxes.chain(inboxes).filter(|&(_, n)| n > 0) {
                left.push(Waiting {
                    who: format!("channel `{}`", ctx.flat.channel_name(channel)),
                    site: Site::default(),
                    what: format!("holds {n} blocks"),
                });
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        Err(SimulationFault::Leftover { launch, left })
    }

    /// Units that all actors have spent.
    pub(super) fn spent(&mut self) -> u64 {
        let actors = self.clusters.iter_mut().flat_map(|c| &own(c).actors);
        actors.fold(0, |sum, actor| sum.saturating_add(actor.tally.spent))
    }

    /// Counters of all actors.
    pub(super) fn totals(&mut self) -> LaunchCounters {
        let mut counters = LaunchCounters {
            n_units: self.spent(),
            ..LaunchCounters::default()
        };
        for actor in self.actors() {
            counters.add(&actor.tally.counters);
        }
        counters
    }
}

/// By actor: the smallest number of its cluster. A channel with one sink joins its ends, unless that would put two
/// cores together, which have to run on two threads.
fn join(actors: &[Actor<'_>], wires: &[ChannelWire]) -> Vec<usize> {
    let mut root: Vec<usize> = (0..actors.len()).collect();
    let mut has_core: Vec<bool> = (actors.iter())
        .map(|actor| matches!(actor.kind, ActorKind::Core(_)))
        .collect();
    for wire in wires {
        let [to] = &wire.to[..] else { continue };
        let (a, b) = (root[wire.from.actor], root[to.actor]);
        if a == b || (has_core[a] && has_core[b]) {
            continue;
        }
        let (low, high) = (a.min(b), a.max(b));
        has_core[low] |= has_core[high];
        for root in root.iter_mut().filter(|root| **root == high) {
            *root = low;
        }
    }
    root
}
