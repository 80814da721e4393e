//! The scheduler: one thread for each model, which decides what each pass of the engine computes.
//!
//! A [`Job`] is a prompt and a number of answers to it. The thread keeps a queue of jobs and a set of running
//! answers, each a [`Turn`](millrace_runtime::Turn) on a sequence of the engine. Before every pass it drops jobs
//! without a receiver, admits queued jobs that fit, and composes a ragged batch. The batch has a token of every
//! answer being written, and part of the prompts being read. None of this changes the text of an answer, since the
//! engine's rows do not depend on the rest of the batch.
//!
//! Guarantees:
//!
//! - **Bounded delay.** While answers are being written, the prompt tokens of a pass are limited so that the
//!   pass takes about [`SchedulerOptions::max_delay`], by the speed of earlier passes.
//! - **Fairness.** Among jobs of one priority the client with the fewest running answers comes next.
//! - **No overcommitment.** A prompt is admitted when its pages are free. If answers still
//!   outgrow the cache, the last one to arrive releases its pages and is computed again later.
//! - **No leftovers.** A job whose receiver is gone is dropped before the next pass.
//! - **Drafts never draw.** Where a [`Speculator`](millrace_runtime::Speculator) guesses ahead, an answer's tokens are
//!   still drawn one by one, by its own sampler and grammar. Drafts take only unused room, and a pass that reads
//!   prompts has none.
//! - **Faults stay with their cause.** When a step fails, its items are run one by one; those that fail alone
//!   end with the error.

mod batch;
mod core;
mod gate;
mod handle;
mod job;
mod loaded;
mod metrics;
mod pace;
mod pooled;
mod queue;
mod scores;
mod task;

pub use self::core::{MAX_PASS_DRAFTS, SchedulerCore, SchedulerOptions};
pub use handle::{LoadState, Scheduler, SubmitError};
pub use job::{
    Delta, DraftCounts, Job, JobEvent, JobFailure, MAX_PASSES, PassRecord, Receipt, TokenLogprob,
};
pub use loaded::{EngineFactory, EngineSetup, ModelInfo};
pub use metrics::{Buckets, Histogram, ModelMetrics, Snapshot};
pub use scores::{PromptScore, PromptToken};
