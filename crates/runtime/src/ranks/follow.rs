//! Ranks other than 0: they repeat the leader's actions, on their own sequences.

use std::collections::HashMap;
use std::sync::Arc;

use super::command::{Name, RankCommand, StepItem};
use super::handshake::{RankSetup, shake_hands};
use super::{Communicator, RankError, RankTraffic, Ranks, link, profile};
use crate::Error;
use crate::cpu_engine::{CpuEngine, EngineOptions};
use crate::engine::{BatchItem, Engine, ItemRows};
use crate::load::LoadedModel;
use crate::sequences::SeqId;

/// Follows rank 0 until its engine is dropped. Returns the traffic.
///
/// # Errors
/// As [`CpuEngine::new`]; [`Error::Rank`] for a lost or different rank.
pub fn follow(
    model: &Arc<LoadedModel>,
    options: EngineOptions,
    ranks: Box<dyn Ranks>,
) -> Result<RankTraffic, Error> {
    let setup = RankSetup::of(model, &options)?;
    let mut ranks = Communicator::new(ranks);
    shake_hands(&mut ranks, &setup)?;
    let mut follower = Follower {
        engine: CpuEngine::with_ranks(model, options, ranks)?,
        seqs: HashMap::new(),
    };
    loop {
        match RankCommand::hear(follower.ranks())? {
            RankCommand::Close => return Ok(follower.ranks().traffic()),
            command => follower.obey(&command)?,
        }
    }
}

struct Follower {
    engine: CpuEngine,
    /// Its sequences by the leader's names.
    seqs: HashMap<Name, SeqId>,
}

impl Follower {
    fn ranks(&mut self) -> &mut Communicator {
        let ranks = self.engine.ranks_mut();
        ranks.expect("the engine was made with ranks")
    }

    fn obey(&mut self, command: &RankCommand) -> Result<(), Error> {
        match command {
            RankCommand::Create { seq } => {
                let own = self.engine.create()?;
                self.seqs.insert(*seq, own);
            }
            RankCommand::Fork { from, seq } => {
                let own = self.engine.fork(self.seq(*from)?)?;
                self.seqs.insert(*seq, own);
            }
            RankCommand::Truncate { seq, len } => self.engine.truncate(self.seq(*seq)?, *len)?,
            RankCommand::SetScope { seq, scope } => {
                self.engine.set_scope(self.seq(*seq)?, *scope)?
            }
            RankCommand::ReusePrefix { seq, prompt, len } => {
                let own = self.engine.reuse_prefix(self.seq(*seq)?, prompt)?;
                self.compare(*seq, own, *len)?;
            }
            RankCommand::Release { seq } => {
                self.engine.release(self.seq(*seq)?)?;
                self.seqs.remove(seq);
            }
            RankCommand::Step { items } => self.step(items)?,
            RankCommand::Profile => {
                profile::share(self.ranks())?;
            }
            RankCommand::Exchange { n_elems, n_times } => {
                link::exchange(self.ranks(), *n_elems, *n_times)?;
            }
            RankCommand::Nothing | RankCommand::Close => {}
        }
        Ok(())
    }

    fn step(&mut self, items: &[StepItem]) -> Result<(), Error> {
        let mut batch: Vec<BatchItem<'_>> = Vec::with_capacity(items.len());
        for item in items {
            let seq = self.seq(item.seq)?;
            self.compare(item.seq, self.engine.len(seq)?, item.len)?;
            batch.push(item.item(seq));
        }
        self.engine.step(&batch, &mut |_: ItemRows<'_>| {})
    }

    fn seq(&self, name: Name) -> Result<SeqId, RankError> {
        let differs = || self.differs(format!("it has no sequence {name}"));
        self.seqs.get(&name).copied().ok_or_else(differs)
    }

    fn compare(&self, name: Name, own: usize, leader: usize) -> Result<(), RankError> {
        if own == leader {
            return Ok(());
        }
        let what = format!("sequence {name} holds {own} tokens, that of rank 0 {leader}");
        Err(self.differs(what))
    }

    fn differs(&self, difference: String) -> RankError {
        let rank = self.engine.rank();
        RankError::Differs { rank, difference }
    }
}
