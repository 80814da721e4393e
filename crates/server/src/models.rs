//! The models a server offers: which are loaded, and which are loaded when someone asks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::tools::Syntax;
use crate::scheduler::{
    EngineFactory, LoadState, Loaded, ModelMetrics, Refusal, Scheduler, SchedulerOptions,
};

/// A model that can be served.
#[derive(Clone)]
pub struct ModelSpec {
    /// What clients call it.
    pub id: String,
    /// Where it comes from, for people.
    pub source: String,
    /// Bytes of the weights, if known: counted against the memory budget.
    pub weight_bytes: u64,
    /// Opens it.
    pub open: EngineFactory,
}

/// How models come and go.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// How each is scheduled.
    pub scheduler: SchedulerOptions,
    /// Models loaded at a time at most; a further one takes the place of the one used longest ago that is idle.
    pub max_loaded: usize,
    /// Unloads a model that was not used for so long.
    pub idle_unload: Option<Duration>,
    /// How long a model that is unloaded may go on with what it accepted.
    pub grace: Duration,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions {
            scheduler: SchedulerOptions::default(),
            max_loaded: usize::MAX,
            idle_unload: None,
            grace: Duration::from_secs(30),
        }
    }
}

/// A model, loaded or not.
pub(crate) struct Entry {
    pub(crate) spec: ModelSpec,
    pub(crate) metrics: Arc<ModelMetrics>,
    pub(crate) created_unix_s: u64,
    scheduler: Mutex<Option<Scheduler>>,
    /// Milliseconds after the registry's start.
    last_used_ms: AtomicU64,
    /// How the model writes calls of functions, once that is known; see [`crate::api`].
    pub(crate) native_calls: OnceLock<Option<Syntax>>,
}

impl Entry {
    /// Its scheduler, if it is loaded or loading.
    pub(crate) fn scheduler(&self) -> Option<Scheduler> {
        let slot = self
            .scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        slot.clone()
    }

    /// How far it is; `None` if nobody has asked for it.
    pub(crate) fn state(&self) -> Option<LoadState> {
        self.scheduler().map(|scheduler| scheduler.state())
    }

    fn is_idle(&self) -> bool {
        let snapshot = self.metrics.snapshot();
        snapshot.n_running == 0 && snapshot.n_waiting == 0
    }
}

/// A model that runs, ready for a request.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) entry: Arc<Entry>,
    pub(crate) scheduler: Scheduler,
    pub(crate) loaded: Arc<Loaded>,
}

/// All models of a server.
pub(crate) struct Registry {
    entries: Vec<Arc<Entry>>,
    options: ModelOptions,
    start: Instant,
}

impl Registry {
    pub(crate) fn new(specs: Vec<ModelSpec>, options: ModelOptions) -> Registry {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let created_unix_s = now.unwrap_or_default().as_secs();
        let entry = |spec| {
            Arc::new(Entry {
                spec,
                metrics: Arc::new(ModelMetrics::default()),
                created_unix_s,
                scheduler: Mutex::new(None),
                last_used_ms: AtomicU64::new(0),
                native_calls: OnceLock::new(),
            })
        };
        Registry {
            entries: specs.into_iter().map(entry).collect(),
            options,
            start: Instant::now(),
        }
    }

    pub(crate) fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        let ids = self.entries.iter().map(|entry| entry.spec.id.clone());
        ids.collect()
    }

    /// The model of that name. Ollama's clients add `:latest` to names without a tag.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        let name = name.strip_suffix(":latest").unwrap_or(name);
        self.entries.iter().find(|entry| entry.spec.id == name)
    }

    /// Begins to load a model, if it is not; makes room first.
    pub(crate) fn load(&self, entry: &Entry) -> Result<Scheduler, Refusal> {
        let mut slot = entry
            .scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(scheduler) = &*slot
            && !matches!(scheduler.state(), LoadState::Stopped)
        {
            return Ok(scheduler.clone());
        }
        self.make_room(entry)?;
        let scheduler = Scheduler::start(
            Arc::clone(&entry.spec.open),
            self.options.scheduler.clone(),
            Arc::clone(&entry.metrics),
        )
        .map_err(|error| Refusal::NotRunning(format!("no thread: {error}")))?;
        self.touch(entry);
        *slot = Some(scheduler.clone());
        Ok(scheduler)
    }

    /// Unloads the idle model that was used longest ago, if as many are loaded as may be.
    fn make_room(&self, wanted: &Entry) -> Result<(), Refusal> {
        let is_other = |entry: &&Arc<Entry>| !std::ptr::eq(&***entry, wanted);
        let others: Vec<_> = self.entries.iter().filter(is_other).collect();
        let is_loaded = |entry: &&&Arc<Entry>| entry.scheduler().is_some();
        let loaded: Vec<_> = others.iter().filter(is_loaded).collect();
        if loaded.len() < self.options.max_loaded {
            return Ok(());
        }
        let idle = loaded.iter().filter(|entry| entry.is_idle());
        let victim = idle.min_by_key(|entry| entry.last_used_ms.load(Relaxed));
        match victim {
            Some(victim) => {
                self.unload(victim);
                Ok(())
            }
            None => Err(Refusal::QueueFull {
                n_waiting: 0,
                retry_after: Duration::from_secs(10),
            }),
        }
    }

    /// Unloads a model once what it accepted is complete. False if it was not loaded.
    pub(crate) fn unload(&self, entry: &Entry) -> bool {
        let mut slot = entry
            .scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match slot.take() {
            Some(scheduler) => {
                scheduler.drain(self.options.grace);
                true
            }
            None => false,
        }
    }

    /// A model ready for a request: loaded first, if it is not.
    pub(crate) async fn serve(&self, entry: &Arc<Entry>) -> Result<Served, Refusal> {
        self.touch(entry);
        let scheduler = self.load(entry)?;
        scheduler.wait_until_loaded().await;
        let loaded = scheduler.loaded()?;
        Ok(Served {
            entry: Arc::clone(entry),
            scheduler,
            loaded,
        })
    }

    fn touch(&self, entry: &Entry) {
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        entry.last_used_ms.store(now_ms, Relaxed);
    }

    /// Unloads what was not used for long; to be called now and then.
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
                self.unload(entry);
            }
        }
    }

    /// Completes what was accepted, within `grace`, and ends all.
    pub(crate) async fn drain(&self, grace: Duration) {
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
