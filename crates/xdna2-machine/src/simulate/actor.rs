//! The parties of a launch.

use super::context::{LaunchContext, QUANTUM, Trouble};
use super::core::CoreActor;
use super::counters::Tally;
use super::ends::{Receiver, Sender};
use super::fault::Waiting;
use super::shim::Shim;
use super::stage::StageActor;

/// One party, with the ends of its channels.
pub(super) struct Actor<'p> {
    pub(super) kind: ActorKind<'p>,
    pub(super) senders: Vec<Sender<'p>>,
    pub(super) receivers: Vec<Receiver<'p>>,
    pub(super) tally: Tally,
    pub(super) trouble: Option<Trouble>,
    /// Whether something has changed since it last blocked.
    pub(super) is_runnable: bool,
}

/// Kind of an actor.
pub(super) enum ActorKind<'p> {
    Reader(Shim<'p>),
    Writer(Shim<'p>),
    Stage(StageActor<'p>),
    Core(CoreActor<'p>),
}

impl<'p> Actor<'p> {
    pub(super) fn new(kind: ActorKind<'p>) -> Actor<'p> {
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
    pub(super) fn step(&mut self, ctx: &LaunchContext<'_>) {
        let before = self.tally.spent;
        self.tally.spent = 0;
        let (senders, receivers) = (&mut self.senders[..], &mut self.receivers[..]);
        let tally = &mut self.tally;
        let result =
            match &mut self.kind {
                ActorKind::Reader(shim) => match senders {
                    [to] => shim.read(to, ctx, &mut tally.spent).map(|bytes| {
                        tally.counters.ddr_read_bytes += bytes;
                    }),
                    _ => Ok(()),
                },
                ActorKind::Writer(shim) => match receivers {
                    [from] => shim.prepare(from, ctx, &mut tally.spent),
                    _ => Ok(()),
                },
                ActorKind::Stage(stage) => stage
                    .step(senders, receivers, ctx, &mut tally.spent)
                    .map(|(filled, drained)| {
                        tally.counters.l2_filled_bytes += filled;
                        tally.counters.l2_drained_bytes += drained;
                    }),
                ActorKind::Core(core) => core.step(senders, receivers, ctx, tally).map(|_| ()),
            };
        self.is_runnable = self.tally.spent > QUANTUM;
        self.tally.spent = self.tally.spent.saturating_add(before);
        self.trouble = result.err();
    }

    pub(super) fn waiting(&self, ctx: &LaunchContext<'_>) -> Vec<Waiting> {
        match &self.kind {
            ActorKind::Reader(shim) => shim.waiting(true, ctx).into_iter().collect(),
            ActorKind::Writer(shim) => shim.waiting(false, ctx).into_iter().collect(),
            ActorKind::Stage(stage) => stage.waiting(&self.senders, ctx),
            ActorKind::Core(core) => core
                .waiting(&self.senders, &self.receivers, ctx)
                .into_iter()
                .collect(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match &self.kind {
            ActorKind::Reader(shim) | ActorKind::Writer(shim) => shim.is_done(),
            ActorKind::Stage(_) => true,
            ActorKind::Core(core) => core.is_done(),
        }
    }
}
