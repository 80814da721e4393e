//! The models that a server offers. They are loaded at its start, or on request.

mod added;
mod served;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_runtime::AdapterSet;

use crate::scheduler::{
    EngineFactory, LoadState, ModelMetrics, Scheduler, SchedulerOptions, SubmitError,
};
use crate::syntax::{ShownCalls, ThoughtSyntax};
pub(crate) use added::{AdapterPlace, AddedAdapter, MAX_ADDED};
use served::InUse;
pub(crate) use served::ServedModel;

/// A model that can be served.
#[derive(Clone)]
pub struct ModelSpec {
    /// The name for clients.
    pub id: String,
    /// Its source, for people.
    pub source: String,
    /// Bytes of the weights, if known.
    pub weight_bytes: u64,
    /// Memory that it takes while loaded: weights, the full cache, scratch. Counted against
    /// [`ModelOptions::memory_budget`].
    pub memory_bytes: u64,
    /// Its LoRA adapters, which [`open`](ModelSpec::open) opens in this order.
    pub adapters: Vec<AdapterSpec>,
    /// Opens it.
    pub open: EngineFactory,
}

/// An adapter of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterSpec {
    /// The name for clients: used alone, or after the model's name and a colon.
    pub name: String,
    /// Its source, for people.
    pub source: String,
}

/// How models are loaded and unloaded.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Scheduler options of each model.
    pub scheduler: SchedulerOptions,
    /// Maximum number of loaded models. A further one replaces the least recently used one that is idle.
    pub max_loaded: usize,
    /// Memory that loaded models may take together, in bytes. A model that does not fit replaces the least recently
    /// used ones that are idle.
    pub memory_budget: Option<u64>,
    /// Unloads a model that was unused for this long.
    pub idle_unload: Option<Duration>,
    /// How long an unloaded model may continue with accepted requests.
    pub grace: Duration,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions {
            scheduler: SchedulerOptions::default(),
            max_loaded: usize::MAX,
            memory_budget: None,
            idle_unload: None,
            grace: Duration::from_secs(30),
        }
    }
}

/// A model, loaded or not.
pub(crate) struct ModelEntry {
    pub(crate) spec: ModelSpec,
    pub(crate) metrics: Arc<ModelMetrics>,
    pub(crate) created_unix_s: u64,
    scheduler: Mutex<Option<Scheduler>>,
    /// Requests that hold it and may not have submitted a job yet.
    n_users: AtomicUsize,
    /// Time of last use, in milliseconds after the registry's start.
    last_used_ms: AtomicU64,
    /// Scales of its adapters in requests that name none.
    adapter_scales: Mutex<Vec<f32>>,
    /// Adapters that were added while the server runs.
    added: Mutex<Vec<AddedAdapter>>,
    /// The model's call syntax, once known, if its template shows functions; see [`crate::api`].
    pub(crate) native_calls: OnceLock<Option<ShownCalls>>,
    /// The model's thought syntax, once known, if it has one.
    pub(crate) thoughts: OnceLock<Option<ThoughtSyntax>>,
}

impl ModelEntry {
    fn slot(&self) -> MutexGuard<'_, Option<Scheduler>> {
        self.scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Its scheduler, if it is loaded or loading.
    pub(crate) fn scheduler(&self) -> Option<Scheduler> {
        self.slot().clone()
    }

    /// Its scheduler, unless that has ended. One that could not open the model is kept, to report the reason.
    fn running(&self) -> Option<Scheduler> {
        let scheduler = self.scheduler();
        scheduler.filter(|scheduler| !matches!(scheduler.state(), LoadState::Stopped))
    }

    /// Scales of its adapters in requests that name none.
    pub(crate) fn adapter_scales(&self) -> Vec<f32> {
        let scales = self.adapter_scales.lock();
        scales.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets them for later requests.
    pub(crate) fn set_adapter_scales(&self, scales: Vec<f32>) {
        let own = self.adapter_scales.lock();
        *own.unwrap_or_else(PoisonError::into_inner) = scales;
    }

    fn holds_memory(&self) -> bool {
        matches!(self.state(), Some(LoadState::Loading | LoadState::Ready(_)))
    }

    /// Its loading state; `None` if it was never requested.
    pub(crate) fn state(&self) -> Option<LoadState> {
        self.scheduler().map(|scheduler| scheduler.state())
    }

    /// Whether it may be unloaded: no request waits for its answers or for its loading.
    fn may_leave(&self) -> bool {
        self.is_idle() && !matches!(self.state(), Some(LoadState::Loading))
    }

    fn is_idle(&self) -> bool {
        let snapshot = self.metrics.snapshot();
        self.n_users.load(SeqCst) == 0 && snapshot.n_running == 0 && snapshot.n_waiting == 0
    }
}

/// The message for a model that can never be loaded.
pub(crate) fn beyond_budget(spec: &ModelSpec, budget: u64) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    format!(
        "{} takes {} MiB with its context and the memory budget is {} MiB; lower --ctx or --parallel, or raise \
         --memory-budget",
        spec.id,
        mib(spec.memory_bytes),
        mib(budget)
    )
}

