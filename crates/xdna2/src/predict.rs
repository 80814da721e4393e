//! What a model costs on the array: a pass of a [`Plan`] as times, bytes and counts.
//!
//! Device times are those of [`crate::timing`] for the plan's own stitched programs: the same as
//! [`predict`](crate::timing::predict) gives for each, with equal launches simulated once. The host's part depends on
//! whose host it is ([`HostKind`]):
//!
//! | part | [`Published`](HostKind::Published), the Python of seed 000 | [`Own`](HostKind::Own), this repository's |
//! |---|---|---|
//! | call | `host.call_ns` a dispatch | the same |
//! | buffer write | what crosses and attention's output, zeroed, by `host.write_gb_per_s`; nothing in a token, whose few KB are not seen | what crosses, a token's too |
//! | buffer read | `host.read_ns` a call of a prompt: cache lines are invalidated, a view is returned | the same, and what crosses is copied by `host.write_gb_per_s` |
//! | a layer of a prompt | `host.prompt_byte_ns` a byte of its widest activation, at its cache step: Python and moving K and V | bytes of K and V |
//! | a prompt | `host.prompt_ns` at the embedding: tokenising, embedding, last norm | bytes of the rows |
//! | a layer of a token | `host.token_layer_ns` at its attention: a short context, norm, Python | bytes of the cached keys and values |
//!
//! *Bytes* of a host step are those of its operands: every row reads its weights and every query its
//! cached keys and values anew, by `host.write_gb_per_s`, the rate at which one thread was seen to
//! copy. That is assumed and nobody has measured it: one thread, no reuse between rows, nothing
//! overlapped with the array. Tokenising and sampling are not in the own host's time. A call's
//! constants are those of the published stack for both, because they are the driver's for the most part.
//!
//! # Work
//! Operations are counted by program, by pass and by part of the model, over the time they take, with
//! the share of the array's peak ([`Rate`]).
//!
//! # Memory bandwidth utilisation
//! `u_mem_rd` is the read bandwidth utilisation U_mem^rd of seed 002, taken over a whole pass: the
//! bytes of static slots (weights and tables, each call's once) over the pass's time and the peak of
//! the machine's DDR (`ddr.bytes_per_s`). What the array reads in fact is more, because a tiled product
//! reads its operands several times: `ddr_utilization` is that, `ddr_read_bytes` over the array's time
//! and the attainable rate of the profile (`ddr.read_gb_per_s`).
//!
//! Every figure is modelled; [`Prediction::provenance`] says by which profile and how far whole prompts of
//! models that no constant was fitted on were off ([`model_error`]), which is further than single kernels.

mod device;
mod error;
mod host;
mod memory;
mod pass;
mod trace;
mod work;

pub use device::{CoreCost, LaunchCost, ProgramCost, Timer};
pub use error::{ModelError, kernel_error_percent, model_error};
pub use host::HostKind;
pub use memory::Memory;
pub use pass::{CallCost, Crossing, HostCost, PassCost, StepCost, Totals};
pub use trace::trace;
pub use work::{PartCost, Rate};

use crate::lower::{self, Chunk, Feature, Features, Lengths, LowerError, Options, Plan, Sequences};
use crate::profile::Scope;
use crate::timing::TimingError;
use crate::{Machine, Profile, Program};
use millrace_model::graph::Graph;
use millrace_npu::Provenance;
use serde::Serialize;

/// What to predict: a prompt, then one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What is better than the published stack.
    pub features: Features,
    /// Whose host works between the calls.
    pub host: HostKind,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens in the cache when the token is computed.
    pub context: u64,
}

impl Work {
    /// A prompt and the token after it; the host is the published one without any feature.
    pub fn new(features: Features, prompt_tokens: u64) -> Work {
        Work {
            features,
            host: HostKind::of(features),
            prompt_tokens,
            context: prompt_tokens,
        }
    }
}

/// What a model costs.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The features that are in.
    pub features: Vec<&'static str>,
    /// Whose host it is.
    pub host: HostKind,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens in the cache when the token is computed.
    pub context: u64,
    /// The prompt's passes, chunk by chunk.
    pub prefill: Vec<PassCost>,
    /// One token's.
    pub token: PassCost,
    /// From the prompt to its logits: time to the first token, without sampling.
    pub ttft_ns: f64,
    /// Prompt tokens in a second.
    pub prompt_tokens_per_s: f64,
    /// Of the token's time.
    pub tokens_per_s: f64,
    /// Operations a second that the array's matrix units could do in bf16.
    pub peak_flops_per_s: f64,
    /// Buffers and cache.
    pub memory: Memory,
    /// Where the times come from.
    pub provenance: Provenance,
}

