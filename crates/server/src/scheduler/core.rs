//! The scheduler without its thread: the work between two passes.

mod admission;
mod drafting;
mod pass;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use millrace_runtime::npu::Shares;
use millrace_runtime::{Engine, Error, Finish, Speculator, Turn};
use tokio::sync::mpsc::UnboundedSender;

pub use self::drafting::MAX_PASS_DRAFTS;
use super::gate::ThoughtGate;
use super::job::{DraftCounts, Job, JobEvent, JobFailure, Receipt};
use super::loaded::EngineSetup;
use super::metrics::ModelMetrics;
use super::pace::Pace;
use super::pooled::{EmbeddingTask, PassOutput};
use super::queue::Queue;
use super::scores::PromptScores;
use super::task::{AcceptedJob, AnswerTask, SamplingScratch};
use crate::grammar::Constraint;

/// Options of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Maximum number of waiting jobs; more are refused.
    pub max_queue: usize,
    /// Target for the longest duration of a pass while answers are being written. If 2.5 times a pass without prompts
    /// is less, that is the target. A pass has at least 16 prompt tokens, and a token for each answer, however long
    /// those take. While more answers await their first token than are being written, only this target applies, and
    /// the least is 48 prompt tokens.
    pub max_delay: Duration,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        SchedulerOptions {
            max_queue: 256,
            max_delay: Duration::from_millis(120),
        }
    }
}

/// A job, with the results of preparing it at submission.
pub(super) struct Submission {
    pub(super) job: Job,
    /// One for each answer.
    pub(super) turns: Vec<(Turn, Option<Constraint>)>,
    /// Set for an embedding job: it replaces the answer of the only turn.
    pub(super) pooled: Option<EmbeddingTask>,
    pub(super) sender: UnboundedSender<JobEvent>,
    pub(super) submitted: Instant,
}

/// Queue, running answers, and the engine that computes them.
pub struct SchedulerCore {
    engine: Box<dyn Engine>,
    speculator: Option<Speculator>,
    /// The draft model's engine failed: drafting has stopped.
    drafts_failed: bool,
    options: SchedulerOptions,
    metrics: Arc<ModelMetrics>,
    queue: Queue,
    running: Vec<AnswerTask>,
    pace: Pace,
    shares: Option<Arc<Shares>>,
    output: PassOutput,
    /// For each part of the pass under way: the answer's token and the drafts after it; empty without drafts.
    drafted: Vec<Vec<u32>>,
    scratch: SamplingScratch,
    n_arrivals: u64,
    n_admissions: u64,
}

