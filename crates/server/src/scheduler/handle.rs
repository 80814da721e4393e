//! The scheduler's thread, and the handle for submitting jobs to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use millrace_runtime::Turn;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::core::{SchedulerCore, SchedulerOptions, Submission};
use super::job::{Job, JobEvent, JobFailure};
use super::loaded::{EngineFactory, ModelInfo};
use super::metrics::ModelMetrics;
use super::pooled::EmbeddingTask;
use crate::grammar::{Constraint, GrammarError, Requester};

/// Loading state of a model.
#[derive(Clone)]
pub enum LoadState {
    /// The file is being opened and the device set up.
    Loading,
    /// It accepts jobs.
    Ready(Arc<ModelInfo>),
    /// It could not be opened.
    Failed(String),
    /// It was unloaded, or its thread ended by a panic.
    Stopped,
}

/// Reason why a job was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The queue is at its limit.
    #[error("{n_waiting} requests are waiting already; try again in {} s", retry_after.as_secs())]
    QueueFull {
        /// Number of waiting jobs.
        n_waiting: usize,
        /// When to try again, estimated from the duration of recent jobs.
        retry_after: Duration,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The model is being unloaded, alone or with the server.
    #[error("the model is being unloaded; ask again, and it is loaded anew")]
    Unloading,
    /// The model is not ready.
    #[error("the model is still loading")]
    Loading,
    /// The deadline passed before the job was accepted.
    #[error("the request's deadline passed before it was complete")]
    Deadline,
    /// The model cannot run.
    #[error("the model is not running: {0}")]
    NotRunning(String),
    /// The request is invalid.
    #[error(transparent)]
    Bad(#[from] millrace_runtime::Error),
    /// The prompt is longer than the cache.
    #[error(
        "the prompt of {n_prompt} tokens and one more do not fit the cache, which holds {capacity} tokens; \
         shorten the prompt"
    )]
    TooLong {
        /// Tokens of the prompt.
        n_prompt: usize,
        /// Tokens the cache holds.
        capacity: usize,
    },
    /// The model generates no text.
    #[error("this model is an encoder: it makes embeddings and ranks texts, and writes none")]
    NoText,
    /// The model, or its device, does not support embeddings.
    #[error("{0}")]
    NoEmbeddings(String),
    /// A grammar or schema that cannot be used.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

/// Longest grace period, practically endless.
const MAX_GRACE: Duration = Duration::from_secs(u32::MAX as u64);

enum SchedulerCommand {
    Submit(Box<Submission>),
    /// Accept no more jobs, complete accepted ones within the time, and end.
    Drain(Duration),
}

/// A model's scheduler. Clones are the same scheduler; the thread ends after [`Scheduler::drain`].
#[derive(Clone)]
pub struct Scheduler {
    commands: mpsc::Sender<SchedulerCommand>,
    state: watch::Receiver<LoadState>,
    metrics: Arc<ModelMetrics>,
    /// Number of jobs sent to the thread that it has not received.
    n_sent: Arc<AtomicUsize>,
    is_draining: Arc<std::sync::atomic::AtomicBool>,
    options: SchedulerOptions,
}

