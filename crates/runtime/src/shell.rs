//! Common part of every engine: a model, its sequences and their memory, limits, counters.
//!
//! Engines differ only in how they compute an accepted batch ([`Compute`]).

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use millrace_graph::Op;
use millrace_kernels::Cpu;

use crate::Error;
use crate::assistant::Assistant;
use crate::disk::store::PageStore;
use crate::disk::{self, CacheIdentity, DiskError, PageFolder};
use crate::engine::{
    BatchItem, Engine, EngineCounters, EngineLimits, KvUsage, LogitsFor, StepOutput, StepShape,
    StepSink,
};
use crate::image;
use crate::kv::KvCache;
use crate::load::LoadedModel;
use crate::lora::{AdapterSet, SequenceAdapters};
use crate::npu::{DeviceCounters, NpuModel};
use crate::ranks::RankTraffic;
use crate::sequences::SeqId;

/// A model with the sequences that it is running.
pub(crate) struct Shell {
    pub(crate) model: Arc<LoadedModel>,
    pub(crate) cache: KvCache,
    pub(crate) limits: EngineLimits,
    pub(crate) counters: EngineCounters,
    /// Identity of the cache's contents; computed on first use, since every weight is read for it.
    identity: OnceLock<CacheIdentity>,
    pub(crate) adapters: SequenceAdapters,
    /// Elements of the row that the model takes with each token; 0 for none.
    given_width: usize,
}

impl Shell {
    pub(crate) fn new(model: Arc<LoadedModel>, cache: KvCache, limits: EngineLimits) -> Shell {
        let mut nodes = model.model().graph.nodes.iter();
        let given_width = nodes.find_map(|node| match &node.op {
            Op::TargetState(op) => Some(op.width),
            _ => None,
        });
        Shell {
            given_width: given_width.unwrap_or(0),
            model,
            cache,
            limits,
            counters: EngineCounters::default(),
            identity: OnceLock::new(),
            adapters: SequenceAdapters::default(),
        }
    }

    /// Has a sequence compute in a scope with these adapters.
    fn place(&mut self, seq: SeqId, scope: u64, adapters: AdapterSet) -> Result<(), Error> {
        let in_cache = adapters.cache_scope(scope);
        self.cache.set_scope(seq, in_cache)?;
        self.adapters.set(seq, scope, adapters);
        Ok(())
    }
}

/// How an engine computes.
pub trait Compute: Send + Sized {
    /// Why hidden states cannot be requested; `None` if they can.
    const HIDES_STATES: Option<&'static str>;

    /// Whether the cache is all the memory of a sequence, so that it can be kept on disk.
    const KEEPS_ON_DISK: bool;

    /// Whether sequences may have adapters.
    const TAKES_ADAPTERS: bool = false;

    /// Where it runs, for messages.
    fn name(&self) -> String;

    /// The CPU whose kernels it uses.
    fn cpu(&self) -> &Cpu;

    /// Computes a checked batch: appends to the memory of its sequences, and returns the requested results.
    ///
    /// # Errors
    /// A device that fails. Then every sequence is at its last complete pass.
    fn compute(
        engine: &mut EngineOf<Self>,
        batch: &[BatchItem<'_>],
        sink: &mut dyn StepSink,
    ) -> Result<(), Error>;

    /// Why an assistant cannot read the cache; `None` if it can.
    fn hides_keys(&self) -> Option<&'static str> {
        Some("the CPU: on a device the model does not give out its states")
    }

    /// The model on the device that computes, where one does.
    fn device_model(&self) -> Option<&Arc<NpuModel>> {
        None
    }

    /// Counters of the device so far, by phase.
    fn device_counters(&self) -> Option<&DeviceCounters> {
        None
    }

    /// Traffic with other ranks.
    fn rank_traffic(&self) -> Option<RankTraffic> {
        None
    }
}

/// An [`Engine`] that computes so.
pub struct EngineOf<C> {
    pub(crate) shell: Shell,
    pub(crate) compute: C,
}

