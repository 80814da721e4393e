//! What is asked of the scheduler, and what it tells while it works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_npu::Provenance;
use millrace_runtime::npu::Shares;
use millrace_runtime::{AdapterSet, Finish, GenerateParams, Image, Pooling, Thinking};

use super::scores::PromptToken;
use crate::grammar::Grammar;
use crate::keys::KeyUsage;

/// A prompt and what shall follow it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The whole context.
    pub prompt: Vec<u32>,
    /// Those that tokens of the prompt are rows of.
    pub images: Vec<Arc<Image>>,
    /// Sampling, stop texts, limits. Answer `i` draws with seed `sampling.seed + i`.
    pub params: GenerateParams,
    /// Answers wanted, at least one. The prompt is read once for all of them.
    pub n: usize,
    /// Report the log-probability of every token drawn, and of this many of the likeliest beside it.
    pub top_logprobs: Option<usize>,
    /// Report the log-probability of every token of the prompt, and of this many of the likeliest in its place. All of the prompt
    /// is computed then. With `max_tokens` of 0 nothing else is.
    pub prompt_logprobs: Option<usize>,
    /// Make an embedding of the prompt, pooled like this, instead of answers.
    pub embed: Option<Pooling>,
    /// Leave that embedding as it was pooled, not of length 1.
    pub embed_rows: bool,
    /// What the answers must look like.
    pub grammar: Option<Grammar>,
    /// How the model thinks: thoughts are told apart, and the grammar is of what comes behind them.
    pub thinking: Option<Thinking>,
    /// The grammar is of thoughts and answer together.
    pub grammar_has_thoughts: bool,
    /// Control tokens that print their texts.
    pub shown: Arc<[u32]>,
    /// What the sequences of the answers compute with.
    pub adapters: AdapterSet,
    /// What the tokens are counted against.
    pub usage: Option<Arc<KeyUsage>>,
    /// Who asks: jobs are shared out fairly between clients.
    pub client: Arc<str>,
    /// Jobs of one number find each other's prompts in the cache, and each other's compiled grammars.
    pub scope: u64,
    /// Lower is served earlier; 0 is usual.
    pub priority: i32,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Tell how much of the prompt is read.
    pub progress: bool,
    /// Keep what each pass took.
    pub timeline: bool,
}

impl Job {
    /// A job of one answer with nothing special about it.
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
    /// Which answer.
    pub choice: usize,
    /// Whether it is of a thought.
    pub is_thought: bool,
    /// Whole characters, none of which can be the beginning of a stop text.
    pub text: String,
    /// Tokens drawn, where log-probabilities were asked for.
    pub tokens: Vec<TokenLogprob>,
}

/// Tokens that were guessed for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Checked in passes.
    pub n_drafted: usize,
    /// Of those: drawn.
    pub n_accepted: usize,
}

/// What a job took.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// How many of them were found in the cache.
    pub n_cached: usize,
    /// Tokens written, in all answers.
    pub n_generated: usize,
    /// How many of those are of thoughts.
    pub n_thought: usize,
    /// Tokens guessed for it. `None` where nothing guesses.
    pub drafts: Option<DraftCounts>,
    /// Where it ran, in the engine's words.
    pub device: String,
    /// Time of this computer inside the engine, measured: this job's share, by tokens, of each pass; and that of the
    /// drafts made for it.
    pub host: Duration,
    /// Time on the device, likewise, with where the figure comes from. `None` without a device.
    pub device_time: Option<(Duration, Provenance)>,
    /// Which ops the device computes and which it leaves to this computer, with reasons. `None` without a
    /// device.
    pub shares: Option<Arc<Shares>>,
    /// From submission to admission.
    pub queued: Duration,
    /// From submission to the first token; zero if there was none.
    pub first_token: Duration,
    /// From submission to the end.
    pub total: Duration,
    /// Times that an answer gave its pages back and was computed again.
    pub n_preempted: usize,
    /// The passes with tokens of this job, if it asked: the first [`MAX_PASSES`].
    pub timeline: Vec<PassRecord>,
}

/// Passes that a receipt lists at most.
pub const MAX_PASSES: usize = 1024;

/// A pass of the engine, as one job has part in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassRecord {
    /// When it ended, from the job's submission.
    pub end: Duration,
    /// The job's tokens in it, drafts among them.
    pub n_tokens: usize,
    /// Those of all jobs.
    pub n_pass_tokens: usize,
    /// Whether the job's were its prompt's.
    pub reads: bool,
    /// What all of it took of this computer's time in the engine, measured.
    pub host: Duration,
    /// And of the device's, as the receipt's `device_time` says; zero without a device.
    pub device: Duration,
}

/// What a job's receiver hears, in order: any number of the first two or one embedding, the prompt's
/// scores before any text if they are wanted, one `Finished` for each answer,
/// then `Ended`; or at any point `Failed`, after which nothing comes.
#[derive(Clone, Debug)]
pub enum JobEvent {
    /// Prompt tokens held by the engine, of how many; those found in the cache count as held.
    Prefill {
        /// Held.
        done: usize,
        /// All.
        total: usize,
    },
    /// More text or tokens.
    Delta(Delta),
    /// The prompt's tokens and what the model thinks of them.
    PromptScores(Vec<PromptToken>),
    /// The embedding that was wanted, `[d_model]`, of length 1.
    Embedding(Vec<f32>),
    /// An answer is complete.
    Finished {
        /// Which.
        choice: usize,
        /// Why.
        finish: Finish,
        /// Which of the stop texts ended it, if one did.
        stop_text: Option<String>,
    },
    /// All answers are.
    Ended(Receipt),
    /// The job will not be completed.
    Failed(JobFailure),
}

/// Why a job was given up after it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobFailure {
    /// Its deadline passed.
    #[error("the request's deadline passed before it was complete")]
    Deadline,
    /// The server is going down and its patience ended.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
    /// The grammar that came with it cannot be followed any further.
    #[error("{0}")]
    Grammar(String),
}
