//! A device along a continuation, and the reference to compare it with.

use super::continuation::{Choice, Continuation};
use super::deviation::Deviation;
use super::verdict::PathStep;
use crate::reference::{
    DeviceWeights, ExpertChoices, PassArithmetic, Products, logits_with_experts,
};
use millrace_kernels::Cpu;
use millrace_plan::Phase;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{GivenExperts, NpuError, NpuModel, NpuSession};
use std::collections::HashMap;
use std::sync::Arc;

/// State shared by the continuations of a model on a device: the CPU that computes references, and the device's own
/// numbers of matrices.
pub struct Verification<'a> {
    cpu: &'a Cpu,
    npu: &'a NpuModel,
    weights: Arc<DeviceWeights>,
}

impl<'a> Verification<'a> {
    /// Verification of a model on a device. `cpu` should round no operand
    /// ([`Level::detect_exact`](millrace_kernels::Level::detect_exact)).
    ///
    /// # Errors
    /// As [`DeviceWeights::of`].
    pub fn new(cpu: &'a Cpu, npu: &'a NpuModel) -> Result<Verification<'a>, NpuError> {
        Ok(Verification {
            weights: Arc::new(DeviceWeights::of(npu)?),
            cpu,
            npu,
        })
    }

    /// The model's logits along a continuation, and the effect of rounding on them. It takes two passes over the
    /// continuation's tokens on the CPU, and a third with the checkpoint's matrices if the device has others. Only the
    /// device's number format is used. These are the numbers that its layouts can hold of a matrix, whether a prompt's
    /// sums are truncated on their way, and its operands converted to blocks with one exponent.
    ///
    /// # Errors
    /// As [`crate::reference::logits`]; a plan that cannot be made.
    pub fn baseline(&self, continuation: Continuation) -> Result<Baseline, NpuError> {
        let (cpu, npu) = (self.cpu, self.npu);
        let model: &LoadedModel = npu.model();
        let vocab_size = model.model().config.vocab_size;
        let tokens = continuation.tokens();
        let rows = continuation.prompt.len().saturating_sub(1)..tokens.len();
        let weights = self.weights.clone();
        let products = Products::of_prompt(npu, weights, continuation.prompt.len())?;
        let of = |numerics, products, experts: &mut ExpertChoices| {
            let how = (numerics, products);
            logits_with_experts(cpu, model, &tokens, rows.clone(), how, experts)
        };
        let mut chosen = ExpertChoices::default();
        let reference = of(PassArithmetic::F32, &products, &mut chosen)?;
        let mut followed = ExpertChoices::like(&chosen);
        let rounded = of(PassArithmetic::Bf16, &products, &mut followed)?;
        let stored = match self.weights.is_exact() {
            false => {
                let plain = Products::default();
                let mut followed = ExpertChoices::like(&chosen);
                Some(of(PassArithmetic::F32, &plain, &mut followed)?)
            }
            true => None,
        };
        let n_others = followed.n_others(tokens.len());
        let compared = |exact: &[f32], found: &[f32], n_others: &[usize]| {
            path_steps(&continuation, vocab_size, (exact, found), n_others)
        };
        let mut conversion = Vec::new();
        if let Some(stored) = &stored {
            conversion = compared(stored, &reference, &[]);
        }
        let rounding = compared(&reference, &rounded, &n_others);
        let of_file = stored.as_ref().unwrap_or(&reference);
        let exact = of_file.chunks_exact(vocab_size).zip(&continuation.choices);
        let strange = |(exact, choice): &(&[f32], &Choice)| {
            !super::top(exact, super::TOP).contains(&choice.token)
        };
        Ok(Baseline {
            n_strange: exact.filter(strange).count(),
            vocab_size,
            rounding,
            conversion,
            reference,
            continuation,
            experts: chosen.own,
        })
    }
}