impl<C: Compute> EngineOf<C> {
    /// Refuses an item that cannot be appended to its sequence, its room in the cache aside.
    pub(crate) fn check_item(&self, item: &BatchItem<'_>) -> Result<(), Error> {
        let Shell {
            model,
            cache,
            limits,
            ..
        } = &self.shell;
        let len = cache.len(item.seq)?;
        if item.tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if let (true, Some(expected)) = (item.hidden || item.head_input, C::HIDES_STATES) {
            return Err(Error::BadOption {
                option: "hidden states",
                found: "asked for".to_owned(),
                expected,
            });
        }
        self.check_given(item)?;
        let config = &model.model().config;
        let mut text = item.tokens.iter().filter(|token| !image::is_row(**token));
        if let Some(&token) = text.find(|token| **token as usize >= config.vocab_size) {
            let vocab_size = config.vocab_size;
            return Err(Error::BadToken { token, vocab_size });
        }
        let last = cache.tokens(item.seq)?.last().copied();
        let sizes = (config.d_model, limits.max_chunk);
        image::check(item.tokens, item.images, last, sizes)?;
        self.check_context(len.saturating_add(item.tokens.len()), 0)?;
        check_whole(model, limits, (len, item))
    }

    /// Refuses rows beside tokens that the model does not take, and missing ones.
    fn check_given(&self, item: &BatchItem<'_>) -> Result<(), Error> {
        let wanted = self.shell.given_width.saturating_mul(item.tokens.len());
        match item.given.len() == wanted {
            true => Ok(()),
            false => Err(Error::BadOption {
                option: "rows given with tokens",
                found: format!(
                    "{} numbers for {} tokens",
                    item.given.len(),
                    item.tokens.len()
                ),
                expected: "a row of the model's width for each token of a draft layer, none for other models",
            }),
        }
    }

    /// Identity of the cache's contents.
    ///
    /// # Errors
    /// [`DiskError::Engine`] if they cannot be kept on disk.
    fn identity(&self) -> Result<&CacheIdentity, DiskError> {
        if !C::KEEPS_ON_DISK {
            return Err(DiskError::Engine {
                engine: self.name(),
            });
        }
        let Shell {
            model,
            cache,
            identity,
            ..
        } = &self.shell;
        Ok(identity.get_or_init(|| {
            let level = self.compute.cpu().level();
            CacheIdentity::of(model, level, cache.kv_type(), &cache.describe())
        }))
    }

    /// Refuses a batch that [`step`](Engine::step) would refuse.
    pub(crate) fn check(&self, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        for (i, item) in batch.iter().enumerate() {
            if batch[..i].iter().any(|other| other.seq == item.seq) {
                return Err(Error::DuplicateSequence(item.seq));
            }
            self.check_item(item)?;
        }
        let wanted = batch.iter().map(|item| (item.seq, item.tokens.len()));
        self.shell.cache.check_room(wanted, (0, 0))
    }
}

