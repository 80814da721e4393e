//! Channels between actors: their ends are made here, and blocks and room cross them.

use super::actor::{Actor, ActorKind};
use super::code::HerdCode;
use super::context::{Trouble, elements, motion};
use super::ends::{Receiver, Sender, max_in_flight};
use super::shim::Shim;
use crate::program::{ChannelLink, Env, Flat, FlatChannel, Herd, Port};

/// By slot: its bytes, if they are not written while the launch runs.
pub(super) type ReadOnlySlots<'p> = &'p [Option<&'p [u8]>];

/// An end of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    /// The actor's cluster; 0 before there are any.
    pub(super) cluster: usize,
    /// The actor, in its cluster.
    pub(super) actor: usize,
    /// Position among its senders or receivers.
    end: usize,
}

impl At {
    fn new(actor: usize, end: usize) -> At {
        At {
            cluster: 0,
            actor,
            end,
        }
    }
}

/// A channel's ends.
#[derive(Clone, Debug)]
pub(super) struct ChannelWire {
    pub(super) from: At,
    pub(super) to: Vec<At>,
    /// Whether both ends use the same buffers.
    is_shared: bool,
}

/// Actors that wires run between.
pub(super) trait Actors<'p> {
    fn actor(&mut self, at: At) -> &mut Actor<'p>;
}

impl ChannelWire {
    /// Moves blocks from the outbox while every sink has room, and tells the source how much more.
    /// Every actor that receives something becomes runnable.
    pub(super) fn deliver<'p>(&self, actors: &mut (impl Actors<'p> + ?Sized)) {
        let mut room = usize::MAX;
        for &to in &self.to {
            room = room.min(actors.actor(to).receivers[to.end].room());
        }
        let sender = &mut actors.actor(self.from).senders[self.from.end];
        // If both ends share buffers, sent blocks are already there.
        let n = match self.is_shared {
            true => sender.outbox.len(),
            false => sender.outbox.len().min(room),
        };
        for _ in 0..n {
            let sender = &mut actors.actor(self.from).senders[self.from.end];
            let Some(parcel) = sender.outbox.pop_front() else {
                break;
            };
            let Some((&last, others)) = self.to.split_last() else {
                break;
            };
            for &to in others {
                (actors.actor(to).receivers[to.end].inbox).push_back(parcel.clone());
            }
            (actors.actor(last).receivers[last.end].inbox).push_back(parcel);
        }
        let (mut room, mut beyond) = (usize::MAX, 0);
        for &to in &self.to {
            let actor = actors.actor(to);
            actor.is_runnable |= n > 0;
            let receiver = &mut actor.receivers[to.end];
            let freed = std::mem::take(&mut receiver.freed);
            (room, beyond) = (room.min(receiver.room()), beyond.max(receiver.holds()));
            if freed.is_empty() {
                continue;
            }
            let sender = &mut actors.actor(self.from).senders[self.from.end];
            freed.into_iter().for_each(|block| sender.recycle(block));
        }
        let actor = actors.actor(self.from);
        let sender = &mut actor.senders[self.from.end];
        let had_room = sender.has_room();
        sender.beyond = if self.is_shared { beyond } else { 0 };
        sender.room = if self.to.is_empty() { 0 } else { room };
        if sender.has_room() && (!had_room || n > 0) {
            actor.is_runnable = true;
        }
    }
}

pub(super) fn compile(herd: &Herd) -> Result<HerdCode<'_>, Trouble> {
    HerdCode::new(herd).map_err(|problem| Trouble::at(format!("herd {}", herd.name), problem))
}

/// The actor of a port. Shims get one for each channel.
fn actor_of<'p>(
    port: Port,
    id: usize,
    reads: bool,
    actors: &mut Vec<Actor<'p>>,
    (flat, lent): (&'p Flat<'p>, ReadOnlySlots<'p>),
) -> usize {
    match port {
        Port::Memory { stage, .. } => stage,
        Port::Core { core } => flat.stages.len() + core,
        Port::Shim { .. } => {
            let transfers = (flat.transfers.iter().enumerate())
                .filter(|(_, transfer)| transfer.channel == id)
                .map(|(number, _)| number)
                .collect();
            let shim = Shim::new(id, transfers, flat, lent);
            actors.push(Actor::new(if reads {
                ActorKind::Reader(shim)
            } else {
                ActorKind::Writer(shim)
            }));
            actors.len() - 1
        }
    }
}

/// Makes the ends of a channel.
pub(super) fn connect<'p>(
    id: usize,
    channel: &FlatChannel<'p>,
    actors: &mut Vec<Actor<'p>>,
    (flat, lent): (&'p Flat<'p>, ReadOnlySlots<'p>),
) -> Result<ChannelWire, Trouble> {
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
        let made = motion(pattern, &env, flat, id, (decl.element.size_bytes(), n));
        let problem = match made {
            Ok(motion) if motion.n_blocks() == 1 => {
                sender.reorder = Some(motion);
                None
            }
            Ok(motion) => Some(format!(
                "the receiving pattern visits {} blocks, not one",
                motion.n_blocks()
            )),
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem {
            let place = format!("channel {}", flat.channel_name(id));
            return Err(Trouble::at(place, problem));
        }
    }
    let from = actor_of(channel.from, id, true, actors, (flat, lent));
    let from = At::new(from, place(&mut actors[from].senders, sender, channel.from));
    let mut to = Vec::with_capacity(channel.to.len());
    for &port in &channel.to {
        let actor = actor_of(port, id, false, actors, (flat, lent));
        let receiver = Receiver::new(id, buffers(port));
        to.push(At::new(
            actor,
            place(&mut actors[actor].receivers, receiver, port),
        ));
    }
    Ok(ChannelWire {
        from,
        to,
        is_shared: decl.link == ChannelLink::Neighbour,
    })
}

/// Adds an end. A stage's ends are in the order of its fills and drains.
fn place<E: ChannelSide>(ends: &mut Vec<E>, end: E, port: Port) -> usize {
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

trait ChannelSide {
    /// An end to be replaced.
    fn nobody() -> Self;
}

impl ChannelSide for Sender<'_> {
    fn nobody() -> Self {
        Sender::new(usize::MAX, 0, None)
    }
}

impl ChannelSide for Receiver<'_> {
    fn nobody() -> Self {
        Receiver::new(usize::MAX, None)
    }
}
