//! Compares the device along the reference's tokens, and checks its ops one by one.

use super::check_interrupt;
use crate::exit::CommandResult;
use crate::output::Ui;
use crate::progress::ProgressDisplay;
use millrace_runtime::npu::NpuSession;
use millrace_verify::ops::{CheckSummary, OpCheck};
use millrace_verify::verification::{
    Baseline, Choice, Continuation, PathStep, Verdict, follow, judge,
};
use serde::Serialize;

/// Tokens that the check of ops decodes after its prompt.
const N_DECODED: usize = 2;

/// Result of the comparison.
pub(super) struct CompareReport {
    /// One report per prompt.
    pub(super) prompts: Vec<PromptReport>,
    /// Over the whole set.
    pub(super) verdict: Verdict,
    /// Steps at which the reference chose a token that the model in f32 would not.
    pub(super) n_strange: usize,
    /// Mean divergence and places lost among the five most likely, caused by the device's own matrix
    /// format; `None` where that is exact.
    pub(super) conversion: Option<(f64, usize)>,
    /// Result of recomputing every op of the device.
    pub(super) ops: CheckSummary,
    /// Message about programs that ran on a substitute, where that fails the check.
    pub(super) substitutes: Option<String>,
}

/// Result for one prompt.
pub(super) struct PromptReport {
    pub(super) steps: Vec<PathStep>,
    /// Number of leading tokens on which both agree.
    pub(super) n_equal: usize,
    /// First step with different tokens.
    pub(super) divergence: Option<Divergence>,
    /// Mean divergence of the device, and of rounding to bf16.
    pub(super) mean_kl: [f64; 2],
}

/// A step at which the two sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Divergence {
    /// Step, 0 for the token after the prompt.
    pub(super) step: usize,
    /// The reference's token.
    pub(super) reference_token: u32,
    /// Rank of that token on the device.
    pub(super) reference_rank: usize,
    /// The device's token.
    pub(super) device_token: u32,
    /// Rank of that token in the reference; none beyond the recorded ones.
    pub(super) device_rank: Option<usize>,
}

/// Number of steps below which it is shown beside a bound: quantiles have bounds from here on.
const FEW_STEPS: usize = 40;

/// Factor by which a correct device may exceed its bound by chance, in a statistic of few steps. Beyond it the device
/// is wrong.
const MOST_BY_CHANCE: f64 = 4.0;

impl CompareReport {
    /// First failed check, in a line.
    pub(super) fn failure(&self) -> Option<String> {
        let n_steps: usize = self.prompts.iter().map(|p| p.steps.len()).sum();
        if self.n_strange > strange_allowed(n_steps) {
            return Some(format!(
                "the reference is not of this model: at {} of {n_steps} steps it chose a token that is not \
                 among the model's five likeliest",
                self.n_strange
            ));
        }
        if let Some(statistic) = self.verdict.failure() {
            let phase = statistic.phase.map_or(String::new(), |phase| {
                format!(" in {}", super::report::phase_name(phase))
            });
            // More steps would not improve a statistic over all steps.
            let is_few = statistic.phase.is_some() && statistic.n_steps < FEW_STEPS;
            let is_near = statistic.found < MOST_BY_CHANCE * statistic.bound;
            let of_few = match is_few && is_near {
                true => format!(
                    " of {} steps, so few that chance may exceed it; --prompts full has more",
                    statistic.n_steps
                ),
                false => String::new(),
            };
            return Some(format!(
                "{}{phase} is {:.3e}, the bound is {:.3e}{of_few}",
                statistic.name, statistic.found, statistic.bound
            ));
        }
        if let Some(finding) = &self.ops.finding {
            return Some(crate::commands::diagnose::headline(finding));
        }
        let told = self.substitutes.as_ref()?;
        Some(format!("{told} (--allow-substitutes lets it pass)"))
    }
}

/// Near ties: a reference in bf16 may now and then choose a token outside the top five of f32.
fn strange_allowed(n_steps: usize) -> usize {
    n_steps / 50
}

/// Runs the session along all continuations, and checks the ops of the shortest.
pub(super) fn run(
    session: &mut NpuSession,
    baselines: &[Baseline],
    ui: Ui,
) -> CommandResult<CompareReport> {
    let progress = ProgressDisplay::steps(ui, baselines.len() as u64);
    progress.message("checking prompts");
    let (mut prompts, mut all, mut rounding) = (Vec::new(), Vec::new(), Vec::new());
    for baseline in baselines {
        check_interrupt()?;
        let mut steps = Vec::new();
        follow(session, baseline, &mut |step| {
            steps.push(step);
            check_interrupt().is_ok()
        })?;
        check_interrupt()?;
        all.extend(&steps);
        rounding.extend(baseline.rounding());
        prompts.push(prompt_report(baseline, steps));
        progress.advance(1);
    }
    progress.message("checking every op");
    let shortest = baselines.iter().map(Baseline::continuation);
    let shortest = shortest.min_by_key(|continuation| continuation.prompt.len());
    Ok(CompareReport {
        prompts,
        verdict: judge(&all, &rounding),
        conversion: conversion(baselines),
        n_strange: baselines.iter().map(Baseline::n_strange).sum(),
        ops: match shortest {
            Some(continuation) => check_ops(session, continuation)?,
            None => CheckSummary::default(),
        },
        substitutes: None,
    })
}

/// Effect of the device's matrix format, over all steps.
fn conversion(baselines: &[Baseline]) -> Option<(f64, usize)> {
    let steps = || baselines.iter().flat_map(Baseline::conversion);
    let n_steps = steps().count();
    let kl: f64 = steps().map(|step| step.deviation.kl).sum();
    let n_lost = steps().map(|step| step.deviation.n_lost).sum();
    (n_steps > 0).then(|| (kl / n_steps as f64, n_lost))
}

fn prompt_report(baseline: &Baseline, steps: Vec<PathStep>) -> PromptReport {
    let choices = &baseline.continuation().choices;
    let differs = |(step, choice): (&PathStep, &Choice)| step.deviation.token != choice.token;
    let at = steps.iter().zip(choices).position(differs);
    let mean = |steps: &[PathStep]| {
        let sum: f64 = steps.iter().map(|step| step.deviation.kl).sum();
        sum / steps.len().max(1) as f64
    };
    PromptReport {
        n_equal: at.unwrap_or(steps.len()),
        divergence: at.map(|step| Divergence {
            step,
            reference_token: choices[step].token,
            reference_rank: steps[step].deviation.rank,
            device_token: steps[step].deviation.token,
            device_rank: choices[step].rank(steps[step].deviation.token),
        }),
        mean_kl: [mean(&steps), mean(baseline.rounding())],
        steps,
    }
}

/// Runs the prompt and some tokens, and checks every dispatch.
fn check_ops(session: &mut NpuSession, continuation: &Continuation) -> CommandResult<CheckSummary> {
    let (check, observer) = OpCheck::new(session.model());
    session.observe(Some(observer));
    session.truncate(0)?;
    let mut ended = session.prefill(&continuation.prompt).map(|_| ());
    for choice in continuation.choices.iter().take(N_DECODED) {
        if ended.is_ok() && session.check_context(1, 0).is_ok() {
            ended = session.decode(choice.token).map(|_| ());
        }
    }
    session.observe(None);
    let summary = check.summary()?;
    match ended {
        Err(error) if summary.finding.is_none() => Err(error.into()),
        _ => Ok(summary),
    }
}
