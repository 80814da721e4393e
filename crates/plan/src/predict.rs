//! Cost of a model on a device: a pass of a [`Plan`] as times, bytes and counts.
//!
//! A target's [`Pricer`] gives the cost of a program on its machine, of a call and of a step of the host. It also gives
//! the origin of those times. Everything that follows from the plan itself (transfers, buffers that stay, sums and
//! rates) is computed here, the same for every target.
//!
//! # Work
//! Operations are counted by program, by pass and by part of the model, over the time they take, with the share of the
//! machine's peak ([`Rate`]).
//!
//! # Memory bandwidth utilisation
//! `u_mem_rd` is the read bandwidth utilisation U_mem^rd of the Gemma 3 paper (equation 13), taken over a whole pass:
//! the bytes of static slots (weights and tables, each call's once) over the pass's time and the peak of the machine's
//! DDR. The device in fact reads more, because a tiled product reads its operands several times. `ddr_utilization`
//! measures this: `ddr_read_bytes` over the device's time and the attainable rate.

pub mod cells;
mod cost;
mod host;
mod image;
mod memory;
mod pass;
mod trace;
mod variants;
mod work;

pub use cost::{Bottleneck, CoreCost, LaunchCost, ModelPart, ProgramCost, SlotBytes};
pub use host::{CallNs, HostWork};
pub use image::{ImagePass, image};
pub use memory::Memory;
pub use pass::{CallCost, Crossing, HostCost, PassCost, StepCost, Totals};
pub use trace::{ProgramDetail, ProgramSpan, trace};
pub use variants::{Variant, variants, with_settings};
pub use work::{PartCost, Rate};

use crate::{
    Chunk, HostStep, LowerError, Lowering, PassKind, Plan, PlannedProgram, Sequences, SettingError,
};
use millrace_graph::Graph;
use millrace_npu::{Energy, Provenance};
use serde::Serialize;

/// Cost of the parts of a plan on a target's machine, software and host. All of it is modelled.
pub trait Pricer {
    /// The machine.
    fn machine(&self) -> &MachineFacts;

    /// Prices programs in advance, on all processors; later requests are then quick.
    ///
    /// # Errors
    /// A program that has no time.
    fn prime(&mut self, programs: &[&PlannedProgram]) -> Result<(), PriceError> {
        let _ = programs;
        Ok(())
    }

    /// Cost of one call of a program on the device; `calls` is left at 0.
    ///
    /// # Errors
    /// A program that has no time.
    fn program(&mut self, planned: &PlannedProgram) -> Result<ProgramCost, PriceError>;

    /// Nanoseconds that a step of the host takes; `work` gives the data that it touches.
    fn step_ns(&self, work: &HostWork<'_>, step: HostStep) -> f64;

    /// The host's part of a call with that traffic.
    fn call(&self, work: &HostWork<'_>, call: &crate::Call, crossing: Crossing) -> CallNs;

    /// Energy of the device over that time, where powers are known.
    fn energy(&self, run_ns: u64) -> Option<Energy> {
        let _ = run_ns;
        None
    }

    /// Owner of the host that works between the calls, in a word.
    fn host(&self) -> &'static str;

    /// Where whole passes' times come from, and how far they were off.
    fn provenance(&self) -> Provenance;

    /// Errors on whole models that no constant was fitted on. `None` where nothing was measured, or where machine or
    /// constants were changed.
    fn model_error(&self) -> Option<ModelError> {
        None
    }

    /// The same of single kernels, in percent.
    fn kernel_error_percent(&self) -> Option<f64> {
        None
    }

    /// Activity of a program's cores and channels over time, in at most so many spans.
    ///
    /// # Errors
    /// A program that has no time.
    fn detail(
        &self,
        planned: &PlannedProgram,
        n_spans: usize,
    ) -> Result<ProgramDetail, PriceError> {
        let _ = n_spans;
        Ok(ProgramDetail {
            program: planned.name().to_owned(),
            ..ProgramDetail::default()
        })
    }
}

/// Facts of a machine that tables and images need.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachineFacts {
    /// Name.
    pub name: String,
    /// Columns of its array of cores.
    pub cols: u32,
    /// Rows of its array of cores.
    pub rows: u32,
    /// Clock of the cores.
    pub clock_hz: f64,
    /// Peak of its DDR.
    pub ddr_bytes_per_s: f64,
    /// The part of that peak that it reads at best; a constant of the software stack, not a fact.
    #[serde(skip)]
    pub attained_bytes_per_s: f64,
    /// Operations a second of its matrix units in bf16, or in the widest type that they multiply.
    #[serde(skip)]
    pub peak_flops_per_s: f64,
}

/// Errors of whole models that no constant was fitted on, in percent: medians over published rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelError {
    /// Error of prompts.
    pub prompt_percent: f64,
    /// Error of tokens.
    pub token_percent: f64,
}

