//! The engine of rank 0: it executes each request, and forwards it to the other ranks.

use std::sync::Arc;

use millrace_kernels::Cpu;

use super::command::{RankCommand, StepItem};
use super::handshake::{RankSetup, shake_hands};
use super::{
    Communicator, LinkMeasurement, RankError, RankProfile, RankTraffic, Ranks, link, profile,
};
use crate::Error;
use crate::cpu_engine::{CpuEngine, EngineOptions};
use crate::engine::{BatchItem, Engine, EngineCounters, EngineLimits, KvUsage, StepSink};
use crate::load::LoadedModel;
use crate::sequences::SeqId;

/// A CPU engine on rank 0 whose model several ranks share. When it is dropped the other ranks end.
///
/// Its cache and the numbers of [`kv_usage`](Engine::kv_usage) are those of this rank. It does not support images.
pub struct LeaderEngine {
    engine: CpuEngine,
}

impl LeaderEngine {
    /// Waits for all other ranks to [`follow`](super::follow), with the same model and options.
    ///
    /// # Errors
    /// As [`CpuEngine::new`]; [`Error::Rank`] for a lost or different rank.
    ///
    /// # Panics
    /// If this is not rank 0.
    pub fn new(
        model: &Arc<LoadedModel>,
        options: EngineOptions,
        ranks: Box<dyn Ranks>,
    ) -> Result<LeaderEngine, Error> {
        assert_eq!(ranks.place().rank, 0, "rank 0 leads");
        let setup = RankSetup::of(model, &options)?;
        let mut ranks = Communicator::new(ranks);
        shake_hands(&mut ranks, &setup)?;
        let engine = CpuEngine::with_ranks(model, options, ranks)?;
        Ok(LeaderEngine { engine })
    }

    /// Profile of each rank so far, in order.
    ///
    /// # Errors
    /// [`Error::Rank`] for a lost rank.
    pub fn profiles(&mut self) -> Result<Vec<RankProfile>, Error> {
        self.tell(&RankCommand::Profile)?;
        Ok(profile::share(self.ranks())?)
    }

    /// Measures the transport between the ranks, by some hundred exchanges, which do not count as
    /// traffic. `None` if there is no other rank.
    ///
    /// # Errors
    /// [`Error::Rank`] for a lost rank.
    pub fn measure_link(&mut self) -> Result<Option<LinkMeasurement>, Error> {
        if self.ranks().place().n_ranks == 1 {
            return Ok(None);
        }
        Ok(Some(link::measure(self.ranks())?))
    }

    fn ranks(&mut self) -> &mut Communicator {
        let ranks = self.engine.ranks_mut();
        ranks.expect("the engine was made with ranks")
    }

    fn tell(&mut self, command: &RankCommand) -> Result<(), Error> {
        Ok(command.tell(self.ranks())?)
    }
}

impl Drop for LeaderEngine {
    fn drop(&mut self) {
        // If a rank is already lost, the others need no message.
        let _: Result<(), RankError> = RankCommand::Close.tell(self.ranks());
    }
}

impl Engine for LeaderEngine {
    fn model(&self) -> &Arc<LoadedModel> {
        self.engine.model()
    }

    fn name(&self) -> String {
        self.engine.name()
    }

    fn cpu(&self) -> &Cpu {
        self.engine.cpu()
    }

    fn create(&mut self) -> Result<SeqId, Error> {
        let seq = self.engine.create()?;
        self.tell(&RankCommand::Create { seq: seq.serial() })?;
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let new = self.engine.fork(seq)?;
        self.tell(&RankCommand::Fork {
            from: seq.serial(),
            seq: new.serial(),
        })?;
        Ok(new)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        self.engine.truncate(seq, len)?;
        let seq = seq.serial();
        self.tell(&RankCommand::Truncate { seq, len })
    }

    fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error> {
        self.engine.set_scope(seq, scope)?;
        let seq = seq.serial();
        self.tell(&RankCommand::SetScope { seq, scope })
    }

    fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error> {
        let len = self.engine.reuse_prefix(seq, prompt)?;
        self.tell(&RankCommand::ReusePrefix {
            seq: seq.serial(),
            prompt: prompt.to_vec(),
            len,
        })?;
        Ok(len)
    }

    fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.engine.release(seq)?;
        let seq = seq.serial();
        self.tell(&RankCommand::Release { seq })
    }

    fn tokens(&self, seq: SeqId) -> Result<&[u32], Error> {
        self.engine.tokens(seq)
    }

    fn step(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn StepSink) -> Result<(), Error> {
        if batch.iter().any(|item| !item.images.is_empty()) {
            let engine = self.name();
            return Err(Error::NoImages { engine });
        }
        // Refusals happen here; the other ranks compute accepted batches.
        self.engine.check(batch)?;
        let items = batch.iter();
        let items = items.map(|item| Ok(StepItem::new(item, self.engine.len(item.seq)?)));
        let items = items.collect::<Result<_, Error>>()?;
        self.tell(&RankCommand::Step { items })?;
        self.engine.step(batch, sink)
    }

    fn limits(&self) -> EngineLimits {
        self.engine.limits()
    }

    fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error> {
        self.engine.room(seqs, n_new)
    }

    fn kv_usage(&self) -> KvUsage {
        self.engine.kv_usage()
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }

    fn rank_traffic(&self) -> Option<RankTraffic> {
        self.engine.rank_traffic()
    }
}