/// Refuses requests that an encoder cannot serve: it reads a text at once, and writes none.
fn check_whole(
    model: &LoadedModel,
    limits: &EngineLimits,
    (len, item): (usize, &BatchItem<'_>),
) -> Result<(), Error> {
    if model.model().config.encoder.is_none() {
        return Ok(());
    }
    let refuse = |option, found: String, expected| {
        Err(Error::BadOption {
            option,
            found,
            expected,
        })
    };
    if item.logits != LogitsFor::None {
        let expected = "embeddings: this model is an encoder, which writes no text";
        return refuse("the request", "the next token".to_owned(), expected);
    }
    let n_tokens = item.tokens.len();
    if len > 0 || n_tokens > limits.max_chunk {
        let found = format!("{n_tokens} tokens behind {len}");
        let expected =
            "one whole text of at most as many tokens as a pass takes: this model is an encoder";
        return refuse("a step", found, expected);
    }
    Ok(())
}

impl<C: Compute> Engine for EngineOf<C> {
    fn model(&self) -> &Arc<LoadedModel> {
        &self.shell.model
    }

    fn name(&self) -> String {
        self.compute.name()
    }

    fn cpu(&self) -> &Cpu {
        self.compute.cpu()
    }

    fn create(&mut self) -> Result<SeqId, Error> {
        let seq = self.shell.cache.create()?;
        let adapters = self.shell.adapters.default.clone();
        self.shell.place(seq, 0, adapters)?;
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let fork = self.shell.cache.fork(seq)?;
        let (scope, adapters) = self.shell.adapters.get(seq);
        self.shell.adapters.set(fork, scope, adapters);
        Ok(fork)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        image::check_cut(self.shell.cache.tokens(seq)?, len)?;
        self.shell.cache.truncate(seq, len)
    }

    fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error> {
        let (_, adapters) = self.shell.adapters.get(seq);
        self.shell.place(seq, scope, adapters)
    }

    fn set_adapters(&mut self, seq: SeqId, adapters: &AdapterSet) -> Result<(), Error> {
        if !C::TAKES_ADAPTERS {
            adapters.refuse()?;
        }
        adapters.check(&self.shell.model)?;
        let (scope, before) = self.shell.adapters.get(seq);
        match before == *adapters {
            true => self.shell.cache.len(seq).map(|_| ()),
            false => self.shell.place(seq, scope, adapters.clone()),
        }
    }

    fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error> {
        self.shell.cache.reuse_prefix(seq, prompt)
    }

    fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.shell.cache.release(seq)?;
        self.shell.adapters.remove(seq);
        Ok(())
    }

    fn tokens(&self, seq: SeqId) -> Result<&[u32], Error> {
        self.shell.cache.tokens(seq)
    }

    fn step(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn StepSink) -> Result<(), Error> {
        self.check(batch)?;
        let start = Instant::now();
        let config = &self.shell.model.model().config;
        sink.begin(StepShape {
            n_items: batch.len(),
            vocab_size: config.vocab_size,
            d_model: config.d_model,
        });
        C::compute(self, batch, sink)?;
        let counters = &mut self.shell.counters;
        counters.n_steps += 1;
        counters.host_ns += u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn hides_keys(&self) -> Option<&'static str> {
        self.compute.hides_keys()
    }

    fn assist(
        &mut self,
        assistant: &mut Assistant,
        seq: SeqId,
        given: (u32, &[f32]),
        output: &mut StepOutput,
    ) -> Result<bool, Error> {
        assistant.refuse(self.hides_keys())?;
        let start = Instant::now();
        let Shell { model, cache, .. } = &mut self.shell;
        let computed = assistant.row((self.compute.cpu(), &*model), (cache, seq), given, output)?;
        let counters = &mut self.shell.counters;
        counters.host_ns += u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(computed)
    }

    fn save_sequence(&self, seq: SeqId, note: &[u8], path: &Path) -> Result<(), Error> {
        let (_, adapters) = self.shell.adapters.get(seq);
        let identity = self.identity()?.with_adapters(&adapters);
        disk::sequence::save(&self.shell, &identity, seq, note, path)
    }

    fn load_sequence(&mut self, seq: SeqId, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        let (_, adapters) = self.shell.adapters.get(seq);
        let identity = self.identity()?.with_adapters(&adapters);
        disk::sequence::load(&mut self.shell, &identity, seq, path)
    }

    fn keep_pages_in(&mut self, folder: &PageFolder) -> Result<(), Error> {
        let identity = self.identity()?;
        if !self.shell.limits.keeps_prefixes {
            return Err(DiskError::Engine {
                engine: self.name(),
            }
            .into());
        }
        let store = PageStore::open(folder, identity)?;
        self.shell.cache.keep_in(store);
        Ok(())
    }

    fn limits(&self) -> EngineLimits {
        self.shell.limits
    }

    fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error> {
        self.shell.cache.room(seqs, n_new)
    }

    fn kv_usage(&self) -> KvUsage {
        let cache = &self.shell.cache;
        KvUsage {
            used_bytes: cache.used_bytes(),
            idle_bytes: cache.idle_bytes(),
            capacity_bytes: cache.capacity_bytes(),
            capacity_pages: cache.capacity_pages(),
        }
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters {
            prefix: self.shell.cache.prefix_counters(),
            ..self.shell.counters
        }
    }

    fn device_model(&self) -> Option<&Arc<NpuModel>> {
        self.compute.device_model()
    }

    fn device_counters(&self) -> Option<&DeviceCounters> {
        self.compute.device_counters()
    }

    fn rank_traffic(&self) -> Option<RankTraffic> {
        self.compute.rank_traffic()
    }
}