/// The origin of times, in a sentence: with the error of whole models or of kernels.
pub fn times(provenance: &Provenance, error: Option<&ModelError>, kernels: Option<f64>) -> String {
    let profile = match provenance {
        Provenance::Modelled { profile, .. } => profile.clone(),
        other => other.to_string(),
    };
    let whole = match error {
        Some(error) => format!(
            "±{} % a prompt, ±{} % a token: medians over published ones that nothing was fitted on",
            error.prompt_percent, error.token_percent
        ),
        None => "error unknown".to_owned(),
    };
    let kernels = kernels.map_or_else(String::new, |percent| {
        format!("; single kernels ±{percent} %")
    });
    format!("modelled({profile}, {whole}{kernels}); not measured on an NPU")
}

/// Why something has no price.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct PriceError(pub String);

/// The workload of a prediction: a prompt, then one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptWorkload {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens in the cache when the token is computed.
    pub context: u64,
}

impl PromptWorkload {
    /// A prompt and the token after it.
    pub fn new(prompt_tokens: u64) -> PromptWorkload {
        PromptWorkload {
            prompt_tokens,
            context: prompt_tokens,
        }
    }
}

/// Predicted cost of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The improvements in force.
    pub features: Vec<&'static str>,
    /// Owner of the host.
    pub host: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens in the cache when the token is computed.
    pub context: u64,
    /// The prompt's passes, chunk by chunk.
    pub prefill: Vec<PassCost>,
    /// The pass of one token.
    pub token: PassCost,
    /// From the prompt to its logits: time to the first token, without sampling.
    pub ttft_ns: f64,
    /// Prompt tokens in a second.
    pub prompt_tokens_per_s: f64,
    /// Rate of tokens after the prompt, from the time of one.
    pub tokens_per_s: f64,
    /// Operations a second that the machine's matrix units could do.
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
    Price(#[from] PriceError),
    /// A setting.
    #[error(transparent)]
    Setting(SettingError),
    /// An empty prompt, or one so long that nobody would wait for its end.
    #[error("a prompt of {0} tokens: 1 to {MAX_PROMPT} can be predicted")]
    Prompt(u64),
}

/// Least context that predictions assume, where every token of a target takes one plan.
const LONG_CTX: u64 = 4096;

/// Longest prompt.
pub const MAX_PROMPT: u64 = 1 << 20;

