//! The actors of a launch, and the rounds in which they run.

use super::code::Code;
use super::context::{Context, Trouble, core_site, elements, plan};
use super::core::Core;
use super::counters::{LaunchCounters, Tally};
use super::ends::{Receiver, Sender, max_in_flight};
use super::fault::{Fault, Site, Waiting};
use super::shim::Shim;
use super::stage::Stage;
use crate::program::{Env, Flat, FlatChannel, Herd, Link, Port};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One party, with the ends of its channels.
pub(super) struct Actor<'p> {
    pub(super) kind: Kind<'p>,
    pub(super) senders: Vec<Sender>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) tally: Tally,
    pub(super) trouble: Option<Trouble>,
    /// Whether something has changed since it last blocked.
    pub(super) is_runnable: bool,
}

/// What an actor is.
pub(super) enum Kind<'p> {
    Reader(Shim),
    Writer(Shim),
    Stage(Stage),
    Core(Core<'p>),
}

/// A channel's ends as (actor, position among its senders or receivers).
struct Wire {
    from: (usize, usize),
    to: Vec<(usize, usize)>,
    /// Whether both ends use the same buffers.
    is_shared: bool,
}

/// A launch at work.
pub(super) struct Network<'p> {
    pub(super) actors: Vec<Mutex<Actor<'p>>>,
    wires: Vec<Wire>,
    /// Wires of each actor.
    wires_of: Vec<Vec<usize>>,
}

impl Actor<'_> {
    fn new(kind: Kind<'_>) -> Actor<'_> {
        Actor {
            kind,
            senders: Vec::new(),
            receivers: Vec::new(),
            tally: Tally::default(),
            trouble: None,
            is_runnable: true,
        }
    }

    /// Runs until it blocks. Writes to DDR come later in the round.
    pub(super) fn step(&mut self, ctx: &Context<'_>) {
        let before = self.tally.spent;
        self.tally.spent = 0;
        let (senders, receivers) = (&mut self.senders[..], &mut self.receivers[..]);
        let tally = &mut self.tally;
        let result =
            match &mut self.kind {
                Kind::Reader(shim) => match senders {
                    [to] => shim.read(to, ctx, &mut tally.spent).map(|bytes| {
                        tally.counters.ddr_read_bytes += bytes;
                    }),
                    _ => Ok(()),
                },
                Kind::Writer(shim) => match receivers {
                    [from] => shim.prepare(from, ctx, &mut tally.spent),
                    _ => Ok(()),
                },
                Kind::Stage(stage) => stage.step(senders, receivers, ctx, &mut tally.spent).map(
                    |(filled, drained)| {
                        tally.counters.l2_filled_bytes += filled;
                        tally.counters.l2_drained_bytes += drained;
                    },
                ),
                Kind::Core(core) => core.step(senders, receivers, ctx, tally).map(|_| ()),
            };
        self.is_runnable = self.tally.spent > super::context::QUANTUM;
        self.tally.spent = self.tally.spent.saturating_add(before);
        self.trouble = result.err();
    }

    fn waiting(&self, ctx: &Context<'_>) -> Vec<Waiting> {
        match &self.kind {
            Kind::Reader(shim) => shim.waiting(true, ctx).into_iter().collect(),
            Kind::Writer(shim) => shim.waiting(false, ctx).into_iter().collect(),
            Kind::Stage(stage) => stage.waiting(&self.senders, ctx),
            Kind::Core(core) => core
                .waiting(&self.senders, &self.receivers, ctx)
                .into_iter()
                .collect(),
        }
    }

    fn is_done(&self) -> bool {
        match &self.kind {
            Kind::Reader(shim) | Kind::Writer(shim) => shim.is_done(),
            Kind::Stage(_) => true,
            Kind::Core(core) => core.is_done(),
        }
    }
}

/// The actor behind a lock that nobody holds.
pub(super) fn own<'a, 'p>(actor: &'a mut Mutex<Actor<'p>>) -> &'a mut Actor<'p> {
    actor.get_mut().unwrap_or_else(PoisonError::into_inner)
}

