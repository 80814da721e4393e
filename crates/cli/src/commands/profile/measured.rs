//! Runs the same prompt on the virtual device. The times are this computer's, not an NPU's.

use super::ProfileArgs;
use super::subject::ProfileSubject;
use crate::device_stats;
use crate::exit::CommandResult;
use crate::output::Ui;
use crate::target_args::DevicePurpose;
use millrace_plan::predict::PromptWorkload;
use millrace_runtime::npu::NpuSession;
use serde::Serialize;
use serde_json::Value;
use std::time::Instant;

/// Prompt length of a run, by default.
pub(super) const PROMPT_TOKENS: u64 = 32;

/// Times of a run on the virtual device, on this computer.
#[derive(Serialize)]
pub(super) struct RunTimes {
    /// Time to make plans and buffers, and to decode weights into them.
    pub(super) load_s: f64,
    /// Time of the prompt, simulation included.
    pub(super) prompt_s: f64,
    /// Time of all generated tokens, simulation included.
    pub(super) tokens_s: f64,
    pub(super) n_tokens: u64,
    /// The session's counters.
    pub(super) counters: Option<Value>,
}

/// Runs the prompt and writes tokens greedily, unless only times are wanted.
pub(super) fn run(
    args: &ProfileArgs,
    subject: &ProfileSubject,
    work: &PromptWorkload,
    ui: Ui,
) -> CommandResult<Option<RunTimes>> {
    let ProfileSubject::Files(model) = subject else {
        return Ok(None);
    };
    if subject.only_predicted(args) {
        return Ok(None);
    }
    let vocab_size = model.model().config.vocab_size as u64;
    let prompt = match &args.prompt {
        Some(text) => subject.encode(text)?,
        // The choice of tokens does not change the time.
        None => (0..work.prompt_tokens)
            .map(|i| (i * 7919 % vocab_size) as u32)
            .collect(),
    };
    let n_ctx = prompt.len() + args.n_tokens as usize;
    let start = Instant::now();
    let npu = args
        .target
        .load(model, &args.cpu, &DevicePurpose::context(n_ctx), ui)?;
    let load_s = start.elapsed().as_secs_f64();
    let mut session = NpuSession::new(&npu)?;
    let start = Instant::now();
    let mut token = likeliest(session.prefill(&prompt)?);
    let prompt_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..args.n_tokens {
        token = likeliest(session.decode(token)?);
    }
    Ok(Some(RunTimes {
        load_s,
        prompt_s,
        tokens_s: start.elapsed().as_secs_f64(),
        n_tokens: args.n_tokens,
        counters: device_stats::json(session.engine()),
    }))
}

fn likeliest(logits: &[f32]) -> u32 {
    let best = (logits.iter().enumerate()).max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| token as u32)
}