impl SchedulerCore {
    /// A scheduler without work.
    pub fn new(
        opened: EngineSetup,
        options: SchedulerOptions,
        metrics: Arc<ModelMetrics>,
    ) -> SchedulerCore {
        let EngineSetup {
            engine, speculator, ..
        } = opened;
        let shares = engine.device_model().map(|npu| Arc::new(npu.shares()));
        let n_layers = engine.model().model().config.n_layers;
        SchedulerCore {
            engine,
            speculator,
            drafts_failed: false,
            options,
            metrics,
            queue: Queue::default(),
            running: Vec::new(),
            pace: Pace::new(),
            shares,
            output: PassOutput::new(n_layers),
            drafted: Vec::new(),
            scratch: SamplingScratch::default(),
            n_arrivals: 0,
            n_admissions: 0,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty()
    }

    /// Number of answers on a sequence, and number of answers waiting for one.
    pub fn load(&self) -> (usize, usize) {
        (self.running.len(), self.queue.tasks().len())
    }

    /// Puts a job into the queue.
    pub(super) fn submit(&mut self, submission: Submission) {
        let Submission {
            job,
            turns,
            pooled,
            sender,
            submitted,
        } = submission;
        let scores = job.prompt_logprobs.map(PromptScores::new);
        let accepted = self.accept(job, turns.len(), sender, submitted);
        let mut tasks = turns
            .into_iter()
            .enumerate()
            .map(|(choice, turn)| AnswerTask::new(Rc::clone(&accepted), choice, turn));
        let Some(mut first) = tasks.next() else {
            return;
        };
        first.siblings = tasks.collect();
        (first.pooled, first.scores) = (pooled, scores);
        // Nothing to write: no pass is needed.
        if first.turn.finish().is_some() {
            return self.finish(first);
        }
        self.queue.push(first);
    }

    /// Accepts a job: the state that all its answers share.
    fn accept(
        &mut self,
        job: Job,
        n_answers: usize,
        sender: UnboundedSender<JobEvent>,
        submitted: Instant,
    ) -> Rc<AcceptedJob> {
        self.n_arrivals += 1;
        let receipt = self.blank_receipt(job.prompt.len());
        let thinking = job.thinking.filter(|_| !job.grammar_has_thoughts);
        let tokenizer = self.engine.model().tokenizer().ok();
        let gate = thinking.zip(tokenizer);
        let gate = gate.map(|(thinking, tokenizer)| ThoughtGate::new(tokenizer, &thinking));
        self.metrics
            .add(&self.metrics.prompt_tokens, job.prompt.len());
        if let Some(usage) = &job.usage {
            usage.add_prompt(job.prompt.len());
        }
        Rc::new(AcceptedJob {
            sender,
            client: job.client,
            usage: job.usage,
            scope: job.scope,
            adapters: job.adapters,
            priority: job.priority,
            deadline: job.deadline,
            progress: job.progress,
            timeline: job.timeline,
            top_logprobs: job.top_logprobs,
            prompt: job.prompt,
            gate,
            arrival: self.n_arrivals,
            submitted,
            n_open: Cell::new(n_answers),
            is_dead: Cell::new(false),
            receipt: RefCell::new(receipt),
        })
    }

    fn blank_receipt(&self, n_prompt: usize) -> Receipt {
        Receipt {
            n_prompt,
            n_cached: 0,
            n_generated: 0,
            n_thought: 0,
            drafts: self.speculator.as_ref().map(|_| DraftCounts::default()),
            device: self.engine.name(),
            host: Duration::ZERO,
            device_time: self
                .engine
                .device_time()
                .map(|origin| (Duration::ZERO, origin)),
            shares: self.shares.clone(),
            queued: Duration::ZERO,
            first_token: Duration::ZERO,
            total: Duration::ZERO,
            n_preempted: 0,
            timeline: Vec::new(),
        }
    }

    /// Drops abandoned answers, admits answers that fit, runs a pass. False if there was nothing to run.
    pub fn step(&mut self) -> bool {
        let start = Instant::now();
        let before_ns = self.engines_ns().0;
        self.drop_gone(start);
        self.admit();
        let did = self.pass();
        self.sweep();
        let engine_ns = self.engines_ns().0 - before_ns;
        let all_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let scheduling_ns = &self.metrics.scheduling_ns;
        scheduling_ns.fetch_add(all_ns.saturating_sub(engine_ns), Relaxed);
        did
    }

    /// Ends every job: without one of its ranks, the engine cannot compute any more.
    fn lose_rank(&mut self, error: &Error) {
        self.fail_all(&JobFailure::Engine(error.to_string()));
    }

    /// Ends every job with this failure.
    pub fn fail_all(&mut self, failure: &JobFailure) {
        for task in self.queue.drain_if(|_| true) {
            self.fail(&task, failure.clone());
        }
        for task in std::mem::take(&mut self.running) {
            self.fail(&task, failure.clone());
            self.release(&task);
        }
        self.publish();
    }

    /// Drops answers whose clients are gone, and jobs whose deadline passed.
    fn drop_gone(&mut self, now: Instant) {
        let is_late = |task: &AnswerTask| task.job.deadline.is_some_and(|deadline| now >= deadline);
        let mut gone = self
            .queue
            .drain_if(|task| task.job.is_abandoned() || is_late(task));
        gone.extend(
            self.running
                .extract_if(.., |task| task.job.is_abandoned() || is_late(task)),
        );
        for task in gone {
            let failure = if task.job.is_abandoned() {
                None
            } else {
                Some(JobFailure::Deadline)
            };
            match failure {
                Some(failure) => self.fail(&task, failure),
                None if !task.job.is_dead.replace(true) => {
                    self.metrics.count_finish(Finish::Cancelled);
                }
                None => {}
            }
            self.release(&task);
        }
    }

    /// Removes complete answers.
    fn sweep(&mut self) {
        let done: Vec<AnswerTask> = self
            .running
            .extract_if(.., |task| task.turn.finish().is_some())
            .collect();
        done.iter().for_each(|task| self.release(task));
        // Published first, so that a client that sees the end also sees it in the counters.
        self.publish();
        done.into_iter().for_each(|task| self.finish(task));
    }

    /// Reports that an answer is complete, and the job if it was the last. Siblings that never began are complete
    /// too: they had nothing to write.
    fn finish(&mut self, mut task: AnswerTask) {
        let finish = task.turn.finish().unwrap_or(Finish::Cancelled);
        let job = Rc::clone(&task.job);
        self.metrics.count_finish(finish);
        let total = job.submitted.elapsed();
        {
            let mut receipt = job.receipt.borrow_mut();
            receipt.n_generated += task.turn.drawn().len();
            receipt.n_thought += task.turn.n_thought_tokens();
            receipt.total = total;
        }
        job.tell(JobEvent::Finished {
            choice: task.choice,
            finish,
            stop_text: task.turn.stop_text().map(str::to_owned),
        });
        job.n_open.set(job.n_open.get().saturating_sub(1));
        for sibling in std::mem::take(&mut task.siblings) {
            self.finish(sibling);
        }
        if job.n_open.get() == 0 && !job.is_dead.replace(true) {
            self.metrics.total.observe_time(total);
            job.tell(JobEvent::Ended(job.receipt.borrow().clone()));
        }
    }

    /// Ends a task's job with an error; its other answers are dropped before the next pass.
    fn fail(&self, task: &AnswerTask, failure: JobFailure) {
        if !task.job.is_dead.replace(true) {
            self.metrics.failed.fetch_add(1, Relaxed);
            task.job.tell(JobEvent::Failed(failure));
        }
    }

    fn release(&mut self, task: &AnswerTask) {
        if let Some(seq) = task.seq {
            // A sequence that the engine has lost needs no release.
            let _ = self.engine.release(seq);
            self.forget_drafts(seq);
        }
    }

    /// Time of this computer and of the device in nanoseconds, spent in the engine and in the draft model's engine.
    fn engines_ns(&self) -> (u64, u64) {
        let own = self.engine.counters();
        let drafter = self.speculator.as_ref().and_then(Speculator::draft_engine);
        let drafter = drafter.map(|engine| engine.counters()).unwrap_or_default();
        (
            own.host_ns + drafter.host_ns,
            own.device_ns + drafter.device_ns,
        )
    }

    pub(super) fn publish(&self) {
        let metrics = &*self.metrics;
        let counters = self.engine.counters();
        metrics.set_kv(self.engine.kv_usage(), counters.prefix);
        let (host_ns, device_ns) = self.engines_ns();
        metrics.host_ns.store(host_ns, Relaxed);
        metrics.device_ns.store(device_ns, Relaxed);
        let n_waiting = self.queue.tasks().len() as u64;
        metrics.n_waiting.store(n_waiting, Release);
        // Stored last: a reader that sees no running answers also sees the other counters of that moment.
        metrics.n_running.store(self.running.len() as u64, Release);
    }
}