/// All models of a server.
pub(crate) struct Registry {
    entries: Vec<Arc<ModelEntry>>,
    options: ModelOptions,
    start: Instant,
    /// Held while room is made, so that two models do not get the same room.
    room: Mutex<Leaving>,
    /// The server shuts down: no model is loaded any more.
    is_closed: AtomicBool,
}

/// How often a request loads its model before it reports that others unload it.
const LOAD_ATTEMPTS: usize = 4;

/// Models that were unloaded but whose memory may not be free yet.
type Leaving = Vec<Scheduler>;

impl Registry {
    pub(crate) fn new(specs: Vec<ModelSpec>, options: ModelOptions) -> Registry {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let created_unix_s = now.unwrap_or_default().as_secs();
        let entry = |spec: ModelSpec| {
            Arc::new(ModelEntry {
                adapter_scales: Mutex::new(vec![0.0; spec.adapters.len()]),
                added: Mutex::default(),
                spec,
                metrics: Arc::new(ModelMetrics::default()),
                created_unix_s,
                scheduler: Mutex::new(None),
                n_users: AtomicUsize::new(0),
                last_used_ms: AtomicU64::new(0),
                native_calls: OnceLock::new(),
                thoughts: OnceLock::new(),
            })
        };
        Registry {
            entries: specs.into_iter().map(entry).collect(),
            options,
            start: Instant::now(),
            room: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn entries(&self) -> &[Arc<ModelEntry>] {
        &self.entries
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        for entry in &self.entries {
            ids.push(entry.spec.id.clone());
            ids.extend(entry.adapters().into_iter().map(|adapter| adapter.name));
        }
        ids
    }

    /// The model of that name, or the model of an adapter of that name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<ModelEntry>> {
        self.locate(name).map(|(entry, _)| entry)
    }

    /// The model of that name. If the name is an adapter's, `ADAPTER` or `MODEL:ADAPTER`, also the adapter's
    /// position. Ollama's clients add `:latest` to names without a tag.
    pub(crate) fn locate(&self, name: &str) -> Option<(&Arc<ModelEntry>, Option<AdapterPlace>)> {
        let name = name.strip_suffix(":latest").unwrap_or(name);
        if let Some(entry) = self.entries.iter().find(|entry| entry.spec.id == name) {
            return Some((entry, None));
        }
        self.entries.iter().find_map(|entry| {
            let behind = name.strip_prefix(&entry.spec.id);
            let own = behind.and_then(|behind| behind.strip_prefix(':'));
            let place = entry.place_of(|adapter| {
                adapter.name == name || own.is_some_and(|own| adapter.name == own)
            });
            Some((entry, Some(place?)))
        })
    }

    /// Starts loading the first models, as many as fit together.
    pub(crate) fn load_first(&self) {
        let mut bytes = 0;
        for (i, entry) in self.entries.iter().enumerate() {
            bytes += entry.spec.memory_bytes;
            let fits = self
                .options
                .memory_budget
                .is_none_or(|budget| bytes <= budget);
            if i >= self.options.max_loaded || !fits {
                return;
            }
            // A failure to load becomes its state, which requests report.
            let _ = self.load(entry);
        }
    }

    /// Starts loading a model, if it is not loaded; makes room first.
    pub(crate) fn load(&self, entry: &ModelEntry) -> Result<Scheduler, SubmitError> {
        if let Some(scheduler) = entry.running() {
            return Ok(scheduler);
        }
        // Always locked before a model's own lock.
        let mut leaving = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scheduler) = entry.running() {
            return Ok(scheduler);
        }
        if self.is_closed.load(SeqCst) {
            return Err(SubmitError::Draining);
        }
        leaving.retain(|scheduler| !scheduler.has_stopped());
        self.make_room(entry, &mut leaving)?;
        let scheduler = Scheduler::start(
            self.when_free(entry, leaving.clone()),
            self.options.scheduler.clone(),
            Arc::clone(&entry.metrics),
        )
        .map_err(|error| SubmitError::NotRunning(format!("no thread: {error}")))?;
        self.touch(entry);
        *entry.slot() = Some(scheduler.clone());
        Ok(scheduler)
    }

    /// Opens the model after unloading models have freed their memory, if memory is limited.
    fn when_free(&self, entry: &ModelEntry, leaving: Leaving) -> EngineFactory {
        let open = Arc::clone(&entry.spec.open);
        let is_limited =
            self.options.memory_budget.is_some() || self.options.max_loaded != usize::MAX;
        if leaving.is_empty() || !is_limited {
            return open;
        }
        Arc::new(move || {
            while !leaving.iter().all(Scheduler::has_stopped) {
                std::thread::sleep(Duration::from_millis(2));
            }
            open()
        })
    }

