//! Jobs for the scheduler, and the events that it reports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_npu::Provenance;
use millrace_runtime::npu::Shares;
use millrace_runtime::{AdapterSet, Finish, GenerateParams, Image, Pooling, Thinking};

use super::scores::PromptToken;
use crate::grammar::Grammar;
use crate::keys::KeyUsage;

/// A prompt, and the kind of result wanted.
#[derive(Clone, Debug)]
pub struct Job {
    /// The whole context.
    pub prompt: Vec<u32>,
    /// Images whose rows are tokens of the prompt.
    pub images: Vec<Arc<Image>>,
    /// Sampling, stop texts, limits. Answer `i` draws with seed `sampling.seed + i`.
    pub params: GenerateParams,
    /// Number of answers, at least one. The prompt is read once for all of them.
    pub n: usize,
    /// Report the log-probability of every token drawn, and of this many of the likeliest beside it.
    pub top_logprobs: Option<usize>,
    /// Report the log-probability of every token of the prompt, and of this many of the likeliest in its place. The
    /// whole prompt is computed then. With `max_tokens` of 0, nothing else is computed.
    pub prompt_logprobs: Option<usize>,
    /// Make an embedding of the prompt, pooled like this, instead of answers.
    pub embed: Option<Pooling>,
    /// Leave that embedding unscaled, instead of scaling it to length 1.
    pub embed_rows: bool,
    /// The required form of the answers.
    pub grammar: Option<Grammar>,
    /// How the model thinks: thoughts are separated, and the grammar applies to the text after them.
    pub thinking: Option<Thinking>,
    /// The grammar covers thoughts and answer together.
    pub grammar_has_thoughts: bool,
    /// Control tokens whose texts are included in the output.
    pub shown: Arc<[u32]>,
    /// Adapters of the answers' sequences.
    pub adapters: AdapterSet,
    /// The usage that the tokens are counted in.
    pub usage: Option<Arc<KeyUsage>>,
    /// The client: jobs are scheduled fairly between clients.
    pub client: Arc<str>,
    /// Jobs of the same scope share cached prompts and compiled grammars.
    pub scope: u64,
    /// Lower is served earlier; the default is 0.
    pub priority: i32,
    /// Deadline of the job.
    pub deadline: Option<Instant>,
    /// Report how much of the prompt is read.
    pub progress: bool,
    /// Record the time of each pass.
    pub timeline: bool,
}

impl Job {
    /// A job of one answer, with default settings.
    pub fn new(prompt: Vec<u32>, params: GenerateParams) -> Job {
        Job {
            prompt,
            images: Vec::new(),
            params,
            n: 1,
            top_logprobs: None,
            prompt_logprobs: None,
            embed: None,
            embed_rows: false,
            grammar: None,
            thinking: None,
            grammar_has_thoughts: false,
            shown: Arc::default(),
            adapters: AdapterSet::default(),
            usage: None,
            client: Arc::from(""),
            scope: 0,
            priority: 0,
            deadline: None,
            progress: false,
            timeline: false,
        }
    }
}

/// A token with its natural log-probability: of the model's own distribution, before temperature,
/// penalties, truncation and grammar.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token drawn.
    pub token: u32,
    /// Its log-probability.
    pub logprob: f64,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<(u32, f64)>,
}

/// More of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Index of the answer.
    pub choice: usize,
    /// Whether it belongs to a thought.
    pub is_thought: bool,
    /// Whole characters, none of which can be the beginning of a stop text.
    pub text: String,
    /// Tokens drawn, if log-probabilities were requested.
    pub tokens: Vec<TokenLogprob>,
}

/// Counts of drafted tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Number checked in passes.
    pub n_drafted: usize,
    /// Number drawn among those.
    pub n_accepted: usize,
}

/// Statistics of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Number of tokens of the prompt.
    pub n_prompt: usize,
    /// Number of those found in the cache.
    pub n_cached: usize,
    /// Number of tokens written, in all answers.
    pub n_generated: usize,
    /// Number of those that belong to thoughts.
    pub n_thought: usize,
    /// Tokens drafted for it. `None` without drafting.
    pub drafts: Option<DraftCounts>,
    /// Where it ran, as named by the engine.
    pub device: String,
    /// Measured time of this computer inside the engine: this job's share, by tokens, of each pass, and the time of
    /// drafts made for it.
    pub host: Duration,
    /// Time on the device, likewise, with its provenance. `None` without a device.
    pub device_time: Option<(Duration, Provenance)>,
    /// The ops that the device computes and those left to this computer, with reasons. `None` without a device.
    pub shares: Option<Arc<Shares>>,
    /// From submission to admission.
    pub queued: Duration,
    /// From submission to the first token; zero if there was none.
    pub first_token: Duration,
    /// From submission to the end.
    pub total: Duration,
    /// Number of times that an answer released its pages and was computed again.
    pub n_preempted: usize,
    /// The passes with tokens of this job, if requested: the first [`MAX_PASSES`].
    pub timeline: Vec<PassRecord>,
}

/// Maximum number of passes that a receipt lists.
pub const MAX_PASSES: usize = 1024;

/// A pass of the engine, from the view of one job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassRecord {
    /// Time of its end, from the job's submission.
    pub end: Duration,
    /// Number of the job's tokens in it, drafts included.
    pub n_tokens: usize,
    /// Number of tokens of all jobs.
    pub n_pass_tokens: usize,
    /// Whether the job's tokens belong to its prompt.
    pub reads: bool,
    /// Measured time of the whole pass on this computer, inside the engine.
    pub host: Duration,
    /// Its time on the device, as in the receipt's `device_time`; zero without a device.
    pub device: Duration,
}

/// Events of a job, in order: any number of the first two or one embedding; the prompt's scores before any text, if
/// requested; one `Finished` for each answer; then `Ended`. `Failed` may come at any point and is the last.
#[derive(Clone, Debug)]
pub enum JobEvent {
    /// Prompt tokens held by the engine, and their total. Tokens found in the cache count as held.
    Prefill {
        /// Tokens held.
        done: usize,
        /// All tokens.
        total: usize,
    },
    /// More text or tokens.
    Delta(Delta),
    /// The prompt's tokens and their log-probabilities.
    PromptScores(Vec<PromptToken>),
    /// The requested embedding, `[d_model]`, of length 1.
    Embedding(Vec<f32>),
    /// An answer is complete.
    Finished {
        /// Index of the answer.
        choice: usize,
        /// Reason of its end.
        finish: Finish,
        /// The stop text that ended it, if one did.
        stop_text: Option<String>,
    },
    /// All answers are complete.
    Ended(Receipt),
    /// The job will not be completed.
    Failed(JobFailure),
}

/// Reason why an accepted job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobFailure {
    /// Its deadline passed.
    #[error("the request's deadline passed before it was complete")]
    Deadline,
    /// The server is shutting down and its grace period ended.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
    /// Its grammar cannot be followed any further.
    #[error("{0}")]
    Grammar(String),
}
