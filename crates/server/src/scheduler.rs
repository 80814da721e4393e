//! The scheduler: one thread a model, which decides what each pass of the engine computes.
//!
//! A [`Job`] is a prompt with the wish for some answers to it. The thread keeps a queue of jobs and a
//! set of running answers, each a [`Turn`](millrace_runtime::Turn) on a sequence of the engine. Before
//! every pass it drops what nobody waits for any more, admits from the queue what fits, and composes a
//! ragged batch: a token of every answer being written, and part of the prompts being read. Nothing of
//! this changes what an answer says, since the engine's rows do not depend on what shares a batch.
//!
//! What it promises:
//!
//! - **Bounded delay.** While answers are being written, the prompt tokens of a pass are limited so that the
//!   pass takes about [`SchedulerOptions::max_delay`], by the speed that earlier passes had.
//! - **Fairness.** Among jobs of one priority the client with the fewest running answers is next.
//! - **No overcommitment.** A prompt is admitted when its pages are free. Where answers outgrow the cache
//!   nevertheless, the one that came last gives its pages back and is computed again later.
//! - **No leftovers.** A job whose receiver is gone is dropped before the next pass.
//! - **Drafts never draw.** Where a [`Speculator`](millrace_runtime::Speculator) guesses ahead, an answer's tokens are
//!   still drawn one by one, by its own sampler and grammar; drafts take only room that nobody needs, and a pass that
//!   reads prompts has none.
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