/// Why nothing can be predicted.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// There is no plan.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A program has no time.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A prompt of no length, or one of which nobody would wait for the end.
    #[error("a prompt of {0} tokens: 1 to {MAX_PROMPT} can be predicted")]
    Prompt(u64),
}

/// Longest prompt.
pub const MAX_PROMPT: u64 = 1 << 20;

/// Predicts a prompt and a token.
///
/// # Errors
/// See [`PredictError`].
pub fn model(
    graph: &Graph,
    timer: &mut Timer<'_>,
    work: &Work,
) -> Result<Prediction, PredictError> {
    if !(1..=MAX_PROMPT).contains(&work.prompt_tokens) {
        return Err(PredictError::Prompt(work.prompt_tokens));
    }
    let plans = Plans::new(graph, timer.machine(), work)?;
    let programs = plans.all().flat_map(|plan| &plan.programs);
    timer.prime(&programs.map(|p| &p.program).collect::<Vec<_>>())?;
    let mut prefill: Vec<PassCost> = Vec::new();
    for (chunk, plan) in &plans.prefill {
        prefill.push(pass::cost(&plans.plans[*plan], graph, timer, work, *chunk)?);
    }
    let last = Chunk::token(work.context);
    let token = pass::cost(&plans.decode, graph, timer, work, last)?;
    let ttft_ns: f64 = prefill.iter().map(|p| p.totals.total_ns).sum();
    Ok(Prediction {
        features: work.features.iter().map(Feature::name).collect(),
        host: work.host,
        prompt_tokens: work.prompt_tokens,
        context: work.context,
        ttft_ns,
        prompt_tokens_per_s: work.prompt_tokens as f64 * 1e9 / ttft_ns,
        tokens_per_s: 1e9 / token.totals.total_ns,
        peak_flops_per_s: timer.machine().bf16_flops_per_s(),
        memory: memory::of(&plans, graph, work),
        provenance: provenance(timer.profile(), timer.machine()),
        prefill,
        token,
    })
}

/// The distinct programs of a prompt and a token, by name: the first of each.
///
/// # Errors
/// There is no plan.
pub fn programs(
    graph: &Graph,
    machine: &Machine,
    work: &Work,
) -> Result<Vec<Program>, PredictError> {
    let plans = Plans::new(graph, machine, work)?;
    let mut programs: Vec<Program> = Vec::new();
    for planned in plans.all().flat_map(|plan| &plan.programs) {
        if !programs.iter().any(|p| p.name == planned.program.name) {
            programs.push(planned.program.clone());
        }
    }
    Ok(programs)
}

/// `modelled(profile, ±error)`, the error being that of whole prompts: tokens, whose own is
/// `Profile::error_of(Scope::Token)`, come out nearer.
pub fn provenance(profile: &Profile, machine: &Machine) -> Provenance {
    profile.provenance(Scope::Prompt, machine)
}

/// Buffers and cache of a prompt and a token, without their times.
///
/// # Errors
/// There is no plan.
pub fn memory(graph: &Graph, machine: &Machine, work: &Work) -> Result<Memory, PredictError> {
    Ok(memory::of(&Plans::new(graph, machine, work)?, graph, work))
}

/// The plans of a prompt and a token; chunks that are equal share one.
pub(crate) struct Plans {
    pub(crate) plans: Vec<Plan>,
    /// Chunks with the index of their plan.
    pub(crate) prefill: Vec<(Chunk, usize)>,
    pub(crate) decode: Plan,
}

impl Plans {
    fn new(graph: &Graph, machine: &Machine, work: &Work) -> Result<Plans, LowerError> {
        let chunks = Lengths::of(work.features).chunks(work.prompt_tokens);
        let passes = chunks.iter().map(|c| c.first + c.n_padded);
        let sequences = Sequences {
            graph,
            machine,
            features: work.features,
            n_ctx: lower::key_bucket(passes.fold(work.context + 1, u64::max)),
        };
        let mut known: Vec<Options> = Vec::new();
        let mut plans = Vec::new();
        let mut prefill = Vec::new();
        for chunk in chunks {
            let options = sequences.prefill(chunk);
            let plan = match known.iter().position(|o| *o == options) {
                Some(plan) => plan,
                None => {
                    plans.push(lower::prefill(graph, machine, &options)?);
                    known.push(options);
                    plans.len() - 1
                }
            };
            prefill.push((chunk, plan));
        }
        let options = sequences.decode(work.context);
        let decode = lower::decode(graph, machine, &options)?;
        Ok(Plans {
            plans,
            prefill,
            decode,
        })
    }

    /// Each plan once.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter().chain([&self.decode])
    }
}