impl Scheduler {
    /// Starts the thread, which begins by opening the model.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        factory: EngineFactory,
        options: SchedulerOptions,
        metrics: Arc<ModelMetrics>,
    ) -> std::io::Result<Scheduler> {
        let (commands, inbox) = mpsc::channel();
        let (sender, state) = watch::channel(LoadState::Loading);
        let n_sent = Arc::new(AtomicUsize::new(0));
        let thread = Thread {
            inbox,
            state: sender,
            n_sent: Arc::clone(&n_sent),
            metrics: Arc::clone(&metrics),
            options: options.clone(),
        };
        std::thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(move || thread.run(&factory))?;
        Ok(Scheduler {
            commands,
            state,
            metrics,
            n_sent,
            is_draining: Arc::default(),
            options,
        })
    }

    /// The loading state of the model.
    pub fn state(&self) -> LoadState {
        if self.state.has_changed().is_err() {
            // The thread is gone. Its last state has the reason, unless that state was a good one.
            return match &*self.state.borrow() {
                LoadState::Failed(reason) => LoadState::Failed(reason.clone()),
                _ => LoadState::Stopped,
            };
        }
        self.state.borrow().clone()
    }

    /// Waits until the model is open, or has failed to open.
    pub async fn wait_until_loaded(&self) -> LoadState {
        let mut state = self.state.clone();
        let _ = state
            .wait_for(|state| !matches!(state, LoadState::Loading))
            .await;
        self.state()
    }

    /// The model, if it runs.
    ///
    /// # Errors
    /// [`SubmitError::Loading`], [`SubmitError::NotRunning`].
    pub fn loaded(&self) -> Result<Arc<ModelInfo>, SubmitError> {
        match self.state() {
            LoadState::Ready(loaded) => Ok(loaded),
            LoadState::Loading => Err(SubmitError::Loading),
            LoadState::Failed(reason) => Err(SubmitError::NotRunning(reason)),
            LoadState::Stopped => Err(SubmitError::NotRunning("it was stopped".to_owned())),
        }
    }

    /// The counters.
    pub fn metrics(&self) -> &ModelMetrics {
        &self.metrics
    }

    /// Submits a job. Its events arrive at the returned receiver; dropping that cancels the job before the next pass.
    /// If the job has a grammar, this waits until it is compiled.
    ///
    /// # Errors
    /// A full queue, a request that cannot be fulfilled, a model that does not run.
    pub fn submit(&self, job: Job) -> Result<UnboundedReceiver<JobEvent>, SubmitError> {
        let loaded = self.accepting()?;
        check_length(&loaded, &job)?;
        let constraint = match &job.grammar {
            Some(grammar) => Some(loaded.grammars.compile(grammar)?),
            None => None,
        };
        self.submit_with(job, constraint)
    }

    /// As [`Scheduler::submit`], with the grammar compiled in the client's turn. Dropping the future ends that.
    pub(crate) async fn submit_in_turn(
        &self,
        job: Job,
    ) -> Result<UnboundedReceiver<JobEvent>, SubmitError> {
        let loaded = self.accepting()?;
        check_length(&loaded, &job)?;
        let constraint = match &job.grammar {
            Some(grammar) => Some(
                loaded
                    .grammars
                    .prepare(grammar, &Requester::of(&job))
                    .await?,
            ),
            None => None,
        };
        self.submit_with(job, constraint)
    }

    /// The model, if new jobs are accepted.
    fn accepting(&self) -> Result<Arc<ModelInfo>, SubmitError> {
        if self.is_draining() {
            return Err(SubmitError::Unloading);
        }
        self.loaded()
    }

    fn submit_with(
        &self,
        job: Job,
        constraint: Option<Constraint>,
    ) -> Result<UnboundedReceiver<JobEvent>, SubmitError> {
        let submitted = Instant::now();
        let loaded = self.accepting()?;
        let turns = turns(&loaded, &job, constraint.as_ref())?;
        let pooled = match (job.embed, &loaded.embedder) {
            (None, _) if loaded.reads_whole() => return Err(SubmitError::NoText),
            (None, _) => None,
            (Some(pooling), Ok((embedder, _))) => {
                let embedder = Arc::clone(embedder);
                Some(EmbeddingTask::new(embedder, pooling, job.embed_rows))
            }
            (Some(_), Err(reason)) => return Err(SubmitError::NoEmbeddings(reason.clone())),
        };
        let n_waiting = self.metrics.snapshot().n_waiting as usize + self.n_sent.load(SeqCst);
        if n_waiting >= self.options.max_queue {
            self.metrics.add(&self.metrics.refused, 1);
            let retry_after = self.retry_after(n_waiting);
            return Err(SubmitError::QueueFull {
                n_waiting,
                retry_after,
            });
        }
        let (sender, receiver) = unbounded_channel();
        let submission = Box::new(Submission {
            job,
            turns,
            pooled,
            sender,
            submitted,
        });
        self.n_sent.fetch_add(1, SeqCst);
        if self
            .commands
            .send(SchedulerCommand::Submit(submission))
            .is_err()
        {
            self.n_sent.fetch_sub(1, SeqCst);
            return Err(SubmitError::NotRunning("its thread has ended".to_owned()));
        }
        Ok(receiver)
    }

    /// When a queue of this length may have moved. It is estimated from the mean time of a job and the number
    /// that run together, 1 to 60 s.
    fn retry_after(&self, n_waiting: usize) -> Duration {
        let (_, n_jobs, sum_s) = self.metrics.total.read();
        let mean_s = if n_jobs > 0 {
            sum_s / n_jobs as f64
        } else {
            1.0
        };
        let n_running = self.metrics.snapshot().n_running.max(1) as f64;
        // The time for a quarter of the queue: some clients get in before all of it is processed.
        let wait_s = mean_s * n_waiting as f64 / n_running / 4.0;
        Duration::from_secs(wait_s.clamp(1.0, 60.0).ceil() as u64)
    }

    /// Accepts no more jobs, completes accepted ones within `grace`, fails the rest, and ends the thread.
    pub fn drain(&self, grace: Duration) {
        self.is_draining.store(true, SeqCst);
        if let LoadState::Ready(loaded) = self.state() {
            loaded.grammars.close();
        }
        // If the thread has ended already, there is nothing to do.
        let _ = self.commands.send(SchedulerCommand::Drain(grace));
    }

    /// Whether it accepts no more jobs.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(SeqCst)
    }

    /// Whether the thread has ended, and the engine was dropped.
    pub fn has_stopped(&self) -> bool {
        self.state.has_changed().is_err()
    }

    /// Waits until the thread has ended.
    pub async fn stopped(&self) {
        let mut state = self.state.clone();
        while state.changed().await.is_ok() {}
    }
}

