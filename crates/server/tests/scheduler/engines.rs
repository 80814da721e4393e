//! The demo model, and an engine that records its steps and fails on request.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use millrace_runtime::ranks::RankError;
use millrace_runtime::{
    AdapterSet, Assistant, BatchItem, Cpu, CpuEngine, Engine, EngineCounters, EngineLimits,
    EngineOptions, Error, KvUsage, LoadedModel, SeqId, Speculator, StepOutput, StepSink,
};
use millrace_server::scheduler::EngineSetup;

pub(crate) fn model() -> Arc<LoadedModel> {
    static MODEL: OnceLock<Arc<LoadedModel>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| embedded("demo.gguf")))
}

/// A model of the repository.
pub(crate) fn embedded(file: &str) -> Arc<LoadedModel> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let folder = models.join(file.trim_end_matches(".gguf"));
    Arc::new(LoadedModel::open(&folder.join(file)).unwrap())
}

/// Four sequences of 512 tokens, one thread.
pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        n_threads: Some(1),
        n_ctx: Some(512),
        max_sequences: 4,
        max_chunk: 128,
        keep_prefixes: true,
        ..EngineOptions::default()
    }
}

/// How a step fails if a sequence contains the poison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Before anything is computed.
    AtOnce,
    /// After the items before the poisoned one are computed.
    Amid,
    /// By a panic.
    #[allow(dead_code)] // Used by the tests over HTTP.
    Panic,
}

/// One step: for each item, the number of tokens held before and the number appended.
pub(crate) type Step = Vec<(usize, usize)>;

#[derive(Default)]
struct Shared {
    steps: Vec<Step>,
    poison: Option<(u32, Fault)>,
    /// Number of next steps that fail regardless of their tokens.
    n_failures: usize,
    /// Whether a rank that shares the model is lost.
    has_lost_rank: bool,
}

/// Creates the speculator for an engine with these options.
type Drafter = Arc<dyn Fn(EngineOptions) -> Speculator + Send + Sync>;

/// Opens engines that record and fail together.
#[derive(Clone)]
pub(crate) struct Watched {
    model: Arc<LoadedModel>,
    drafter: Option<Drafter>,
    options: EngineOptions,
    /// Additional time of each step.
    delay: Duration,
    /// The gauge that each open engine adds to.
    gauge: Option<(Arc<Gauge>, usize)>,
    shared: Arc<Mutex<Shared>>,
}

/// Bytes of open engines: the current sum, and the maximum so far.
#[derive(Default)]
pub(crate) struct Gauge(Mutex<(usize, usize)>);