impl<'p> Network<'p> {
    /// The actors of a launch: stages, cores, then shims by channel.
    pub(super) fn new(flat: &'p Flat<'p>) -> Result<Network<'p>, Trouble> {
        let mut actors: Vec<Actor<'p>> = Vec::new();
        for number in 0..flat.stages.len() {
            actors.push(Actor::new(Kind::Stage(Stage::new(number, flat))));
        }
        let mut codes: HashMap<usize, Arc<Code<'p>>> = HashMap::new();
        for (number, core) in flat.cores.iter().enumerate() {
            let code = match codes.get(&core.herd) {
                Some(code) => Arc::clone(code),
                None => {
                    let code = Arc::new(compile(core.decl)?);
                    codes.insert(core.herd, Arc::clone(&code));
                    code
                }
            };
            actors.push(Actor::new(Kind::Core(Core::new(number, code, flat))));
        }
        let mut network = Network {
            actors: Vec::new(),
            wires: Vec::new(),
            wires_of: Vec::new(),
        };
        for (id, channel) in flat.channels.iter().enumerate() {
            let wire = connect(id, channel, &mut actors, flat)?;
            network.wires.push(wire);
        }
        network.wires_of = vec![Vec::new(); actors.len()];
        for (id, wire) in network.wires.iter().enumerate() {
            network.wires_of[wire.from.0].push(id);
            for to in &wire.to {
                network.wires_of[to.0].push(id);
            }
        }
        network.actors = actors.into_iter().map(Mutex::new).collect();
        Ok(network)
    }

    /// Delivers blocks and room over the wires of the actors that ran. Whoever gets something
    /// becomes runnable.
    pub(super) fn exchange(&mut self, ran: &[usize], touched: &mut Vec<bool>) {
        touched.clear();
        touched.resize(self.wires.len(), false);
        for &actor in ran {
            for &wire in &self.wires_of[actor] {
                touched[wire] = true;
            }
        }
        for (wire, _) in self
            .wires
            .iter()
            .zip(touched)
            .filter(|(_, touched)| **touched)
        {
            deliver(wire, &mut self.actors);
        }
    }

    /// Whether every shim task up to that grid point has ended.
    pub(super) fn is_past(&mut self, point: u64) -> bool {
        self.actors.iter_mut().all(|actor| match &own(actor).kind {
            Kind::Reader(shim) | Kind::Writer(shim) => shim.is_past(point),
            Kind::Stage(_) | Kind::Core(_) => true,
        })
    }

    /// Lets the shims look for work again.
    pub(super) fn wake_shims(&mut self) {
        for actor in &mut self.actors {
            let actor = own(actor);
            if matches!(actor.kind, Kind::Reader(_) | Kind::Writer(_)) {
                actor.is_runnable = true;
            }
        }
    }

    /// Everyone who has not ended, in the middle of a run.
    pub(super) fn running(&mut self, ctx: &Context<'_>) -> Vec<Waiting> {
        let actors = self.actors.iter_mut().map(own);
        let parties = actors.flat_map(|actor| actor.waiting(ctx));
        parties
            .map(|party| Waiting {
                what: "had not ended".to_owned(),
                ..party
            })
            .collect()
    }

    /// When nobody can go on: whether all is done, and how not.
    pub(super) fn verdict(&mut self, ctx: &Context<'_>) -> Result<(), Fault> {
        let launch = ctx.flat.launch.name.clone();
        let actors: Vec<&mut Actor<'_>> = self.actors.iter_mut().map(own).collect();
        if !actors.iter().all(|actor| actor.is_done()) {
            let waiting = actors.iter().flat_map(|actor| actor.waiting(ctx)).collect();
            return Err(Fault::Deadlock { launch, waiting });
        }
        let mut left = Vec::new();
        for actor in &actors {
            let (who, site, n) = match &actor.kind {
                Kind::Stage(stage) => {
                    let name = ctx.flat.stage_name(stage.number);
                    let who = format!("stage `{name}`");
                    (who, Site::default(), stage.n_blocks())
                }
                Kind::Core(core) => {
                    let name = ctx.flat.core_name(core.number);
                    let site = core_site(ctx.flat, core.number);
                    (format!("core {name}"), site, core.n_held())
                }
                Kind::Reader(_) | Kind::Writer(_) => continue,
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
            // What a stage made ahead is still in its memory.
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
        Err(Fault::Leftover { launch, left })
    }

    /// Counters of all actors, and their units.
    pub(super) fn totals(&mut self) -> (LaunchCounters, u64) {
        let mut counters = LaunchCounters::default();
        let mut spent = 0_u64;
        for actor in &mut self.actors {
            let tally = &own(actor).tally;
            counters.add(&tally.counters);
            spent = spent.saturating_add(tally.spent);
        }
        (counters, spent)
    }
}

fn compile(herd: &Herd) -> Result<Code<'_>, Trouble> {
    Code::new(herd).map_err(|problem| Trouble {
        place: format!("herd {}", herd.name),
        site: Site::default(),
        point: None,
        problem,
    })
}

/// The actor of a port; shims get one of their own for each channel.
fn actor_of<'p>(
    port: Port,
    id: usize,
    reads: bool,
    actors: &mut Vec<Actor<'p>>,
    flat: &'p Flat<'p>,
) -> usize {
    match port {
        Port::Memory { stage, .. } => stage,
        Port::Core { core } => flat.stages.len() + core,
        Port::Shim { .. } => {
            let transfers = (flat.transfers.iter().enumerate())
                .filter(|(_, transfer)| transfer.channel == id)
                .map(|(number, _)| number)
                .collect();
            let shim = Shim::new(id, transfers, flat);
            actors.push(Actor::new(if reads {
                Kind::Reader(shim)
            } else {
                Kind::Writer(shim)
            }));
            actors.len() - 1
        }
    }
}