    /// Unloads idle models, the least recently used first, until the wanted one fits.
    fn make_room(&self, wanted: &ModelEntry, leaving: &mut Leaving) -> Result<(), SubmitError> {
        let budget = self.options.memory_budget.unwrap_or(u64::MAX);
        if wanted.spec.memory_bytes > budget {
            return Err(SubmitError::NotRunning(beyond_budget(&wanted.spec, budget)));
        }
        let is_other = |entry: &&Arc<ModelEntry>| !std::ptr::eq(&***entry, wanted);
        let mut others: Vec<&Arc<ModelEntry>> = self.entries.iter().filter(is_other).collect();
        loop {
            others.retain(|entry| entry.holds_memory());
            let held: u64 = others.iter().map(|entry| entry.spec.memory_bytes).sum();
            let fits = held <= budget - wanted.spec.memory_bytes;
            if fits && others.len() < self.options.max_loaded {
                return Ok(());
            }
            let idle = (0..others.len()).filter(|i| others[*i].may_leave());
            let victim = idle.min_by_key(|i| others[*i].last_used_ms.load(Relaxed));
            let Some(victim) = victim else {
                return Err(SubmitError::QueueFull {
                    n_waiting: 0,
                    retry_after: Duration::from_secs(10),
                });
            };
            // If a request has found it meanwhile, it is no longer idle.
            leaving.extend(self.take_out_if(others[victim], ModelEntry::is_idle));
        }
    }

    /// Unloads a model after completing its accepted requests. False if it was not loaded.
    pub(crate) fn unload(&self, entry: &ModelEntry) -> bool {
        self.unload_if(entry, |_| true)
    }

    fn unload_if(&self, entry: &ModelEntry, may: impl Fn(&ModelEntry) -> bool) -> bool {
        let mut leaving = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|scheduler| !scheduler.has_stopped());
        let taken = self.take_out_if(entry, may);
        let was_loaded = taken.is_some();
        leaving.extend(taken);
        was_loaded
    }

    /// Takes a model's scheduler out, if allowed. A request marks the model as in use before it looks here, so one of
    /// the two sees the other.
    fn take_out_if(
        &self,
        entry: &ModelEntry,
        may: impl Fn(&ModelEntry) -> bool,
    ) -> Option<Scheduler> {
        let mut slot = entry.slot();
        let scheduler = if may(entry) {
            slot.take()?
        } else {
            return None;
        };
        scheduler.drain(self.options.grace);
        Some(scheduler)
    }

    /// A model ready for a request, which is loaded first if necessary.
    pub(crate) async fn serve(&self, entry: &Arc<ModelEntry>) -> Result<ServedModel, SubmitError> {
        self.touch(entry);
        // Before the lookup: it must not be unloaded in between.
        let in_use = InUse::new(entry);
        for _ in 0..LOAD_ATTEMPTS {
            let scheduler = self.load(entry)?;
            scheduler.wait_until_loaded().await;
            if scheduler.is_draining() {
                // Another request unloaded it during the wait.
                continue;
            }
            let loaded = scheduler.loaded()?;
            let served = ServedModel {
                entry: Arc::clone(entry),
                name: entry.spec.id.clone(),
                adapters: AdapterSet::default(),
                scheduler,
                loaded,
                _in_use: in_use,
            };
            return Ok(served.with_scales(&entry.adapter_scales()));
        }
        Err(SubmitError::Unloading)
    }

    fn touch(&self, entry: &ModelEntry) {
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        entry.last_used_ms.store(now_ms, Relaxed);
    }

    /// Whether no request waits for any of them.
    pub(crate) fn is_idle(&self) -> bool {
        self.entries.iter().all(|entry| entry.may_leave())
    }

    /// Time of the last use of any model, in milliseconds from the start.
    pub(crate) fn last_used_ms(&self) -> u64 {
        let times = self
            .entries
            .iter()
            .map(|entry| entry.last_used_ms.load(Relaxed));
        times.max().unwrap_or(0)
    }

    /// Unloads models that were unused for long; to be called regularly.
    pub(crate) fn unload_idle(&self) {
        let Some(limit) = self.options.idle_unload else {
            return;
        };
        for entry in &self.entries {
            let last_used = Duration::from_millis(entry.last_used_ms.load(Relaxed));
            let is_ready = matches!(entry.state(), Some(LoadState::Ready(_)));
            if !entry.is_idle() {
                self.touch(entry);
            } else if is_ready && self.start.elapsed().saturating_sub(last_used) >= limit {
                self.unload_if(entry, ModelEntry::is_idle);
            }
        }
    }

    /// Completes accepted requests, within `grace`, and ends all models.
    pub(crate) async fn drain(&self, grace: Duration) {
        {
            // A concurrent load has happened before this, or will not happen.
            let _room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_closed.store(true, SeqCst);
        }
        let schedulers: Vec<Scheduler> = self
            .entries
            .iter()
            .filter_map(|entry| entry.scheduler())
            .collect();
        schedulers.iter().for_each(|one| one.drain(grace));
        for scheduler in schedulers {
            scheduler.stopped().await;
        }
    }
}