impl Gauge {
    #[allow(dead_code)] // Read by the tests over HTTP.
    pub(crate) fn most(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

/// An engine's share of a gauge.
struct Held(Option<(Arc<Gauge>, usize)>);

impl Held {
    fn new(gauge: &Option<(Arc<Gauge>, usize)>) -> Held {
        if let Some((gauge, bytes)) = gauge {
            let mut now = gauge.0.lock().unwrap();
            now.0 += bytes;
            now.1 = now.1.max(now.0);
        }
        Held(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((gauge, bytes)) = &self.0 {
            gauge.0.lock().unwrap().0 -= bytes;
        }
    }
}

impl Watched {
    pub(crate) fn new(options: EngineOptions) -> Watched {
        Watched::of(model(), options)
    }

    /// The same with another model.
    pub(crate) fn of(model: Arc<LoadedModel>, options: EngineOptions) -> Watched {
        Watched {
            model,
            drafter: None,
            options,
            delay: Duration::ZERO,
            gauge: None,
            shared: Arc::default(),
        }
    }

    /// Engines whose steps take this much longer, so that tests can observe work under way.
    pub(crate) fn slow(options: EngineOptions, delay: Duration) -> Watched {
        Watched {
            delay,
            ..Watched::new(options)
        }
    }

    /// Engines that count as `bytes` each while they are open.
    #[allow(dead_code)] // Used by the tests over HTTP.
    pub(crate) fn counted(options: EngineOptions, gauge: &Arc<Gauge>, bytes: usize) -> Watched {
        Watched {
            gauge: Some((Arc::clone(gauge), bytes)),
            ..Watched::new(options)
        }
    }

    /// The same with drafts.
    #[allow(dead_code)] // Not used by the tests over HTTP.
    pub(crate) fn drafted(
        self,
        drafter: impl Fn(EngineOptions) -> Speculator + Send + Sync + 'static,
    ) -> Watched {
        Watched {
            drafter: Some(Arc::new(drafter)),
            ..self
        }
    }

    pub(crate) fn open(&self) -> EngineSetup {
        let drafter = self.drafter.as_ref();
        EngineSetup {
            engine: self.engine(),
            speculator: drafter.map(|drafter| drafter(self.options.clone())),
            mmproj: None,
            adapters: Vec::new(),
        }
    }

    pub(crate) fn engine(&self) -> Box<dyn Engine> {
        Box::new(WatchedEngine {
            inner: CpuEngine::new(Arc::clone(&self.model), self.options.clone()).unwrap(),
            delay: self.delay,
            _held: Held::new(&self.gauge),
            shared: Arc::clone(&self.shared),
        })
    }

    /// Lets steps fail if a sequence contains this token.
    pub(crate) fn poison(&self, token: u32, fault: Fault) {
        self.shared.lock().unwrap().poison = Some((token, fault));
    }

    /// Lets the next steps fail regardless of their tokens.
    pub(crate) fn fail(&self, n_steps: usize) {
        self.shared.lock().unwrap().n_failures = n_steps;
    }

    /// From here on, no sequence is created and no step computed, as after the loss of a rank.
    #[allow(dead_code)] // Not used by the tests over HTTP.
    pub(crate) fn lose_rank(&self) {
        self.shared.lock().unwrap().has_lost_rank = true;
    }

    /// Blocks all steps until the returned guard is dropped.
    #[allow(dead_code)] // Not used by the tests over HTTP.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.shared.lock().unwrap()
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.shared.lock().unwrap().steps.clone()
    }
}

struct WatchedEngine {
    inner: CpuEngine,
    delay: Duration,
    _held: Held,
    shared: Arc<Mutex<Shared>>,
}

/// A device's failure as the scheduler sees it: any error but a full cache.
const BROKEN: Error = Error::NotFinite { position: 0 };

fn lost() -> Error {
    Error::Rank(RankError::Lost {
        rank: 2,
        reason: "it ended".to_owned(),
    })
}

impl Engine for WatchedEngine {
    fn model(&self) -> &Arc<LoadedModel> {
        self.inner.model()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn cpu(&self) -> &Cpu {
        self.inner.cpu()
    }

    fn create(&mut self) -> Result<SeqId, Error> {
        if self.shared.lock().unwrap().has_lost_rank {
            return Err(lost());
        }
        self.inner.create()
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.inner.fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        self.inner.truncate(seq, len)
    }

    fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error> {
        self.inner.set_scope(seq, scope)
    }

    fn set_adapters(&mut self, seq: SeqId, adapters: &AdapterSet) -> Result<(), Error> {
        self.inner.set_adapters(seq, adapters)
    }

    fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error> {
        self.inner.reuse_prefix(seq, prompt)
    }

    fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.inner.release(seq)
    }

    fn tokens(&self, seq: SeqId) -> Result<&[u32], Error> {
        self.inner.tokens(seq)
    }

    fn step(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn StepSink) -> Result<(), Error> {
        let step = batch
            .iter()
            .map(|item| (self.inner.len(item.seq).unwrap(), item.tokens.len()));
        let step: Step = step.collect();
        std::thread::sleep(self.delay);
        let mut shared = self.shared.lock().unwrap();
        if shared.has_lost_rank {
            return Err(lost());
        }
        if shared.n_failures > 0 {
            shared.n_failures -= 1;
            return Err(BROKEN);
        }
        if let Some((poison, fault)) = shared.poison {
            let holds = |item: &BatchItem<'_>| {
                let past = self.inner.tokens(item.seq).unwrap();
                past.contains(&poison) || item.tokens.contains(&poison)
            };
            if let Some(at) = batch.iter().position(holds) {
                match fault {
                    Fault::AtOnce => {}
                    Fault::Amid if at == 0 => {}
                    Fault::Amid => drop(self.inner.compute(&batch[..at]).unwrap()),
                    Fault::Panic => {
                        drop(shared);
                        panic!("a fault of the engine's code");
                    }
                }
                return Err(BROKEN);
            }
        }
        self.inner.step(batch, sink)?;
        shared.steps.push(step);
        Ok(())
    }

    fn hides_keys(&self) -> Option<&'static str> {
        self.inner.hides_keys()
    }

    fn assist(
        &mut self,
        assistant: &mut Assistant,
        seq: SeqId,
        given: (u32, &[f32]),
        output: &mut StepOutput,
    ) -> Result<bool, Error> {
        self.inner.assist(assistant, seq, given, output)
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error> {
        self.inner.room(seqs, n_new)
    }

    fn kv_usage(&self) -> KvUsage {
        self.inner.kv_usage()
    }

    fn counters(&self) -> EngineCounters {
        self.inner.counters()
    }
}