/// How far `found` is from `exact` after each step, both `[n_steps, vocab_size]`; `n_others` has for each token the
/// number of experts that it chose and the exact model did not.
fn path_steps(
    continuation: &Continuation,
    vocab_size: usize,
    (exact, found): (&[f32], &[f32]),
    n_others: &[usize],
) -> Vec<PathStep> {
    let rows = exact.chunks_exact(vocab_size);
    let rows = rows.zip(found.chunks_exact(vocab_size));
    let mut steps = Vec::new();
    for ((exact, found), choice) in rows.zip(&continuation.choices) {
        // The first step has the prompt's choices, any other those of its token.
        let n_prompt = continuation.prompt.len();
        let tokens = match steps.len() {
            0 => 0..n_prompt,
            step => n_prompt + step - 1..n_prompt + step,
        };
        steps.push(PathStep {
            phase: phase(steps.len()),
            n_other_experts: n_others.get(tokens).map_or(0, |n| n.iter().sum()),
            deviation: Deviation::of(exact, found, choice),
        });
    }
    steps
}

/// A continuation with the model's logits in f32, and the effect of rounding to bf16 on them. If the device has
/// matrices in its own format, the model is the one with these.
pub struct Baseline {
    continuation: Continuation,
    vocab_size: usize,
    /// `[n_steps, vocab]`.
    reference: Vec<f32>,
    rounding: Vec<PathStep>,
    /// Deviations of the model with the device's matrices from the one with the checkpoint's; none if they are the
    /// same.
    conversion: Vec<PathStep>,
    n_strange: usize,
    /// By node, the experts that the model's tokens choose in f32: `[n_tokens, n_used]`.
    experts: HashMap<usize, Vec<usize>>,
}

/// Phase of a step: the first belongs to the prefill, the others to decode.
fn phase(step: usize) -> Phase {
    match step {
        0 => Phase::Prefill,
        _ => Phase::Decode,
    }
}

impl Baseline {
    /// The continuation.
    pub fn continuation(&self) -> &Continuation {
        &self.continuation
    }

    /// Effect of rounding, step by step.
    pub fn rounding(&self) -> &[PathStep] {
        &self.rounding
    }

    /// Effect of the device's own format of matrices, step by step: the model with these compared with the model as
    /// stored. Empty if the format is exact.
    pub fn conversion(&self) -> &[PathStep] {
        &self.conversion
    }

    /// Steps at which the reference chose a token that is not among the model's five likeliest in f32:
    /// a reference of this model has none, or hardly any.
    pub fn n_strange(&self) -> usize {
        self.n_strange
    }

    /// How far a row of the device is off.
    fn deviation(&self, step: usize, found: &[f32]) -> Deviation {
        let reference = &self.reference[step * self.vocab_size..][..self.vocab_size];
        Deviation::of(reference, found, &self.continuation.choices[step])
    }
}

/// Runs a session along a continuation from its start; `each` gets every step as it comes and may end it. Its tokens take
/// the experts that the model chooses in f32; where they would have taken others is counted.
///
/// # Errors
/// As [`NpuSession::prefill`] and [`NpuSession::decode`].
pub fn follow(
    session: &mut NpuSession,
    baseline: &Baseline,
    each: &mut dyn FnMut(PathStep) -> bool,
) -> Result<(), NpuError> {
    session.truncate(0)?;
    let given = Arc::new(GivenExperts::new(baseline.experts.clone()));
    session.give_experts(Some(given.clone()));
    let mut followed = Ok(());
    for step in 0..baseline.continuation.choices.len() {
        let before = given.n_others();
        let found = match step.checked_sub(1) {
            None => session.prefill(&baseline.continuation.prompt),
            Some(before) => session.decode(baseline.continuation.choices[before].token),
        };
        let step = match found {
            Ok(found) => PathStep {
                phase: phase(step),
                deviation: baseline.deviation(step, found),
                n_other_experts: (given.n_others() - before) as usize,
            },
            Err(error) => {
                followed = Err(error);
                break;
            }
        };
        if !each(step) {
            break;
        }
    }
    session.give_experts(None);
    followed
}