/// Makes the ends of a channel.
fn connect<'p>(
    id: usize,
    channel: &FlatChannel<'p>,
    actors: &mut Vec<Actor<'p>>,
    flat: &'p Flat<'p>,
) -> Result<Wire, Trouble> {
    let decl = channel.decl;
    let buffers = |port: Port| matches!(port, Port::Core { .. }).then_some(decl.depth as usize);
    let mut sender = Sender::new(id, decl.block_bytes() as usize, buffers(channel.from));
    let to_cores = (channel.to.iter()).all(|port| matches!(port, Port::Core { .. }));
    if to_cores && matches!(channel.from, Port::Memory { .. }) {
        sender.ahead = (decl.depth as usize).min(max_in_flight(decl.block_bytes()));
    }
    if let Some(pattern) = &decl.to_pattern {
        let env = Env {
            index: &channel.index,
            ..Env::default()
        };
        let n = elements(&decl.block).unwrap_or(u64::MAX);
        let made = plan(pattern, &env, flat, id, (decl.element.size_bytes(), n));
        let problem = match made {
            Ok(plan) if plan.n_blocks() == 1 => {
                sender.reorder = Some(plan);
                None
            }
            Ok(plan) => Some(format!(
                "the receiving pattern visits {} blocks, not one",
                plan.n_blocks()
            )),
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem {
            return Err(Trouble {
                place: format!("channel {}", flat.channel_name(id)),
                site: Site::default(),
                point: None,
                problem,
            });
        }
    }
    let from = actor_of(channel.from, id, true, actors, flat);
    let from = (from, place(&mut actors[from].senders, sender, channel.from));
    let mut to = Vec::with_capacity(channel.to.len());
    for &port in &channel.to {
        let actor = actor_of(port, id, false, actors, flat);
        let receiver = Receiver::new(id, buffers(port));
        to.push((actor, place(&mut actors[actor].receivers, receiver, port)));
    }
    Ok(Wire {
        from,
        to,
        is_shared: decl.link == Link::Neighbour,
    })
}

/// Adds an end. A stage's ends stand in the order of its fills and drains.
fn place<E: Placed>(ends: &mut Vec<E>, end: E, port: Port) -> usize {
    let Port::Memory { end: position, .. } = port else {
        ends.push(end);
        return ends.len() - 1;
    };
    while ends.len() <= position {
        ends.push(E::nobody());
    }
    ends[position] = end;
    position
}

trait Placed {
    /// An end to be replaced.
    fn nobody() -> Self;
}

impl Placed for Sender {
    fn nobody() -> Sender {
        Sender::new(usize::MAX, 0, None)
    }
}

impl Placed for Receiver {
    fn nobody() -> Receiver {
        Receiver::new(usize::MAX, None)
    }
}

/// Moves blocks from the outbox while every sink has room, and tells the source how much more.
fn deliver(wire: &Wire, actors: &mut [Mutex<Actor<'_>>]) {
    let room_of = |actors: &mut [Mutex<Actor<'_>>]| {
        let rooms = wire
            .to
            .iter()
            .map(|&(actor, end)| own(&mut actors[actor]).receivers[end].room());
        rooms.min().unwrap_or(0)
    };
    let room = room_of(actors);
    let sender = &mut own(&mut actors[wire.from.0]).senders[wire.from.1];
    // With buffers of both ends in common, what is sent is already there.
    let n = if wire.is_shared {
        sender.outbox.len()
    } else {
        sender.outbox.len().min(room)
    };
    let parcels: Vec<_> = sender.outbox.drain(..n).collect();
    if !parcels.is_empty() {
        for &(actor, end) in &wire.to {
            let actor = own(&mut actors[actor]);
            actor.receivers[end].inbox.extend(parcels.iter().cloned());
            actor.is_runnable = true;
        }
    }
    drop(parcels);
    let (mut freed, mut beyond) = (Vec::new(), 0);
    for &(actor, end) in &wire.to {
        let receiver = &mut own(&mut actors[actor]).receivers[end];
        freed.append(&mut receiver.freed);
        beyond = beyond.max(receiver.holds());
    }
    let room = room_of(actors);
    let actor = own(&mut actors[wire.from.0]);
    let sender = &mut actor.senders[wire.from.1];
    let had_room = sender.has_room();
    for block in freed {
        sender.recycle(block);
    }
    sender.beyond = if wire.is_shared { beyond } else { 0 };
    sender.room = room;
    if sender.has_room() && (!had_room || n > 0) {
        actor.is_runnable = true;
    }
}