/// Predicts a prompt and a token.
///
/// # Errors
/// See [`PredictError`].
pub fn model(
    graph: &Graph,
    planner: &dyn Lowering,
    pricer: &mut dyn Pricer,
    work: &PromptWorkload,
) -> Result<Prediction, PredictError> {
    if !(1..=MAX_PROMPT).contains(&work.prompt_tokens) {
        return Err(PredictError::Prompt(work.prompt_tokens));
    }
    let plans = Plans::new(graph, planner, work)?;
    let programs = plans.all().flat_map(|plan| &plan.programs);
    pricer.prime(&programs.collect::<Vec<_>>())?;
    let mut prefill: Vec<PassCost> = Vec::new();
    for (chunk, plan) in &plans.prefill {
        prefill.push(pass::cost(&plans.plans[*plan], graph, pricer, *chunk)?);
    }
    let token = pass::cost(&plans.decode, graph, pricer, Chunk::token(work.context))?;
    let ttft_ns: f64 = prefill.iter().map(|p| p.totals.total_ns).sum();
    Ok(Prediction {
        features: planner.features(),
        host: pricer.host(),
        prompt_tokens: work.prompt_tokens,
        context: work.context,
        ttft_ns,
        prompt_tokens_per_s: work.prompt_tokens as f64 * 1e9 / ttft_ns,
        tokens_per_s: 1e9 / token.totals.total_ns,
        peak_flops_per_s: pricer.machine().peak_flops_per_s,
        memory: memory::of(&plans, graph, work),
        provenance: pricer.provenance(),
        prefill,
        token,
    })
}

/// Predicts one pass of a kind that its planner need not choose by itself: that of a prompt with an image.
///
/// # Errors
/// See [`PredictError`].
pub(crate) fn one_pass(
    graph: &Graph,
    planner: &dyn Lowering,
    pricer: &mut dyn Pricer,
    (kind, chunk): (&PassKind, Chunk),
) -> Result<PassCost, PredictError> {
    let plan = planner.lower(graph, kind)?;
    pricer.prime(&plan.programs.iter().collect::<Vec<_>>())?;
    Ok(pass::cost(&plan, graph, pricer, chunk)?)
}

/// The distinct programs of a prompt and a token: the first of each name.
///
/// # Errors
/// There is no plan.
pub fn programs(
    graph: &Graph,
    planner: &dyn Lowering,
    work: &PromptWorkload,
) -> Result<Vec<PlannedProgram>, PredictError> {
    let plans = Plans::new(graph, planner, work)?;
    let mut programs: Vec<PlannedProgram> = Vec::new();
    for planned in plans.all().flat_map(|plan| &plan.programs) {
        if !programs.iter().any(|p| p.name() == planned.name()) {
            programs.push(planned.clone());
        }
    }
    Ok(programs)
}

/// Buffers and cache of a prompt and a token, without their times.
///
/// # Errors
/// There is no plan.
pub fn memory(
    graph: &Graph,
    planner: &dyn Lowering,
    work: &PromptWorkload,
) -> Result<Memory, PredictError> {
    Ok(memory::of(&Plans::new(graph, planner, work)?, graph, work))
}

/// The plans of a prompt and a token; chunks that are equal share one.
struct Plans {
    plans: Vec<Plan>,
    /// Chunks with the index of their plan.
    prefill: Vec<(Chunk, usize)>,
    decode: Plan,
}

impl Plans {
    fn new(
        graph: &Graph,
        planner: &dyn Lowering,
        work: &PromptWorkload,
    ) -> Result<Plans, LowerError> {
        let chunks = planner.lengths().chunks(work.prompt_tokens);
        let passes = chunks.iter().map(|c| c.first + c.n_padded);
        let last = passes.fold(work.context + 1, u64::max);
        let sequences = Sequences {
            graph,
            planner,
            // A context in which the token's plan has as many keys as in a longer one.
            n_ctx: planner
                .decode_until(last - 1)
                .min(last.saturating_mul(2).max(LONG_CTX)),
        };
        let mut known: Vec<PassKind> = Vec::new();
        let mut plans = Vec::new();
        let mut prefill = Vec::new();
        for chunk in chunks {
            let kind = sequences.prefill(chunk);
            let plan = match known.iter().position(|k| *k == kind) {
                Some(plan) => plan,
                None => {
                    plans.push(planner.lower(graph, &kind)?);
                    known.push(kind);
                    plans.len() - 1
                }
            };
            prefill.push((chunk, plan));
        }
        let decode = planner.lower(graph, &sequences.decode(work.context))?;
        Ok(Plans {
            plans,
            prefill,
            decode,
        })
    }

    /// Each plan once.
    fn all(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter().chain([&self.decode])
    }
}
