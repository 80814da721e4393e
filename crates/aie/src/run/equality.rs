//! Acquires that wait for a lock to be equal to a value. The value that they leave in it is not documented: a run
//! counts if it ends alike with either reading.

use super::stage::{DesignStage, ProgramNotes};
use super::{RunOutcome, RunReport, SeededRun, Verdict, once};
use crate::core::{Instruction, LockAmount};
use crate::design::Design;
use crate::syntax::{Location, SyntaxError};
use millrace_xdna2_words::board::EqualAcquire;

/// Runs one order of actors. If locks are waited for by equality, it makes one run with the value subtracted and one
/// with the lock kept.
///
/// # Errors
/// A refusal of a run; two runs that differ.
pub(super) fn either(
    design: &Design,
    stages: &[DesignStage<'_>],
    notes: &ProgramNotes,
    run: SeededRun<'_>,
) -> Result<RunOutcome, SyntaxError> {
    let (outcome, has_met) = once(design, stages, notes, run)?;
    if !has_met {
        return Ok(outcome);
    }
    let kept = SeededRun {
        equal: EqualAcquire::Keeps,
        profile: None,
        ..run
    };
    let (other, _) = once(design, stages, notes, kept)?;
    let has_values = notes.unknown.is_empty() && outcome.0.verdict == Verdict::Pass;
    let is_alike = outcome.0.verdict == other.0.verdict && (!has_values || outcome.1 == other.1);
    match is_alike {
        true => Ok(outcome),
        false => Err(differ(stages, [&outcome.0, &other.0])),
    }
}

/// The refusal of runs that differ: the first subtracts, the second keeps.
fn differ(stages: &[DesignStage<'_>], reports: [&RunReport; 2]) -> SyntaxError {
    let [subtracts, keeps] = reports.map(|report| report.verdict.name());
    let end = match subtracts == keeps {
        true => "the bytes that are written depend on it".to_owned(),
        false => {
            format!("the run is {subtracts} if the value is subtracted, {keeps} if the lock stays")
        }
    };
    let problem = format!(
        "it waits for a lock to be equal to a value; what that leaves in the lock is not documented, and {end}"
    );
    let place = stages.iter().find_map(place).unwrap_or_default();
    SyntaxError::new(place, problem).in_op("aie.use_lock")
}

/// Place of the first such wait: in a descriptor, a core's program, or the words of the sequence.
fn place(stage: &DesignStage<'_>) -> Option<Location> {
    let descriptors = stage.design.descriptors.iter();
    let descriptor = descriptors.filter(|of| of.acquires_equal).map(|of| of.at);
    let programs = stage.codes.iter().flat_map(|(_, code)| {
        let both = code.instructions.iter().zip(&code.places);
        both.filter(|row| matches!(row.0, Instruction::Acquire(_, LockAmount::Equal(_))))
            .map(|row| *row.1)
    });
    let sequence = stage.lowered.operations.values().copied();
    descriptor.chain(programs).chain(sequence).next()
}