/// Refuses a prompt that can never be computed, before its grammar is compiled.
fn check_length(loaded: &ModelInfo, job: &Job) -> Result<(), SubmitError> {
    let n_prompt = job.prompt.len();
    let (capacity, n_ctx) = (loaded.capacity_tokens, loaded.limits.n_ctx);
    let n_least = job.params.least_tokens();
    // A context that is too long gets the error about the context.
    if n_prompt + n_least > capacity && n_prompt + n_least <= n_ctx {
        return Err(SubmitError::TooLong { n_prompt, capacity });
    }
    Ok(())
}

/// A turn and a constraint for each answer. Faults in a job are found here, where it is submitted, and not on the
/// thread that others wait for.
fn turns(
    loaded: &ModelInfo,
    job: &Job,
    constraint: Option<&Constraint>,
) -> Result<Vec<(Turn, Option<Constraint>)>, SubmitError> {
    let most = loaded.limits.n_ctx.min(loaded.capacity_tokens);
    let turn = |choice: usize| -> Result<_, SubmitError> {
        let mut params = job.params.clone();
        params.sampling.seed = params.sampling.seed.wrapping_add(choice as u64);
        let turn = Turn::new(&loaded.model, &job.prompt, &params, most)?;
        let turn = turn.with_images(job.images.clone()).with_scope(job.scope);
        let mut turn = turn.showing(Arc::clone(&job.shown));
        if choice == 0 && job.prompt_logprobs.is_some() {
            turn = turn.reading_all();
        }
        if let Some(thinking) = &job.thinking {
            turn = turn.with_thinking(thinking);
        }
        Ok((turn, constraint.cloned()))
    };
    (0..job.n.max(1)).map(turn).collect()
}

/// State owned by the thread.
struct Thread {
    inbox: mpsc::Receiver<SchedulerCommand>,
    state: watch::Sender<LoadState>,
    n_sent: Arc<AtomicUsize>,
    metrics: Arc<ModelMetrics>,
    options: SchedulerOptions,
}

impl Thread {
    fn run(self, factory: &EngineFactory) {
        let opened = factory().and_then(|opened| {
            let loaded = ModelInfo::of(&opened)?;
            Ok((opened, loaded))
        });
        let (opened, loaded) = match opened {
            Ok(opened) => opened,
            Err(reason) => {
                self.state.send_replace(LoadState::Failed(reason));
                return;
            }
        };
        let mut core = SchedulerCore::new(opened, self.options.clone(), Arc::clone(&self.metrics));
        // Clears values left by an earlier thread that ended by a panic.
        core.publish();
        self.state.send_replace(LoadState::Ready(Arc::new(loaded)));
        let work = AssertUnwindSafe(|| self.work(&mut core));
        match catch_unwind(work) {
            Ok(()) => {
                core.fail_all(&JobFailure::ShuttingDown);
                self.state.send_replace(LoadState::Stopped);
            }
            Err(_) => {
                // Set before clients learn of the end, so that new requests are not sent here. The engine is only
                // dropped from here on.
                self.state.send_replace(LoadState::Stopped);
                drop(core);
            }
        }
    }

    fn work(&self, core: &mut SchedulerCore) {
        let mut drain_until: Option<Instant> = None;
        loop {
            if core.is_idle() {
                if drain_until.is_some() {
                    return;
                }
                match self.inbox.recv() {
                    Ok(command) => self.take(core, command, &mut drain_until),
                    Err(_) => return,
                }
            }
            while let Ok(command) = self.inbox.try_recv() {
                self.take(core, command, &mut drain_until);
            }
            if drain_until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            if !core.step() && !core.is_idle() {
                // The engine gives no sequence to the only job: wait for its receiver or deadline.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn take(
        &self,
        core: &mut SchedulerCore,
        command: SchedulerCommand,
        drain_until: &mut Option<Instant>,
    ) {
        match command {
            SchedulerCommand::Submit(submission) => {
                core.submit(*submission);
                self.n_sent.fetch_sub(1, SeqCst);
            }
            // Limited to the range of the clock.
            SchedulerCommand::Drain(grace) => {
                *drain_until = Some(Instant::now() + grace.min(MAX_GRACE))
            }
        }
    }
}
