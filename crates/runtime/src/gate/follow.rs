//! A device along a path, and what to hold it against.

use super::forward::{Numerics, Products, logits};
use super::path::{Choice, Path};
use super::stats::Deviation;
use super::verdict::Step;
use crate::load::LoadedModel;
use crate::npu::{NpuError, NpuModel, NpuSession};
use millrace_kernels::Cpu;
use millrace_plan::Phase;

/// A path with the model's logits in f32 and what rounding to bf16 does to them. Where the device has
/// matrices in a format of its own, the model is the one with these.
pub struct Yardstick {
    path: Path,
    vocab_size: usize,
    /// `[n_steps, vocab]`.
    reference: Vec<f32>,
    rounding: Vec<Step>,
    /// Of the model with the device's matrices from the one with the checkpoint's; none where they are the same.
    conversion: Vec<Step>,
    n_strange: usize,
}

/// The step after the prompt is the prefill's, the others are decode's.
fn phase(step: usize) -> Phase {
    match step {
        0 => Phase::Prefill,
        _ => Phase::Decode,
    }
}

impl Yardstick {
    /// Computes both: two passes over the path's tokens on the CPU, and a third with the checkpoint's matrices
    /// where the device has others. Of the device only its number format is taken: the numbers that its
    /// layouts can hold of a matrix, whether a prompt's sums are truncated on their way, and its operands
    /// converted to blocks with one exponent.
    ///
    /// # Errors
    /// As [`logits`]; a plan that cannot be made.
    pub fn new(cpu: &Cpu, npu: &NpuModel, path: Path) -> Result<Yardstick, NpuError> {
        let model: &LoadedModel = npu.model();
        let vocab_size = model.model().config.vocab_size;
        let tokens = path.tokens();
        let rows = path.prompt.len().saturating_sub(1)..tokens.len();
        let products = npu.prompt_products(path.prompt.len())?;
        let of = |numerics| logits(cpu, model, &tokens, rows.clone(), numerics, &products);
        let (reference, rounded) = (of(Numerics::F32)?, of(Numerics::Bf16)?);
        let converted = products.held.as_ref().is_some_and(|held| !held.is_exact());
        let stored = match converted {
            true => {
                let plain = Products::default();
                Some(logits(cpu, model, &tokens, rows, Numerics::F32, &plain)?)
            }
            false => None,
        };
        let compared = |exact: &[f32], found: &[f32]| -> Vec<Step> {
            let rows = exact.chunks_exact(vocab_size);
            let rows = rows.zip(found.chunks_exact(vocab_size));
            let mut steps = Vec::new();
            for ((exact, found), choice) in rows.zip(&path.choices) {
                steps.push(Step {
                    phase: phase(steps.len()),
                    deviation: Deviation::of(exact, found, choice),
                });
            }
            steps
        };
        let mut conversion = Vec::new();
        if let Some(stored) = &stored {
            conversion = compared(stored, &reference);
        }
        let rounding = compared(&reference, &rounded);
        let of_file = stored.as_ref().unwrap_or(&reference);
        let exact = of_file.chunks_exact(vocab_size).zip(&path.choices);
        let strange = |(exact, choice): &(&[f32], &Choice)| {
            !super::top(exact, super::TOP).contains(&choice.token)
        };
        Ok(Yardstick {
            n_strange: exact.filter(strange).count(),
            vocab_size,
            rounding,
            conversion,
            reference,
            path,
        })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What rounding does, a step each.
    pub fn rounding(&self) -> &[Step] {
        &self.rounding
    }

    /// What the device's own format of matrices does, a step each: the model with these beside the model as
    /// it is stored. Empty where the format is exact.
    pub fn conversion(&self) -> &[Step] {
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
        Deviation::of(reference, found, &self.path.choices[step])
    }
}

/// Has a session go along a path from its start; `each` gets every step as it comes and may end it.
///
/// # Errors
/// As [`NpuSession::prefill`] and [`NpuSession::decode`].
pub fn follow(
    session: &mut NpuSession,
    yardstick: &Yardstick,
    each: &mut dyn FnMut(Step) -> bool,
) -> Result<(), NpuError> {
    session.truncate(0)?;
    for step in 0..yardstick.path.choices.len() {
        let found = match step.checked_sub(1) {
            None => session.prefill(&yardstick.path.prompt)?,
            Some(before) => session.decode(yardstick.path.choices[before].token)?,
        };
        let deviation = yardstick.deviation(step, found);
        let phase = phase(step);
        if !each(Step { phase, deviation }) {
            break;
        }
    }
    Ok(())
}
